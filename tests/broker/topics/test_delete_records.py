"""Records deleted on request: what is refused, and that the start stays where it was, always."""

from __future__ import annotations

import pytest

from tests.broker.fakes import batch
from tests.broker.node_room import Node
from trilogue.broker.errors import OffsetOutOfRange, PolicyViolation, UnknownTopic
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.delete_records import delete_records
from trilogue.broker.topics.topic import Topic
from trilogue.entry.walk import read_header
from trilogue.log import errors as log_errors
from trilogue.log.partition_log import SegmentSlice

ALL = None


@pytest.fixture
def node() -> Node:
    node = Node(1)
    node.create("orders", 2)
    return node


def orders(node: Node) -> Topic:
    return node.broker.cluster.topic(parse_kafka("orders"))


def fill(node: Node, count: int = 10, *, span: int = 1, index: int = 0) -> None:
    for sequence in range(count):
        records = batch(span, producer=(7, 0, sequence * span))
        node.partition(index).append(records, now_ms=node.loop.now_ms())
    node.loop.run()


def delete(node: Node, **offsets: int) -> dict[int, int]:
    """Delete below offsets of partitions `p0`, `p1`."""
    topic = orders(node)
    commit = delete_records(topic, {int(name[1:]): each for name, each in offsets.items()})
    node.meta.write_now(commit.ops(), commit.preconditions)
    starts = commit.apply()
    ids = [each.partition_id for each in topic.partitions]
    return {ids.index(each): start for each, start in starts.items()}


def flush(node: Node) -> None:
    node.log.seal()
    node.flush()


def readable(node: Node, index: int = 0) -> list[int]:
    """Base offsets of the entries from the start on."""
    partition, found = node.partition(index).log, []
    offset = partition.start_offset
    while offset < partition.high_watermark:
        part = partition.read(offset, 1)
        data = part.run() if isinstance(part, SegmentSlice) else b"".join(part.slices)
        header = read_header(memoryview(data))
        found.append(header.base_offset)
        offset = header.last_offset + 1
    return found


@pytest.mark.parametrize("flushed", [False, True])
def test_a_partition_starts_later(node: Node, flushed: bool):
    fill(node)
    if flushed:
        flush(node)

    assert delete(node, p0=4) == {0: 4}

    assert readable(node) == [4, 5, 6, 7, 8, 9]
    with pytest.raises(log_errors.OffsetOutOfRange):
        node.partition(0).log.read(3, 100)


def test_minus_one_deletes_everything_that_may_be_read(node: Node):
    fill(node)
    node.partition(0).append(batch(), now_ms=0)  # not durable: it may not be read, it stays

    assert delete(node, p0=ALL, p1=ALL) == {0: 10, 1: 0}

    node.loop.run()
    assert readable(node) == [10]


@pytest.mark.parametrize("offset", [11, -2, 1 << 40])
def test_an_offset_beyond_the_high_watermark_is_refused(node: Node, offset: int):
    """Kafka: OFFSET_OUT_OF_RANGE, also for what is written and not durable yet."""
    fill(node)
    node.partition(0).append(batch(), now_ms=0)

    with pytest.raises(OffsetOutOfRange):
        delete(node, p0=offset)
    assert node.partition(0).log.start_offset == 0


def test_a_start_never_moves_back(node: Node):
    fill(node)
    delete(node, p0=6)

    assert delete(node, p0=2) == {0: 6}
    assert readable(node) == [6, 7, 8, 9]


def test_decisions_that_overtake_each_other_end_with_the_later_start(node: Node):
    fill(node)
    topic = orders(node)
    commits = [delete_records(topic, {0: each}) for each in (8, 3)]

    for commit in commits:
        node.meta.write_now(commit.ops(), commit.preconditions)
    starts = [commit.apply() for commit in commits]

    assert [*starts[0].values(), *starts[1].values()] == [8, 8]
    assert node.meta.state.partitions[node.partition(0).partition_id].start_offset == 8


def test_a_start_inside_an_entry_keeps_the_entry_whole(node: Node):
    fill(node, 3, span=4)

    assert delete(node, p0=6) == {0: 6}

    for _ in range(2):
        assert readable(node) == [4, 8]
        node.crash()
    flush(node)
    assert readable(node) == [4, 8]


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
def test_delete_records_of_a_compact_only_topic_is_refused(node: Node, policy: str):
    """Kafka: POLICY_VIOLATION unless the policy includes delete."""
    fill(node)
    orders(node).settings["cleanup.policy"] = policy

    if policy == "compact":
        with pytest.raises(PolicyViolation):
            delete(node, p0=1)
    else:
        assert delete(node, p0=1) == {0: 1}


def test_a_partition_that_is_not_there_is_unknown(node: Node):
    with pytest.raises(UnknownTopic):
        delete(node, p2=0)


def test_a_topic_that_is_deleted_meanwhile_has_no_start(node: Node):
    fill(node)
    commit = delete_records(orders(node), {0: 5})
    gone = node.broker.cluster.plan_delete(parse_kafka("orders"))
    node.meta.write_now(gone.ops(), gone.preconditions)
    gone.apply()

    node.meta.write_now(commit.ops(), commit.preconditions)

    assert commit.apply() == {}


@pytest.mark.parametrize("before", ["nothing", "a flush", "a seal"])
@pytest.mark.parametrize("offset", [4, ALL])
def test_a_crash_changes_nothing(node: Node, before: str, offset: int):
    """Also where the start is above all that is in segments: replay passes over what is below."""
    fill(node)
    if before == "a flush":
        flush(node)
        fill_more(node)
    delete(node, p0=offset)
    expected = readable(node)
    start = node.partition(0).log.start_offset
    if before == "a seal":
        node.log.seal()

    for _ in range(2):
        node.crash()
        assert (node.partition(0).log.start_offset, readable(node)) == (start, expected)
    while node.cuts:
        node.flush()
    assert readable(node) == expected
    node.crash()
    assert (node.partition(0).log.start_offset, readable(node)) == (start, expected)
    end = node.partition(0).log.end_offset
    assert node.partition(0).append(batch(), now_ms=0).base_offset == end, "no offset comes twice"


def fill_more(node: Node) -> None:
    for sequence in range(10, 15):
        node.partition(0).append(batch(producer=(7, 0, sequence)), now_ms=0)
    node.loop.run()


@pytest.mark.parametrize("how", ["alive", "crash", "flush and crash"])
def test_a_repeated_batch_is_known_although_its_records_were_deleted(node: Node, how: str):
    """Or a retry would put deleted records back."""
    fill(node)
    delete(node, p0=ALL)
    if how == "flush and crash":
        flush(node)
    if how != "alive":
        node.crash()

    again = node.partition(0).append(batch(producer=(7, 0, 9)), now_ms=0)

    assert (again.duplicate, again.base_offset) == (True, 9)
