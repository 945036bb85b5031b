"""The errors of the TubeMQ client.

Refusals carry `err_code` and `err_msg`, also where the client itself refuses.
"""

from __future__ import annotations

from typing import Final

from trilogue.client.errors import ClientError, ServerRefused, TimedOut
from trilogue.wire.tubemq.errors import STANDBY, WRONG_SERVICE, TubeCode, plain_name

__all__ = [
    "BadFrame",
    "ClosedError",
    "NoMessage",
    "NotMaster",
    "QueueFull",
    "RemoteFailure",
    "StandbyError",
    "TimedOut",
    "TubeError",
    "UnknownEvent",
]
MISSING_TOPIC: Final = "create the topic, or check its name"
NO_LOGIN: Final = "check the user and the password (`trilogue users` on the server)"
NO_RIGHT: Final = "an administrator has to allow it to your user"
NO_GROUP: Final = "an administrator has to let this group read the topic, or use another group"
DENIED: Final = " is denied"  # the end of a server's text about a right that is missing
RETRIABLE_CODES: Final = frozenset(
    {
        TubeCode.NOT_READY,
        TubeCode.MOVED,
        TubeCode.NOT_FOUND,
        TubeCode.ALL_PARTITIONS_WAITING,
        TubeCode.SERVER_RECEIVE_OVERFLOW,
        TubeCode.CLIENT_TOO_OFTEN,
        TubeCode.CONSUME_SPEED_LIMIT,
        TubeCode.INTERNAL_ERROR,
        TubeCode.SERVICE_UNAVAILABLE,
        TubeCode.UNSPECIFIED,
    }
)
"""Errors that another attempt, or another broker, may not meet."""


class TubeError(ServerRefused):
    """A refusal: by a server, or by this client before the request."""

    def __init__(self, code: int, message: str, about: str) -> None:
        known = code in TubeCode.__members__.values()
        self.error = TubeCode(code) if known else TubeCode.UNSPECIFIED
        super().__init__(
            code,
            self.error.name,
            f"{about}: {message}" if message else about,
            retriable=self.error in RETRIABLE_CODES,
            advice=_advise(self.error, message),
        )
        self.err_msg = message

    @property
    def is_denied(self) -> bool:
        """Whether the user is known and lacks a right."""
        return self.error is TubeCode.CERTIFICATE_FAILURE and self.err_msg.endswith(DENIED)

    @property
    def err_code(self) -> int:
        """The number of the refusal, as on the wire."""
        return self.code


def _advise(error: TubeCode, message: str) -> str:
    """Return what the caller can do about a refusal, "" where that depends."""
    match error:
        case TubeCode.TOPIC_NOT_DEPLOYED:
            return MISSING_TOPIC
        case TubeCode.CERTIFICATE_FAILURE:
            return NO_RIGHT if message.endswith(DENIED) else NO_LOGIN
        case TubeCode.GROUP_FORBIDDEN:
            return NO_GROUP
        case _:
            return ""


class ClosedError(TubeError):
    """The client, producer or consumer was closed (420)."""

    def __init__(self, message: str) -> None:
        super().__init__(TubeCode.CLIENT_SHUT_DOWN, message, "closed")


class QueueFull(TubeError):
    """`max_pending` requests on one connection have no answer yet."""

    def __init__(self, message: str) -> None:
        super().__init__(TubeCode.CLIENT_TOO_OFTEN, message, "too many under way")


class NoMessage(TubeError, TimedOut):
    """No message in time: none at the broker (404), or no partition to read (405-408)."""

    def __init__(self, code: TubeCode, message: str) -> None:
        super().__init__(code, message, "get")


class BadFrame(ClientError):
    """A server sent bytes that are no frame or no answer (`BadFrames.RAISE`)."""


class UnknownEvent(ClientError):
    """A rebalance event of an unknown type."""


class RemoteFailure(ClientError):
    """A server failed with an exception: its class and its text."""

    def __init__(self, exception: str, text: str, about: str) -> None:
        super().__init__(f"{about}: {exception}: {text}")
        self.exception = exception
        self.text = text


class StandbyError(RemoteFailure):
    """The master is not the active one: the client turns to another."""


class NotMaster(RemoteFailure):
    """The server does not know the service of masters: it is a broker."""

    def __init__(self, exception: str, text: str, about: str) -> None:
        super().__init__(exception, f"{text} (a broker's port? a client needs a master's)", about)


def error_for_exception(exception: str, text: str, about: str) -> RemoteFailure:
    """What the name of a Java class, and the text of an unknown service, stand for."""
    if WRONG_SERVICE in text:
        return NotMaster(exception, text, about)
    kind = StandbyError if plain_name(exception) == STANDBY else RemoteFailure
    return kind(exception, text, about)
