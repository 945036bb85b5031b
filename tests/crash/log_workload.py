"""Kafka clients of a node in a `World`: idempotent producers, a reader, and a consumer group.

The producers resend unacked batches in order with the same sequence numbers; the reader follows the
high watermarks; the group commits its offsets. Acks and reads go into a ledger. `check` compares
the node with the ledger, after a start or at any other moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.crash.ledger import Ledger, Origin, Verdict, decode
from tests.waiting import pass_time
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import build_batch, check_crc, iter_records
from trilogue.entry.walk import walk_headers
from trilogue.log.clock import wall_clock_ms
from trilogue.log.partition_log import SegmentSlice
from trilogue.log.segments.manifest import MANIFEST_NAME
from trilogue.log.segments.sealed import SealedLog
from trilogue.node.node import Node

COMPACT = "newest"
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "kept": (3, {"retention.ms": "-1"}),
    "worn": (1, {"retention.ms": "15000"}),
    COMPACT: (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"}),
}
KEYS = 5
RUN = b"rehearse"
ONLY_WORN = range(100, 140)  # some segments hold nothing else, and go as a whole
PASSING = "passing"  # a topic that is made, written to and deleted
GROUP = "followers"
BEFORE_FLUSH = 120  # batches of a backlog
FILES = 5  # of it in one flush: more than one job had when their number was the bound
SIZES = (60, 120, 300, 1_200, 9_000)
CODECS = (Codec.NONE, Codec.NONE, Codec.LZ4)

Place = tuple[str, int]  # topic, partition
Reads = list[tuple[int, bytes | None]]


class Sent(NamedTuple):
    """A batch that may have to be sent again; `count` messages from `sequence` on."""

    place: Place
    sequence: int
    count: int
    data: bytes
    origins: tuple[Origin, ...]


@dataclass
class Seen:
    """The range of offsets that the reader has seen of a partition."""

    start: int = 0
    end: int = 0


class LogWorkload:
    """All clients of the node; `script` continues their work in each life of the node."""

    def __init__(self, seed: int = 1, messages: int = 300) -> None:
        self.random = Random(seed)
        self.topics = TOPICS
        self.ledger = Ledger(RUN)
        self.messages = messages
        self.failed = False  # whether something was refused in this life
        self.written = 0  # batches sent for the first time
        self.unacked: deque[Sent] = deque()
        self.producer_ids: dict[Place, int] = {}
        self.seen: dict[Place, Seen] = {}
        self.committed: dict[Place, int] = {}
        self.numbers = {place: number for number, place in enumerate(places())}

    # -- what the clients do --------------------------------------------------------------------

    async def script(self, node: Node) -> None:
        """Check the node, resend what was not acked, and send the remaining batches."""
        self.failed = False
        await self.make_topics(node)
        self.check(node)
        for sent in list(self.unacked):
            self.send(node, sent)
        await durable(node)
        while self.written < self.messages:
            await self.act(node)
        await durable(node)
        assert not self.unacked
        await pass_time(20)  # retention, merges, files that go
        self.follow(node)
        self.check(node)

    async def act(self, node: Node) -> None:
        """Send one batch, and at some numbers do more; the batch number alone decides what."""
        number = self.written
        self.send(node, self.next_batch(node))
        if number % 3 == 0 or len(self.unacked) >= 5:  # no client has more in flight
            await durable(node)
        if number % 7 == 0:
            self.follow(node)
        if number % 11 == 0:
            await pass_time(1.0)
        if number % 20 == 0:
            await self.commit(node)
        if number in {60, 180}:
            await self.let_a_topic_pass(node)

    def next_batch(self, node: Node) -> Sent:
        """Build the next batch; its content depends on its number alone."""
        number = self.written
        self.written += 1
        chance = Random(number)
        place = ("worn", 0) if number in ONLY_WORN else chance.choice(places())
        count = chance.choice((1, 1, 2, 5))
        made = [
            self.ledger.next_value(1, self.numbers[place], self.size(chance)) for _ in range(count)
        ]
        sequence = made[0][0].sequence
        now = wall_clock_ms()
        records = [
            Record(at, now + at, f"key {(sequence + at) % KEYS}".encode(), value)
            for at, (_, value) in enumerate(made)
        ]
        data = build_batch(
            records,
            codec=chance.choice(CODECS),
            producer_id=self.producer_of(node, place),
            producer_epoch=0,
            base_sequence=sequence,
        )
        sent = Sent(place, sequence, count, data, tuple(origin for origin, _ in made))
        self.unacked.append(sent)
        return sent

    def size(self, chance: Random) -> int:
        return chance.choice(SIZES)

    def producer_of(self, node: Node, place: Place) -> int:
        if place not in self.producer_ids:
            self.producer_ids[place] = node.storage.broker.init_producer_id().producer_id
        return self.producer_ids[place]

    def send(self, node: Node, sent: Sent) -> None:
        """Append the batch, and record its acks in the ledger once it is durable."""
        partition = partition_of(node, sent.place)
        appended = partition.append(memoryview(sent.data), now_ms=wall_clock_ms())

        def record_acks(error: BaseException | None) -> None:
            self.failed = self.failed or error is not None
            if self.failed:
                assert error is not None, "acked after an error"
                return
            assert self.unacked.popleft() is sent, "acks come in order"
            for at, origin in enumerate(sent.origins):
                self.ledger.ack(origin, appended.base_offset + at)

        node.storage.log.journal.on_commit(record_acks)

    async def make_topics(self, node: Node) -> None:
        for name, (count, settings) in self.topics.items():
            if node.storage.broker.cluster.find_topic(parse_kafka(name)) is None:
                assert not self.written, f"topic {name} is gone"
                await make_topic(node, name, count, settings)

    async def let_a_topic_pass(self, node: Node) -> None:
        """Create a topic, append to it and delete it; or delete the one of an earlier life."""
        cluster = node.storage.broker.cluster
        if cluster.find_topic(parse_kafka(PASSING)) is None:
            topic = await make_topic(node, PASSING, 1, {})
            batch = build_batch([Record(0, 1, None, b"soon gone")])
            topic.partitions[0].append(memoryview(batch), now_ms=wall_clock_ms())
            await durable(node)
        await node.metadata_writer.write(cluster.plan_delete(parse_kafka(PASSING)))

    def follow(self, node: Node) -> None:
        """Read the new messages of each partition into the ledger."""
        for place in places():
            log = partition_of(node, place).log
            seen = self.seen.setdefault(place, Seen())
            for offset, value in read(log, max(seen.end, log.start_offset)):
                self.ledger.saw(self.numbers[place], offset, value)
            seen.start = max(seen.start, log.start_offset)
            seen.end = max(seen.end, log.high_watermark)

    async def commit(self, node: Node) -> None:
        """Commit the end of what was read as the group's offsets, and wait until it is durable."""
        moves = {place: seen.end for place, seen in self.seen.items()}
        ids = {partition_of(node, place).partition_id: place for place in moves}
        promise = node.storage.broker.commit(
            Protocol.KAFKA,
            GROUP,
            [CursorMove(each, moves[place]) for each, place in ids.items()],
        )
        await durable(node)
        assert promise.error is None
        self.committed.update(moves)

    # -- what must hold --------------------------------------------------------------------

    def check_coverage(self, events: Counter[str]) -> None:
        """After a whole life: all background work has run."""
        work = ("flush.done", "merge.done", "compaction.done", "retention.moved", "segment.removed")
        assert all(events[each] >= 5 for each in work), events

    def check(self, node: Node) -> None:
        """No acked or read message is lost, and no message is stored that was not sent."""
        verdict = self.verdict(node)
        assert verdict.bad == {}, verdict.examples
        for place, seen in self.seen.items():
            log = partition_of(node, place).log
            assert log.start_offset >= seen.start, "a start offset moved backwards"
            assert log.high_watermark >= seen.end, "a high watermark moved backwards"
        for place, offset in self.committed.items():
            partition_id = partition_of(node, place).partition_id
            found = node.storage.broker.committed_offsets.position(
                Protocol.KAFKA, GROUP, partition_id
            )
            assert found is not None, "a committed offset is lost"
            assert found.mark >= offset, "a committed offset moved backwards"
        storage = node.storage
        for segment in storage.meta.state.segments.values():
            path = storage.directory.segments / segment.name
            assert segment.store or storage.fs.exists(path), f"meta names {path}"
        if storage.fs.exists(storage.directory.segments / MANIFEST_NAME):
            self.check_sealed(node)

    def check_sealed(self, node: Node) -> None:
        """A reader by the manifest, even an old one, finds what it lists and no more."""
        sealed = SealedLog(node.storage.directory.path, files=node.storage.fs)
        for place in places():
            log = partition_of(node, place).log
            if log.partition_id not in sealed.manifest.partitions:
                continue
            start, end = sealed.range_of(log.partition_id)
            assert start <= log.start_offset
            assert end <= log.high_watermark
            found = dict(
                pair for data in sealed.read(log.partition_id) for pair in records_of(data, start)
            )
            now = {offset: value for offset, value in read(log) if offset < end}
            assert now.items() <= found.items()
            assert place[0] == COMPACT or not found.keys() - now.keys() - {*range(log.start_offset)}
        sealed.close()

    def verdict(self, node: Node) -> Verdict:
        """Compare everything that the node has with the ledger."""
        found = {}
        for place in places():
            log = partition_of(node, place).log
            found[self.numbers[place]] = log.start_offset, list(read(log))
        return self.judge(found)

    def judge(self, found: dict[int, tuple[int, Reads]]) -> Verdict:
        """Compare; a message removed by retention or by compaction is not lost."""
        compact = self.numbers[COMPACT, 0]
        newest = self.newest(found[compact][1])

        def may_go(partition: int, offset: int, origin: Origin | None) -> bool:
            if offset < found[partition][0]:
                return True
            if partition != compact or origin is None:
                return False
            return origin.sequence < newest.get(origin.sequence % KEYS, -1)

        judged = Ledger(self.ledger.run)
        judged.sent = self.ledger.sent
        judged.acked = {
            origin: offset
            for origin, offset in self.ledger.acked.items()
            if not may_go(origin.partition, offset, origin)
        }
        judged.tailed = {
            (partition, offset): origin
            for (partition, offset), origin in self.ledger.tailed.items()
            if not may_go(partition, offset, origin)
        }
        return judged.verdict({number: reads for number, (_, reads) in found.items()})

    def newest(self, reads: Reads) -> dict[int, int]:
        """The last stored sequence of each key."""
        found = [decode(self.ledger.run, value) for _, value in reads]
        return {each.sequence % KEYS: each.sequence for each in found if each is not None}


def places() -> list[Place]:
    return [(name, number) for name, (count, _) in TOPICS.items() for number in range(count)]


def partition_of(node: Node, place: Place) -> Partition:
    return node.storage.broker.cluster.topic(parse_kafka(place[0])).partition(place[1])


async def make_topic(node: Node, name: str, count: int, settings: dict[str, str]) -> Topic:
    cluster = node.storage.broker.cluster
    planned = cluster.check_create(parse_kafka(name), partition_count=count, settings=settings)
    return await node.metadata_writer.write(cluster.plan_create(planned))


async def durable(node: Node) -> None:
    """Wait until everything appended so far is durable."""
    done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    node.storage.log.journal.on_commit(done.set_result)
    error = await done
    if error is not None:
        raise error


def read(log: object, offset: int | None = None) -> Iterator[tuple[int, bytes | None]]:
    """Yield all messages from an offset (default: the start) up to the high watermark."""
    offset = log.start_offset if offset is None else offset
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20)
        data = (
            found.run() if isinstance(found, SegmentSlice) else memoryview(b"".join(found.slices))
        )
        assert data, f"nothing to read at {offset}, below {log.high_watermark}"
        yield from records_of(data, offset)
        *_, (_, _, base, delta, *_) = walk_headers(data)
        offset = base + delta + 1


def records_of(data: memoryview, first: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the messages of whole entries from an offset on, after a check of each checksum."""
    for at, length, *_ in walk_headers(data):
        entry = data[at : at + length]
        check_crc(entry)
        for record in iter_records(entry):
            if record.offset >= first:
                yield record.offset, record.value


class BacklogWorkload(LogWorkload):
    """Sends much before the first flush, and a little after it: one job takes many journal files.

    So it is when a node recovers the journal of one that could not flush for a while.
    """

    def __init__(self) -> None:
        super().__init__(messages=BEFORE_FLUSH + 10)
        self.largest = 0  # files in one flush

    async def act(self, node: Node) -> None:
        """Hold the flush at the first batch, and let it go when there are many files."""
        number = self.written
        if number == 0:
            self._gate = asyncio.Event()
            node.flusher._room = self._gate.wait  # type: ignore[assignment]
        await super().act(node)
        if number + 1 == BEFORE_FLUSH:
            await durable(node)
            before, waiting = node.flusher.counts.flushes, node.flusher.waiting
            self._gate.set()
            while node.flusher.waiting:
                await pass_time(0.1)
            self.largest = waiting // max(1, node.flusher.counts.flushes - before)

    def check_coverage(self, events: Counter[str]) -> None:
        """Many files were flushed by one job."""
        assert self.largest >= FILES
        assert events["flush.done"] >= 2
