"""What can go wrong for a TubeMQ client, by name: the servers' refusals and its own.

All that refuse carry `err_code` and `err_msg`, also where the client itself refused (seed 002:
errCode together with errMsg says why).
"""

from __future__ import annotations

from typing import Final

from trilogue.client.errors import ClientError, ServerRefused
from trilogue.wire.tubemq.errors import STANDBY, TubeCode, plain_name

PASSING: Final = frozenset(
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
"""Refusals that say nothing of the request: another moment, or another broker, may grant it."""


class TubeError(ServerRefused):
    """Somebody said no: a server in its answer, or this client before it asked."""

    def __init__(self, code: int, message: str, about: str) -> None:
        known = code in TubeCode.__members__.values()
        self.error = TubeCode(code) if known else TubeCode.UNSPECIFIED
        super().__init__(
            code,
            self.error.name,
            f"{about}: {message}" if message else about,
            retriable=self.error in PASSING,
        )
        self.err_msg = message

    @property
    def err_code(self) -> int:
        """The number of the refusal, as on the wire."""
        return self.code


class ClosedError(TubeError):
    """The client, producer or consumer was closed (420)."""

    def __init__(self, message: str) -> None:
        super().__init__(TubeCode.CLIENT_SHUT_DOWN, message, "closed")


class QueueFull(TubeError):
    """So many requests wait for their answers on one connection that no more are taken now."""

    def __init__(self, message: str) -> None:
        super().__init__(TubeCode.CLIENT_TOO_OFTEN, message, "too many under way")


class NoMessage(TubeError):
    """There was no message in time: nothing new (404), or nothing that could be asked (405-408)."""

    def __init__(self, code: TubeCode, message: str) -> None:
        super().__init__(code, message, "get")


class TimedOut(ClientError):
    """There was no answer in time."""


class BadFrame(ClientError):
    """A server sent bytes that are no frame or no answer (`BadFrames.RAISE`)."""


class UnknownEvent(ClientError):
    """A master wants something done in a rebalance that no client knows (seed 002, opType)."""


class RemoteFailure(ClientError):
    """A server could not deal with a request: the class of its exception, and its text."""

    def __init__(self, exception: str, text: str, about: str) -> None:
        super().__init__(f"{about}: {exception}: {text}")
        self.exception = exception
        self.text = text


class StandbyError(RemoteFailure):
    """The master is not the active one: another is to be asked."""


def failure_of(exception: str, text: str, about: str) -> RemoteFailure:
    """What the name of a Java class stands for."""
    kind = StandbyError if plain_name(exception) == STANDBY else RemoteFailure
    return kind(exception, text, about)
