"""What can go wrong for a Kafka client, by name: the servers' refusals and its own."""

from __future__ import annotations

from trilogue.client.errors import ClientError, ServerRefused
from trilogue.wire.kafka.errors import ErrorCode


class KafkaError(ServerRefused):
    """A server answered with an error code; `error` is the code by name."""

    def __init__(self, code: int, about: str, message: str | None = None) -> None:
        self.error = ErrorCode.of(code)
        super().__init__(
            code,
            self.error.name,
            f"{about}: {message}" if message else about,
            retriable=self.error.retriable,
        )
        self.message = message or ""
        """What the server said besides."""


class ClosedError(ClientError):
    """The client, producer or consumer was closed."""


class TimedOut(ClientError):
    """It did not happen in time; whether it happens later is not known."""


class QueueFull(ClientError):
    """So much waits to be sent that no more is taken now."""


class MessageTooLarge(ClientError):
    """A message is larger than a request may be."""


class NoPosition(ClientError):
    """A partition has no position to read from, and the options name none."""


class OffsetOutOfRange(NoPosition):
    """A partition no longer has (or never had) the position, and the options name no other."""


def error_of(code: int, about: str, message: str | None = None) -> KafkaError | None:
    """What an error code says; None where it says nothing."""
    return KafkaError(code, about, message) if code else None


def refuse(code: int, about: str, message: str | None = None) -> None:
    """Raise what a non-zero error code says."""
    if code:
        raise KafkaError(code, about, message)
