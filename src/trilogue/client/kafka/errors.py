"""The errors of the Kafka client."""

from __future__ import annotations

from typing import Final

from trilogue.client.errors import ClientError, ConnectionLost, ServerRefused, TimedOut
from trilogue.wire.kafka.errors import ErrorCode

__all__ = [
    "ClosedError",
    "KafkaError",
    "MessageTooLarge",
    "NoPosition",
    "OffsetOutOfRange",
    "ProducerFenced",
    "QueueFull",
    "ResponseTooLarge",
    "TimedOut",
    "TransactionAborted",
]


MISSING_TOPIC: Final = (
    "there is no such topic: create it with admin.create_topic, or check the name with "
    "admin.list_topics"
)


class ResponseTooLarge(ConnectionLost):
    """A response began that is longer than this connection takes now."""


class KafkaError(ServerRefused):
    """A server answered with an error code; `error` is the code by name."""

    def __init__(
        self, code: int, about: str, message: str | None = None, *, advice: str = ""
    ) -> None:
        self.error = ErrorCode.of(code)
        super().__init__(
            code,
            self.error.name,
            f"{about}: {message}" if message else about,
            retriable=self.error.retriable,
            advice=advice,
        )
        self.message = message or ""
        """The message of the server."""


class AuthenticationFailed(ClientError):
    """The login failed: another attempt with the same credentials fails too."""


class ClosedError(ClientError):
    """The client, producer or consumer was closed."""


class ProducerFenced(KafkaError):
    """Another producer has the transactional id by now."""


class TransactionAborted(ClientError):
    """A transaction was aborted at its commit: one of its messages was not stored."""


class QueueFull(ClientError):
    """The memory of the producer is used up (`when_full="raise"`)."""


class MessageTooLarge(ClientError):
    """A message is larger than a request may be."""


class NoPosition(ClientError):
    """A partition has no committed offset, and `reset_to` is None."""


class OffsetOutOfRange(NoPosition):
    """The position is out of the range of the partition, and `reset_to` is None."""


def topic_error(code: int, topic: str) -> KafkaError:
    """The error of a topic; for a topic that does not exist, its message names the next step."""
    error = KafkaError(code, f"topic {topic}")
    if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(code, f"topic {topic}", advice=MISSING_TOPIC)
    return error


def error_for_code(code: int, about: str, message: str | None = None) -> KafkaError | None:
    """The error of a code; None for 0."""
    return KafkaError(code, about, message) if code else None


def raise_for_code(code: int, about: str, message: str | None = None) -> None:
    """Raise the error of a code other than 0."""
    if code:
        raise KafkaError(code, about, message)
