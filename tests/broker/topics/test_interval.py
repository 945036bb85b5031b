"""Producers whose batches are acknowledged from memory, and crashes that lose the last of them.

What is lost is always the newest part of the log. A producer that lives goes on behind the gap; it
must hear of it (OutOfOrderSequence, as from Kafka), and nothing may be stored twice or in another
order, whatever it does then.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.broker.fakes import batch
from tests.broker.node_room import Node
from tests.sharing import seeds
from trilogue.broker.errors import DuplicateSequence, OutOfOrderSequence
from trilogue.broker.names import parse_kafka
from trilogue.broker.producers.idempotence import PENDING_MAX, WINDOW, Producers
from trilogue.broker.quotas.topic_rates import Rate
from trilogue.broker.topics.partition import AppendResult
from trilogue.broker.topics.policies import DEFAULT_POLICIES, Policies
from trilogue.entry.walk import read_header
from trilogue.log.partition_log import SegmentSlice

INTERVAL_S = 0.01
PRODUCER = 9


@pytest.fixture
def node() -> Node:
    node = Node(1)
    make_topic(node)
    return node


def make_topic(node: Node) -> None:
    cluster = node.broker.cluster
    new = cluster.check_create(
        parse_kafka("orders"), partition_count=1, settings={"flush": "interval"}
    )
    commit = cluster.plan_create(new)
    node.meta.write_now(commit.ops(), commit.preconditions)
    commit.apply()


def send(node: Node, sequence: int, *, epoch: int = 0, number: int = 0) -> AppendResult:
    records = batch(producer=(PRODUCER, epoch, sequence), timestamp=number)
    return node.partition(0).append(records, now_ms=node.loop.now_ms())


def pass_interval(node: Node) -> None:
    node.loop.pass_time(INTERVAL_S)
    node.loop.run()


def kill(node: Node) -> None:
    node.fs.kill()
    node.start()


def test_producer_that_continues_after_lost_batches_gets_out_of_order_sequence(node: Node):
    for sequence in range(3):
        send(node, sequence)
    pass_interval(node)
    for sequence in range(3, 6):
        send(node, sequence)

    kill(node)

    with pytest.raises(OutOfOrderSequence, match="sequence 6 came where 3 was expected"):
        send(node, 6)
    assert send(node, 2).duplicate, "that one was durable"
    assert send(node, 0, epoch=1).base_offset == 3, "the next epoch goes on"


def test_producer_without_durable_batches_starts_at_any_sequence(node: Node):
    """As in Kafka: an unknown producer may begin anywhere."""
    send(node, 0)

    kill(node)

    assert send(node, 1) == AppendResult(0, -1, duplicate=False, acks_from_memory=True)


def test_a_cut_knows_the_producer_as_far_as_the_disk_does(node: Node):
    """However many of its batches are not durable at that moment."""
    for sequence in range(20):
        send(node, sequence)
    pass_interval(node)
    for sequence in range(20, 40):
        send(node, sequence)
    node.log.seal()
    node.flush()
    assert node.meta.state.flushed_through == 1

    kill(node)

    for sequence in range(15, 20):
        assert send(node, sequence).base_offset == sequence, "one of the last five"
    with pytest.raises(DuplicateSequence):
        send(node, 3)
    with pytest.raises(OutOfOrderSequence):
        send(node, 40)
    assert send(node, 20).base_offset == 20


def test_producer_state_does_not_grow_with_durable_batches():
    partition = Producers().partition(1)
    for sequence in range(200):
        header = read_header(batch(producer=(PRODUCER, 0, sequence)))
        partition.write(header, sequence, -1, 0, sequence // 50 * 50)
        (state,) = partition._states.values()
        pending = sequence % 50 + 1
        assert len(state.batches) <= pending + WINDOW
        kept = [each.base_offset for each in state.batches]
        assert kept[-1] == sequence
        assert kept[0] <= max(0, sequence // 50 * 50 - WINDOW)


def test_a_disk_that_hangs_lets_nothing_grow_without_end():
    partition = Producers().partition(1)
    for sequence in range(PENDING_MAX + 10):
        header = read_header(batch(producer=(PRODUCER, 0, sequence)))
        partition.write(header, sequence, -1, 0, 0)

    (state,) = partition._states.values()
    assert len(state.batches) == PENDING_MAX


# -- any order of events -------------------------------------------------------------------------


@dataclass
class Client:
    """An idempotent producer as Java's: one batch at a time, a new epoch behind a gap."""

    epoch: int = 0
    sequence: int = 0
    sent: int = 0  # messages; their numbers are 0, 1, ...

    def send(self, node: Node) -> None:
        self.sent += 1
        self._append(node, self.sequence)
        self.sequence += 1

    def retry(self, node: Node) -> None:
        """The answer to the last one was lost."""
        if self.sequence:
            self._append(node, self.sequence - 1)

    def _append(self, node: Node, sequence: int) -> None:
        try:
            send(node, sequence, epoch=self.epoch, number=self.sent - 1)
        except OutOfOrderSequence:
            self.epoch += 1
            self.sequence = 0
            send(node, 0, epoch=self.epoch, number=self.sent - 1)


def stored(node: Node) -> list[int]:
    partition, found = node.partition(0).log, []
    offset = partition.start_offset
    while offset < partition.high_watermark:
        part = partition.read(offset, 1)
        header = read_header(
            memoryview(part.run() if isinstance(part, SegmentSlice) else b"".join(part.slices))
        )
        found.append(header.max_timestamp)
        offset += header.span
    return found


@pytest.mark.parametrize("seed", seeds(12, quick=4))
def test_nothing_is_stored_twice_or_in_another_order_and_only_the_newest_is_lost(seed: int):
    node, client = Node(seed), Client()
    make_topic(node)
    shown: list[int] = []
    lost: set[int] = set()
    steps = {"send": 70, "retry": 5, "interval": 10, "turn": 10, "seal": 2, "flush": 3, "crash": 3}

    for step in node.random.choices(list(steps), list(steps.values()), k=300):
        match step:
            case "send":
                client.send(node)
            case "retry":
                client.retry(node)
            case "interval":
                pass_interval(node)
            case "turn":
                node.loop.turn()
            case "seal":
                node.log.seal()
            case "flush":
                node.flush()
            case "crash":
                node.crash()
                lost |= set(range(client.sent)) - set(stored(node))
        if step in {"crash", "flush"}:
            before, shown = shown, stored(node)
            assert shown[: len(before)] == before, "what was shown stays"
    pass_interval(node)

    found = stored(node)
    assert found == sorted(set(found)), "twice, or in another order"
    assert set(range(client.sent)) - set(found) <= lost, "lost without a crash"


@pytest.mark.parametrize(
    "policies",
    [
        Policies(deduplication=True),
        Policies(encryption_required=True),
        Policies(publish_rate=Rate(1)),
    ],
    ids=["deduplication", "encryption", "rate"],
)
def test_rules_of_a_topic_end_the_plain_append_of_entries(node: Node, policies: Policies):
    partition = node.partition(0)
    plain = partition.plain
    sizes = (plain.size_max, plain.entry_size_max, plain.memory_size_max)
    assert sizes == (-1, -1, partition.message_size_max)

    partition.policies = policies
    assert plain.memory_size_max == -1

    partition.policies = DEFAULT_POLICIES
    assert plain.memory_size_max == partition.message_size_max
    partition.terminated = True
    assert plain.memory_size_max == -1
