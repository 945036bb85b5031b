"""The partitions that a consumer holds, and which of them may be read now.

         register                 get                      hand out
    (none) ----> idle ---------------------> reading ----> full ---------> in hand
                  ^ ready_at, paused           |  nothing                     |
                  |                            v  there                       |
                  +----------------------------+<----- (confirming) <---------+
                                                   confirmed, rolled back, time over

One get at a time for each partition, and one pack of messages between the broker and
the application's confirmation. The partition that waited longest is read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trilogue.client.pool import Address
from trilogue.client.tubemq.broker_metadata import BrokerPartition
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.message import Message


class FetchState(Enum):
    """Where the messages of a partition are."""

    IDLE = "idle"
    READING = "reading"
    FULL = "full"
    IN_HAND = "in hand"
    CONFIRMING = "confirming"


@dataclass(slots=True, eq=False)
class PartitionState:
    """A partition that this consumer is registered for at its broker."""

    place: BrokerPartition
    filters: frozenset[str]
    offset: int = -1
    """The offset of the last get, or of the group at the broker."""
    max_offset: int = -1
    unread: int = -1
    """Bytes after the last get (currDataDlt); -1 where the broker does not report it."""
    consumed: bool = False
    """Whether the last batch was consumed: the next get, or the release, reports it."""
    state: FetchState = FetchState.IDLE
    ready_at: float = 0.0
    requested_at: float = 0.0
    served: bool = False
    """Whether its broker has answered a get since it was registered."""
    refusal: TubeError | None = None
    """Why its broker refused the last get; None after a get that it answered, or 404."""
    at_end: bool = False
    """Whether its broker has answered, since it was registered, that there is nothing more."""
    unheard: int = 0
    """Heartbeats in a row without a connection to the broker."""
    paused: bool = False
    batch: Batch | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> str:
        """The partition's key."""
        return self.place.key

    def release(self, *, consumed: bool, ready_at: float = 0.0) -> None:
        """Make it readable again at `ready_at`."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer, self.batch, self.state = None, None, FetchState.IDLE
        self.consumed, self.ready_at = consumed, ready_at


class Batch:
    """The messages of one get, to be confirmed or rolled back together."""

    __slots__ = ("held", "max_offset", "messages", "offset", "unread_bytes")

    def __init__(
        self,
        held: PartitionState,
        messages: list[Message],
        offset: int,
        max_offset: int,
        unread_bytes: int,
    ) -> None:
        self.held = held
        self.messages = messages
        self.offset = offset
        """Where the reading began."""
        self.max_offset = max_offset
        """Where the partition ends."""
        self.unread_bytes = unread_bytes
        """How much is still behind these messages."""

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"Batch({self.partition}, {len(self.messages)} messages from {self.offset})"

    @property
    def topic(self) -> str:
        """The topic they are from."""
        return self.held.place.topic

    @property
    def partition(self) -> str:
        """The key of the partition they are from: `brokerId:topic:partitionId`."""
        return self.held.key


class Offsets(NamedTuple):
    """The offsets of a group in a partition, as the broker last reported them."""

    current: int
    maximum: int
    unread_bytes: int


class HeldPartitions:
    """All partitions of one consumer, by key."""

    def __init__(self) -> None:
        self._held: dict[str, PartitionState] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def get(self, key: str) -> PartitionState | None:
        """The partition of a key, if it is held."""
        return self._held.get(key)

    def all(self) -> list[PartitionState]:
        """All of them."""
        return list(self._held.values())

    def at(self, address: Address) -> list[PartitionState]:
        """Those of one broker."""
        return [held for held in self._held.values() if held.place.address == address]

    def by_broker(self) -> dict[Address, list[PartitionState]]:
        """All of them by the address of their broker."""
        found: dict[Address, list[PartitionState]] = {}
        for held in self._held.values():
            found.setdefault(held.place.address, []).append(held)
        return found

    def add(self, held: PartitionState) -> None:
        """Hold one more."""
        self._held[held.key] = held

    def drop(self, held: PartitionState) -> bool:
        """Hold it no more; whether it was held."""
        if self._held.get(held.key) is not held:
            return False
        del self._held[held.key]
        held.release(consumed=False)
        return True

    def busy(self) -> int:
        """The number of partitions with a get in flight or a batch to hand out."""
        return sum(
            held.state in {FetchState.READING, FetchState.FULL} for held in self._held.values()
        )

    def next(self, now: float) -> PartitionState | None:
        """The partition to read now, if any."""
        ready = [held for held in self._idle() if held.ready_at <= now]
        return min(ready, key=lambda held: held.requested_at, default=None)

    def next_at(self) -> float | None:
        """When the next partition becomes readable."""
        return min((held.ready_at for held in self._idle()), default=None)

    def _idle(self) -> Iterable[PartitionState]:
        return (
            held
            for held in self._held.values()
            if held.state is FetchState.IDLE and not held.paused
        )
