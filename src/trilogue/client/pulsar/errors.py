"""What can go wrong for a Pulsar client, by name: the broker's refusals and its own."""

from __future__ import annotations

from trilogue.client.errors import ClientError, ServerRefused
from trilogue.wire.pulsar.errors import ServerError

ASK_AGAIN = frozenset(
    {
        ServerError.UnknownError,
        ServerError.MetadataError,
        ServerError.PersistenceError,
        ServerError.ServiceNotReady,
        ServerError.TooManyRequests,
    }
)
"""Refusals that say nothing of the request: another moment, or another broker, may grant it."""
BUSY = frozenset(
    {
        ServerError.ConsumerBusy,
        ServerError.ProducerBusy,
        ServerError.ProducerBlockedQuotaExceededError,
    }
)
"""Refusals that pass for one who was there before: the broker may not know yet that he went."""


class PulsarError(ServerRefused):
    """The broker said no; `error` is its code, by name."""

    def __init__(self, code: int, about: str, message: str) -> None:
        known = code in ServerError.__members__.values()
        self.error = ServerError(code) if known else ServerError.UnknownError
        super().__init__(
            code,
            self.error.name,
            f"{about}: {message}" if message else about,
            retriable=self.error in ASK_AGAIN,
        )


class ClosedError(ClientError):
    """The client, producer or consumer was closed."""


class TimedOut(ClientError):
    """There was no answer, or no message, in time."""


class QueueFull(ClientError):
    """So many messages wait for their receipts that no more are taken now."""


class MessageTooLarge(ClientError):
    """The broker takes no message of that size; chunking would split it."""


class EndOfTopic(ClientError):
    """The topic was terminated, and all of it has been received."""


class BadMessage(ClientError):
    """Bytes that are no message. `validation_error` is what the broker is told when it is acked."""

    def __init__(self, validation_error: int, why: str) -> None:
        super().__init__(why)
        self.validation_error = validation_error
