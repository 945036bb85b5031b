"""Records that wait to be sent, in one queue of batches per partition (Java: RecordAccumulator).

The last batch of a queue takes records until it is full; the sender takes the first one that is
ready. Knows nothing of nodes and connections; time comes in as an argument.

The order of a partition's messages is kept whatever fails. A batch that comes back goes to its old
place, and is sent again only when nothing else of its partition is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from trilogue.client.kafka.options import ProducerOptions
from trilogue.client.kafka.producer.batch import (
    NO_IDENTITY,
    NO_SEQUENCE,
    Completion,
    ProducerBatch,
    ProducerIdentity,
    RecordDraft,
)
from trilogue.client.kafka.producer.buffer_pool import BufferPool
from trilogue.entry.entry import TRANSACTIONAL
from trilogue.entry.header import HEADER_SIZE

_SEQUENCES: Final = 1 << 31
LAST_EPOCH: Final = 32767


class PartitionQueue:
    """The batches of one partition in order, with its producer id and sequence numbers."""

    __slots__ = (
        "batches", "identity", "in_flight", "is_idempotent", "newest", "next_sequence", "open",
        "partition", "renumber", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.is_idempotent = is_idempotent
        self.batches: deque[ProducerBatch] = deque()
        """Not sent yet, or to be sent again."""
        self.open: ProducerBatch | None = None
        """The last of them, while it takes records."""
        self.in_flight: list[ProducerBatch] = []
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.renumber = False
        """The server has lost count: begin a new epoch when nothing is under way (KIP-360)."""
        self.newest = 0
        """The place of the batch added last."""

    def add(self, batch: ProducerBatch) -> None:
        """A new batch behind all others."""
        self.newest += 1
        batch.place = (self.newest,)
        self.batches.append(batch)
        self.open = batch

    def is_ready(self, now: float, in_flight_max: int, *, flushes: bool) -> bool:
        """Whether a batch may be sent now."""
        if not self.batches:
            return False
        first = self.batches[0]
        if first.attempts or self.renumber:
            return not self.in_flight and first.not_before <= now
        if first is self.open and first.due_at > now and not flushes:
            return False
        return len(self.in_flight) < (in_flight_max if self.is_idempotent else 1)

    def take_batch(self, identity: ProducerIdentity, codec: int) -> ProducerBatch:
        """The first batch, ready to be sent."""
        fresh = not self.in_flight and self.batches[0].sequence == NO_SEQUENCE
        if self.renumber or (fresh and self.identity.producer_id != identity.producer_id):
            self._begin_epoch(identity)
        batch = self.batches.popleft()
        if batch is self.open:
            self.open = None
        self.in_flight.append(batch)  # before it can fail: its owner finds it there
        batch.attempts += 1
        if batch.sequence == NO_SEQUENCE and self.is_idempotent:
            batch.identity, batch.sequence = self.identity, self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES
            batch.seal(codec)
        elif batch.data is None:
            batch.seal(codec)
        return batch

    def _begin_epoch(self, identity: ProducerIdentity) -> None:
        """Count from 0 in an epoch that the server has not seen: what was sent is not stored."""
        if self.identity.producer_id == identity.producer_id:
            self.identity = ProducerIdentity(identity.producer_id, self.identity.epoch + 1)
        else:
            self.identity = identity
        self.renumber = False
        self.next_sequence = 0
        for batch in self.batches:
            batch.sequence = NO_SEQUENCE

    def has_exhausted(self, identity: ProducerIdentity) -> bool:
        """Whether a producer id has no epoch left for it."""
        used = self.renumber and self.identity.epoch >= LAST_EPOCH
        return used and self.identity.producer_id == identity.producer_id

    def requeue(self, batch: ProducerBatch) -> None:
        """A batch that was under way is to be sent again, before all that come behind it."""
        self.in_flight.remove(batch)
        at = 0
        while at < len(self.batches) and self.batches[at].place < batch.place:
            at += 1
        self.batches.insert(at, batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no batch before this one waits for its fate."""
        others = [*self.in_flight, *self.batches]
        return all(other.place >= batch.place for other in others)


class Accumulator:
    """Queues by partition, in bounded memory."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self.memory = BufferPool(options.max_memory_bytes)
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.is_idempotent = options.is_idempotent
        self._aging: deque[ProducerBatch] = deque()
        """Batches by age: lingering and expiring take the same time for all."""
        self._lingering: deque[tuple[ProducerBatch, PartitionQueue]] = deque()

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition."""
        found = self.queues.get((topic, partition))
        if found is None:
            found = PartitionQueue(topic, partition, is_idempotent=self.is_idempotent)
            self.queues[topic, partition] = found
        return found

    def append(
        self, queue: PartitionQueue, draft: RecordDraft, completion: Completion, now: float
    ) -> bool:
        """Add a record for which room was taken; return whether a batch is full."""
        batch = queue.open
        full = False
        limit = self._options.batch_bytes
        if batch is not None and batch.size + draft.size > limit:
            batch, full = None, True
        if batch is None:
            options = self._options
            batch = ProducerBatch(
                queue.topic,
                queue.partition,
                now + options.linger_s,
                now + options.delivery_timeout_s,
                0 if options.transactional_id is None else TRANSACTIONAL,
            )
            batch.append(draft, completion)  # what cannot be packed leaves no batch behind
            queue.add(batch)
            self._aging.append(batch)
            if options.linger_s:
                self._lingering.append((batch, queue))
        else:
            batch.append(draft, completion)
        if batch.size >= limit:
            queue.open = None
            full = True
        return full

    def lingered(self, now: float) -> Iterator[PartitionQueue]:
        """Queues whose batches have lingered enough, once each."""
        while self._lingering:
            batch, queue = self._lingering[0]
            if batch is queue.open and batch.due_at > now:
                return
            self._lingering.popleft()
            yield queue

    @property
    def next_linger_end(self) -> float | None:
        """When the next batch has lingered enough."""
        while self._lingering and self._lingering[0][0] is not self._lingering[0][1].open:
            self._lingering.popleft()
        return self._lingering[0][0].due_at if self._lingering else None

    def expired(self, now: float) -> Iterator[tuple[PartitionQueue, ProducerBatch]]:
        """Batches whose delivery time-out is over; those that wait leave their queues.

        A batch in flight stays in its queue: what follows it must not overtake it.
        """
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
            self._aging.popleft()

    @property
    def next_expiry(self) -> float | None:
        """When the next batch expires."""
        while self._aging and self._aging[0].is_settled:
            self._aging.popleft()
        return self._aging[0].expires_at if self._aging else None

    def unsettled(self, through: Mapping[PartitionQueue, int]) -> list[ProducerBatch]:
        """Batches of queues whose fate is not known, up to a place in each."""
        return [
            batch
            for queue, newest in through.items()
            for batch in (*queue.in_flight, *queue.batches)
            if batch.place[0] <= newest and not batch.is_settled
        ]

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch that was under way is too large for the server: its halves take its place."""
        # What was counted behind it was refused, too; what is before it keeps its numbers.
        queue.renumber = queue.renumber or (queue.is_idempotent and queue.is_first(batch))
        queue.in_flight.remove(batch)
        at = sum(1 for other in queue.batches if other.place < batch.place)
        for half in reversed(batch.split()):
            queue.batches.insert(at, half)
            self._aging.appendleft(half)

    def release(self, batch: ProducerBatch) -> None:
        """A batch's fate is known: its memory is free again."""
        self.memory.release(batch.size - HEADER_SIZE)
