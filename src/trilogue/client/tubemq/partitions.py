"""The partitions that a consumer holds, and which of them may be asked for messages now.

         register                 ask                      hand out
    (none) ----> idle ---------------------> asked ------> full ---------> in hand
                  ^ ready_at, paused           |  nothing                     |
                  |                            v  there                       |
                  +----------------------------+<----- (confirming) <---------+
                                                   confirmed, rolled back, time over

One get at a time for each partition (wire fact), and one pack of messages between the broker and
the application's confirmation. Whoever waited longest is asked first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from trilogue.client.pool import Address
from trilogue.client.tubemq.metadata import Place

if TYPE_CHECKING:
    from trilogue.client.tubemq.message import Batch


class State(Enum):
    """Where the messages of a partition are."""

    IDLE = "idle"
    ASKED = "asked"
    FULL = "full"
    IN_HAND = "in hand"
    CONFIRMING = "confirming"


@dataclass(slots=True, eq=False)
class Held:
    """A partition that this consumer is registered for at its broker."""

    place: Place
    filters: frozenset[str]
    offset: int = -1
    """Where the last get began, or where the broker says the group is."""
    max_offset: int = -1
    unread: int = -1
    """Bytes behind the last get (currDataDlt); -1 where the broker did not say."""
    consumed: bool = False
    """Whether the last pack was consumed: the next get, or the end, says so."""
    state: State = State.IDLE
    ready_at: float = 0.0
    asked_at: float = 0.0
    served: bool = False
    """Whether its broker has answered a get since it was registered."""
    unheard: int = 0
    """Heartbeats to its broker that found nobody, one after the other."""
    paused: bool = False
    batch: Batch | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> str:
        """The partition's key."""
        return self.place.key

    def release(self, *, consumed: bool, ready_at: float = 0.0) -> None:
        """Have it asked again, not before a time."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer, self.batch, self.state = None, None, State.IDLE
        self.consumed, self.ready_at = consumed, ready_at


class Offsets(NamedTuple):
    """Where a group is in a partition, as far as its broker said."""

    current: int
    maximum: int
    unread_bytes: int


class Holding:
    """All partitions of one consumer, by key."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def get(self, key: str) -> Held | None:
        """The partition of a key, if it is held."""
        return self._held.get(key)

    def all(self) -> list[Held]:
        """All of them."""
        return list(self._held.values())

    def at(self, address: Address) -> list[Held]:
        """Those of one broker."""
        return [held for held in self._held.values() if held.place.address == address]

    def by_broker(self) -> dict[Address, list[Held]]:
        """All of them by the address of their broker."""
        found: dict[Address, list[Held]] = {}
        for held in self._held.values():
            found.setdefault(held.place.address, []).append(held)
        return found

    def add(self, held: Held) -> None:
        """Hold one more."""
        self._held[held.key] = held

    def drop(self, held: Held) -> bool:
        """Hold it no more; whether it was held."""
        if self._held.get(held.key) is not held:
            return False
        del self._held[held.key]
        held.release(consumed=False)
        return True

    def busy(self) -> int:
        """How many were asked, or have messages that nobody took."""
        return sum(held.state in {State.ASKED, State.FULL} for held in self._held.values())

    def next(self, now: float) -> Held | None:
        """The one to be asked now, if any."""
        ready = [held for held in self._idle() if held.ready_at <= now]
        return min(ready, key=lambda held: held.asked_at, default=None)

    def next_at(self) -> float | None:
        """When one is to be asked at the earliest."""
        return min((held.ready_at for held in self._idle()), default=None)

    def _idle(self) -> Iterable[Held]:
        return (
            held for held in self._held.values() if held.state is State.IDLE and not held.paused
        )
