"""Internal topics on the real log, over a disk that may lose: they follow the broker's state."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.broker.node_room import Node
from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import Acl, AclStore, Pattern
from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.broker.errors import InternalTopicWrite
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.internal.state_topic import RECORDS_IN_BATCH, java_hash
from trilogue.broker.names import INTERNAL_TOPICS, OFFSETS_TOPIC
from trilogue.entry.kafka.record_batch import BatchBuilder, iter_records
from trilogue.gateway.kafka.groups.internal_records import KafkaInternalRecords
from trilogue.log.partition_log import SegmentSlice
from trilogue.wire.kafka.internal_topics import encode_offset_key, encode_offset_value

GROUPS = [f"group-{number}" for number in range(12)]
ALICE = Principal("User", "alice")

Found = dict[bytes, bytes | None]


@pytest.fixture
def node() -> Node:
    node = Node(7, KafkaInternalRecords)
    node.create("orders", 3)
    node.loop.run()
    return node


def partition_ids(node: Node) -> list[int]:
    return [node.partition(index).partition_id for index in range(3)]


def commit(node: Node, group: str, offset: int, numbers: tuple[int, ...] = (0,)) -> None:
    ids = partition_ids(node)
    node.broker.commit(Protocol.KAFKA, group, [CursorMove(ids[each], offset) for each in numbers])


def read_records(node: Node, number: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of all records of a partition of __consumer_offsets."""
    log = node.broker.cluster.topic(OFFSETS_TOPIC).partition(number).log
    offset = log.start_offset
    while offset < log.high_watermark:
        part = log.read(offset, 1)
        data = part.run() if isinstance(part, SegmentSlice) else b"".join(part.slices)
        for record in iter_records(data):
            assert record.key is not None
            yield record.offset, record.key, record.value
            offset = record.offset + 1


def read_table(node: Node) -> Found:
    """Return the last value of each key; each key is in one partition only."""
    found: Found = {}
    for number in range(50):
        of_partition: Found = {}
        for _, key, value in read_records(node, number):
            of_partition[key] = value
        assert not found.keys() & of_partition.keys()
        found |= of_partition
    return {key: value for key, value in found.items() if value is not None}


def expected_table(node: Node) -> Found:
    """Return what the offsets of the broker are as records."""
    offsets, ids = node.broker.committed_offsets, partition_ids(node)
    return {
        encode_offset_key(group, "orders", ids.index(each)): encode_offset_value(
            position.mark, position.owner_epoch, position.metadata, position.committed_ms
        )
        for group in offsets.names(Protocol.KAFKA)
        for each, position in offsets.positions(Protocol.KAFKA, group).items()
    }


def test_the_hash_of_a_name_is_that_of_java():
    assert java_hash("") == 0
    assert java_hash("abc") == 96_354
    assert java_hash("polygenelubricants") == 0  # Integer.MIN_VALUE without its sign
    assert java_hash("\U0001f600") == 1_772_899  # a pair of surrogates


def test_a_commit_is_a_record_where_the_topic_exists(node: Node):
    commit(node, "early", 1)
    node.loop.run()
    node.create("__consumer_offsets", 1)
    commit(node, "late", 2, (0, 1, 2))
    node.loop.run()

    topic = node.broker.cluster.topic(OFFSETS_TOPIC)
    assert len(topic.partitions) == 50
    assert topic.is_internal
    assert topic.settings == {"cleanup.policy": "compact"}
    table = read_table(node)
    assert table == expected_table(node)
    assert len(table) == 4
    assert {key for _, key, _ in read_records(node, java_hash("late") % 50)} >= {
        encode_offset_key("late", "orders", each) for each in range(3)
    }


def test_the_fill_does_not_hide_a_newer_commit(node: Node):
    commit(node, "group", 1)
    node.loop.run()
    node.create("__consumer_offsets", 1)  # the fill waits for the journal
    commit(node, "group", 2)
    node.loop.run()

    values = [value for _, _, value in read_records(node, java_hash("group") % 50)]
    assert len(values) == 1
    assert read_table(node) == expected_table(node)


def test_a_large_commit_is_several_batches(node: Node):
    node.create("wide", RECORDS_IN_BATCH + 1)
    node.create("__consumer_offsets", 1)
    wide = node.broker.cluster.topic(OFFSETS_TOPIC._replace(name="wide"))
    node.broker.commit(
        Protocol.KAFKA, "group", [CursorMove(each, 5) for each in wide.row.partitions]
    )
    node.loop.run()

    assert len(list(read_records(node, java_hash("group") % 50))) == RECORDS_IN_BATCH + 1


def test_removed_offsets_are_records_without_a_value(node: Node):
    node.create("__consumer_offsets", 1)
    commit(node, "group", 3, (0, 1))
    commit(node, "other", 3, (0,))
    node.loop.run()
    node.broker.committed_offsets.remove(Protocol.KAFKA, "group", partition_ids(node)[:1])
    node.loop.run()
    assert read_table(node) == expected_table(node)

    change = node.broker.cluster.plan_delete(OFFSETS_TOPIC._replace(name="orders"))
    node.meta.write_now(change.ops(), change.preconditions)
    for _ in change.steps():
        pass
    node.loop.run()
    assert read_table(node) == {}


def test_clients_cannot_append(node: Node):
    node.create("__consumer_offsets", 1)
    partition = node.broker.cluster.topic(OFFSETS_TOPIC).partition(0)
    builder = BatchBuilder()
    builder.append(b"key", b"value")
    batch = memoryview(builder.build())

    for append in (
        lambda: partition.append(batch, now_ms=0),
        lambda: partition.append_sent(batch, lambda: 0),
    ):
        with pytest.raises(InternalTopicWrite):
            append()
    assert partition.plain.size_max == -1
    assert partition.log.end_offset == 0


def test_records_follow_the_state_through_crashes(node: Node):
    """Offsets of the topic are never used again, and its table is what the broker has."""
    random = Random(11)
    node.create("__consumer_offsets", 1)
    seen: dict[tuple[int, int], tuple[bytes, bytes | None]] = {}
    for step in range(300):
        group = random.choice(GROUPS)
        chance = random.random()
        if chance < 0.7:
            commit(node, group, step, tuple(random.sample(range(3), random.randint(1, 3))))
        elif chance < 0.8:
            node.broker.committed_offsets.remove(Protocol.KAFKA, group)
        elif chance < 0.9:
            node.flush()
        if random.random() < 0.6:
            node.loop.run()
        if random.random() < 0.05:
            node.crash()
            node.loop.run()
        if random.random() < 0.05:
            node.loop.run()
            assert read_table(node) == expected_table(node)
            for number in range(50):
                for offset, key, value in read_records(node, number):
                    assert seen.setdefault((number, offset), (key, value)) == (key, value)
    node.loop.run()
    assert read_table(node) == expected_table(node)


def test_reading_needs_the_permission_to_list_all_groups():
    acls = AclStore({})
    authorizer = AclAuthorizer(acls)

    def allow(kind: ResourceKind, name: str, operation: Operation) -> None:
        acl = Acl(kind, Pattern.LITERAL, name, ALICE, "*", operation, allow=True)
        change = acls.plan_create([acl])
        change.ops()
        change.apply()

    def may_read(name: str) -> bool:
        return authorizer.allowed(ALICE, Operation.READ, Resource(ResourceKind.TOPIC, name))

    for name in INTERNAL_TOPICS:
        allow(ResourceKind.TOPIC, str(name), Operation.READ)
    allow(ResourceKind.TOPIC, "public/default/orders", Operation.READ)
    assert not any(may_read(str(name)) for name in INTERNAL_TOPICS)
    assert may_read("public/default/orders")

    allow(ResourceKind.CLUSTER, "cluster", Operation.DESCRIBE)
    assert all(may_read(str(name)) for name in INTERNAL_TOPICS)
