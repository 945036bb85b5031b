"""What waits to be sent: partition -> a queue of batches (seed 003, RecordAccumulator).

The last batch of a queue takes records until it is full; whoever sends takes the first one that is
ready. Knows nothing of nodes and connections; time comes in as an argument.

The order of a partition's messages is kept whatever fails. A batch that comes back goes to its old
place, and is sent again only when nothing else of its partition is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from trilogue.client.kafka.batch import (
    NO_SEQUENCE,
    NOBODY,
    Batch,
    Draft,
    Identity,
    Sent,
)
from trilogue.client.kafka.options import ProducerOptions
from trilogue.client.kafka.room import Room
from trilogue.entry.entry import HEADER_SIZE

_SEQUENCES: Final = 1 << 31
LAST_EPOCH: Final = 32767


class Queue:
    """The batches of one partition, in order, and under which numbers they are sent."""

    __slots__ = (
        "batches", "identity", "in_flight", "is_idempotent", "newest", "next_sequence", "open",
        "partition", "renumber", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.is_idempotent = is_idempotent
        self.batches: deque[Batch] = deque()
        """Not sent yet, or to be sent again."""
        self.open: Batch | None = None
        """The last of them, while it takes records."""
        self.in_flight: list[Batch] = []
        self.identity = NOBODY
        self.next_sequence = 0
        self.renumber = False
        """The server has lost count: begin a new epoch when nothing is under way (KIP-360)."""
        self.newest = 0
        """The place of the batch added last."""

    def add(self, batch: Batch) -> None:
        """A new batch behind all others."""
        self.newest += 1
        batch.place = (self.newest,)
        self.batches.append(batch)
        self.open = batch

    def is_ready(self, now: float, in_flight_max: int, *, hurry: bool) -> bool:
        """Whether a batch may be sent now."""
        if not self.batches:
            return False
        first = self.batches[0]
        if first.attempts or self.renumber:
            return not self.in_flight and first.not_before <= now
        if first is self.open and first.due_at > now and not hurry:
            return False
        return len(self.in_flight) < (in_flight_max if self.is_idempotent else 1)

    def take(self, identity: Identity, codec: int) -> Batch:
        """The first batch, ready to be sent."""
        fresh = not self.in_flight and self.batches[0].sequence == NO_SEQUENCE
        if self.renumber or (fresh and self.identity.producer_id != identity.producer_id):
            self._begin_anew(identity)
        batch = self.batches.popleft()
        if batch is self.open:
            self.open = None
        if batch.sequence == NO_SEQUENCE and self.is_idempotent:
            batch.identity, batch.sequence = self.identity, self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES
            batch.seal(codec)
        elif batch.data is None:
            batch.seal(codec)
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def _begin_anew(self, identity: Identity) -> None:
        """Count from 0 in an epoch that the server has not seen: what was sent is not stored."""
        if self.identity.producer_id == identity.producer_id:
            self.identity = Identity(identity.producer_id, self.identity.epoch + 1)
        else:
            self.identity = identity
        self.renumber = False
        self.next_sequence = 0
        for batch in self.batches:
            batch.sequence = NO_SEQUENCE

    def has_used_up(self, identity: Identity) -> bool:
        """Whether a producer id has no epoch left for it."""
        used = self.renumber and self.identity.epoch >= LAST_EPOCH
        return used and self.identity.producer_id == identity.producer_id

    def back(self, batch: Batch) -> None:
        """A batch that was under way is to be sent again, before all that come behind it."""
        self.in_flight.remove(batch)
        at = 0
        while at < len(self.batches) and self.batches[at].place < batch.place:
            at += 1
        self.batches.insert(at, batch)

    def is_first(self, batch: Batch) -> bool:
        """Whether no batch before this one waits for its fate."""
        others = [*self.in_flight, *self.batches]
        return all(other.place >= batch.place for other in others)


class Accumulator:
    """Queues by partition, in bounded memory."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self.room = Room(options.max_memory_bytes)
        self.queues: dict[tuple[str, int], Queue] = {}
        self.is_idempotent = options.is_idempotent
        self._aging: deque[Batch] = deque()
        """Batches by age: lingering and expiring take the same time for all."""
        self._lingering: deque[tuple[Batch, Queue]] = deque()

    def queue(self, topic: str, partition: int) -> Queue:
        """The queue of a partition."""
        found = self.queues.get((topic, partition))
        if found is None:
            found = Queue(topic, partition, is_idempotent=self.is_idempotent)
            self.queues[topic, partition] = found
        return found

    def append(self, queue: Queue, draft: Draft, now: float) -> tuple[asyncio.Future[Sent], bool]:
        """Add a record for which room was taken; its future, and whether a batch is full."""
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        batch = queue.open
        full = False
        limit = self._options.batch_bytes
        if batch is not None and batch.size + draft.size > limit:
            batch, full = None, True
        if batch is None:
            options = self._options
            batch = Batch(
                queue.topic,
                queue.partition,
                now + options.linger_s,
                now + options.delivery_timeout_s,
            )
            batch.append(draft, future)  # what cannot be packed leaves no batch behind
            queue.add(batch)
            self._aging.append(batch)
            if options.linger_s:
                self._lingering.append((batch, queue))
        else:
            batch.append(draft, future)
        if batch.size >= limit:
            queue.open = None
            full = True
        return future, full

    def ripe(self, now: float) -> Iterator[Queue]:
        """Queues whose batches have lingered enough, once each."""
        while self._lingering:
            batch, queue = self._lingering[0]
            if batch is queue.open and batch.due_at > now:
                return
            self._lingering.popleft()
            yield queue

    @property
    def next_ripe(self) -> float | None:
        """When the next batch has lingered enough."""
        while self._lingering and self._lingering[0][0] is not self._lingering[0][1].open:
            self._lingering.popleft()
        return self._lingering[0][0].due_at if self._lingering else None

    def expired(self, now: float) -> Iterator[tuple[Queue, Batch]]:
        """Batches that nobody sent in time; they leave their queues."""
        while self._aging:
            batch = self._aging[0]
            if not batch.is_settled:
                if batch.expires_at > now:
                    return
                queue = self.queues[batch.topic, batch.partition]
                if batch in queue.batches:
                    queue.batches.remove(batch)
                    if batch is queue.open:
                        queue.open = None
                    yield queue, batch
                # One under way has its answer, or its connection lost, before long.
            self._aging.popleft()

    @property
    def next_expiry(self) -> float | None:
        """When the next batch expires."""
        while self._aging and self._aging[0].is_settled:
            self._aging.popleft()
        return self._aging[0].expires_at if self._aging else None

    def unsettled(self, through: Mapping[Queue, int]) -> list[Batch]:
        """Batches of queues whose fate is not known, up to a place in each."""
        return [
            batch
            for queue, newest in through.items()
            for batch in (*queue.in_flight, *queue.batches)
            if batch.place[0] <= newest
        ]

    def split(self, queue: Queue, batch: Batch) -> None:
        """A batch that was under way is too large for the server: its halves take its place."""
        # What was counted behind it was refused, too; what is before it keeps its numbers.
        queue.renumber = queue.renumber or (queue.is_idempotent and queue.is_first(batch))
        queue.in_flight.remove(batch)
        at = sum(1 for other in queue.batches if other.place < batch.place)
        for half in reversed(batch.halves()):
            queue.batches.insert(at, half)
            self._aging.appendleft(half)

    def settled(self, batch: Batch) -> None:
        """A batch's fate is known: its memory is free again."""
        self.room.give(batch.size - HEADER_SIZE)
