"""The errors of the Pulsar client."""

from __future__ import annotations

from typing import Final

from trilogue.client.errors import ClientError, ServerRefused, TimedOut
from trilogue.wire.pulsar.errors import ServerError

__all__ = [
    "BadMessage",
    "ClosedError",
    "EndOfTopic",
    "MessageTooLarge",
    "PulsarError",
    "QueueFull",
    "TimedOut",
    "TransactionAborted",
    "TransactionConflict",
    "TransactionNotFound",
]
ADVICE = {
    ServerError.TopicNotFound: "create the topic, or check its name",
    ServerError.AuthenticationError: "check token, or username and password",
    ServerError.AuthorizationError: "an administrator can grant the permission to the login",
}
RETRIABLE = frozenset(
    {
        ServerError.UnknownError,
        ServerError.MetadataError,
        ServerError.PersistenceError,
        ServerError.ServiceNotReady,
        ServerError.TooManyRequests,
    }
)
"""Errors that another attempt, or another broker, may not meet."""
BUSY = frozenset(
    {
        ServerError.ConsumerBusy,
        ServerError.ProducerBusy,
        ServerError.ProducerBlockedQuotaExceededError,
    }
)
"""Refusals that pass for one who was there before: the broker may not know yet that he went."""


class PulsarError(ServerRefused):
    """The broker answered with an error; `error` is its code by name."""

    def __init__(self, code: int, about: str, message: str) -> None:
        known = code in ServerError.__members__.values()
        self.error = ServerError(code) if known else ServerError.UnknownError
        super().__init__(
            code,
            self.error.name,
            f"{about}: {message}" if message else about,
            retriable=self.error in RETRIABLE,
            advice=ADVICE.get(self.error, ""),
        )


class TransactionConflict(PulsarError):
    """A message is acknowledged already, or in another transaction that is open."""


class TransactionNotFound(PulsarError):
    """The broker has no such transaction, or forgot it after its end."""


CLASSES: Final[dict[int, type[PulsarError]]] = {
    ServerError.TransactionConflict: TransactionConflict,
    ServerError.TransactionNotFound: TransactionNotFound,
}


def error_for_code(code: int, about: str, message: str) -> PulsarError:
    """The error of a code, by its own class where it has one."""
    return CLASSES.get(code, PulsarError)(code, about, message)


class TransactionAborted(ClientError):
    """A transaction was aborted: a message or an ack of it failed, or it took too long."""


class ClosedError(ClientError):
    """The client, producer or consumer was closed."""


class QueueFull(ClientError):
    """`max_pending` messages wait for their receipts."""


class MessageTooLarge(ClientError):
    """The broker takes no message of that size; chunking would split it."""


class EndOfTopic(ClientError):
    """The topic was terminated, and all of it has been received."""


class BadMessage(ClientError):
    """Bytes that are no message; `validation_error` goes into their acknowledgement."""

    def __init__(self, validation_error: int, why: str) -> None:
        super().__init__(why)
        self.validation_error = validation_error
