"""Members of groups with epochs in `__consumer_offsets`: they follow the broker's groups."""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.internal.test_internal_topics import Found, read_records, read_table
from tests.broker.node_room import Node
from trilogue.broker.errors import BrokerError
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.consumer.group import ConsumerGroup, Heartbeat
from trilogue.broker.groups.share.group import ShareGroup
from trilogue.broker.groups.share.members import ShareHeartbeat
from trilogue.broker.groups.streams.group import StreamsGroup
from trilogue.broker.groups.streams.members import StreamsHeartbeat
from trilogue.broker.groups.streams.topology import Subtopology, Topology
from trilogue.broker.internal.state_topic import java_hash
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka.groups.group_records import group_state_records, member_records
from trilogue.gateway.kafka.groups.internal_records import KafkaInternalRecords
from trilogue.wire.kafka.groups.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMemberValue,
    GroupRecordKind,
    ShareGroupStatePartitionMetadataValue,
    decode_record_value,
    encode_record_key,
)
from trilogue.wire.kafka.groups.member_metadata import Subscription, encode_subscription

ORDERS = parse_kafka("orders")
TOPOLOGY = Topology(0, (Subtopology("0", source_topics=(ORDERS,)),))


@pytest.fixture
def node() -> Node:
    node = Node(7, KafkaInternalRecords)
    node.create("orders", 3)
    node.loop.run()
    return node


def start_topic(node: Node) -> None:
    node.create("__consumer_offsets", 1)
    node.loop.run()


def consume(node: Node, member_id: str, epoch: int, group: str = "readers") -> int:
    """Send a heartbeat of a member that has given up what it has to; return its epoch."""
    known = node.broker.groups.find_group(group)
    member = known.members.find_member(member_id) if isinstance(known, ConsumerGroup) else None
    heartbeat = Heartbeat(
        group,
        member_id,
        epoch,
        rebalance_timeout_ms=60_000,
        topics=frozenset({ORDERS}),
        owned={} if member is None else member.assigned,
        client_id="tests",
    )
    return node.broker.consumer_groups.heartbeat(heartbeat).epoch


def share(node: Node, member_id: str, epoch: int, group: str = "sharers") -> int:
    heartbeat = ShareHeartbeat(group, member_id, epoch, topics=frozenset({ORDERS}))
    return node.broker.share_groups.heartbeat(heartbeat).epoch


def stream(node: Node, member_id: str, epoch: int, group: str = "streamers") -> int:
    topology = TOPOLOGY if epoch == 0 else None
    heartbeat = StreamsHeartbeat(
        group, member_id, epoch, topology=topology, owned={}, process_id=member_id
    )
    return node.broker.streams_groups.heartbeat(heartbeat).epoch


def expected_table(node: Node) -> Found:
    """Return what the broker's groups with epochs are as records."""
    found: Found = {}
    shared = node.broker.share_partitions.positions
    for group in node.broker.groups:
        if not isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup):
            continue
        topic = node.broker.cluster.topic(ORDERS)
        ids = list(shared.of_group(group.name))
        numbers = [topic.number_of(each) for each in ids]
        parts = {(topic.topic_id, ORDERS): numbers} if ids and isinstance(group, ShareGroup) else {}
        found |= group_state_records(group, parts)
        for member in group.members:
            found |= member_records(group, member.member_id)
    return {key: value for key, value in found.items() if value is not None}


def read_value(node: Node, kind: GroupRecordKind, cls: type, *texts: str) -> object:
    value = read_table(node)[encode_record_key(kind, *texts)]
    assert value is not None
    return decode_record_value(cls, value)


def test_members_join_move_and_leave(node: Node):
    start_topic(node)
    first = consume(node, "a", 0)
    consume(node, "b", 0)
    node.loop.run()
    assert read_table(node) == expected_table(node)
    consume(node, "a", first)  # it has something to give up
    node.loop.run()
    current = read_value(
        node,
        GroupRecordKind.CONSUMER_CURRENT,
        ConsumerGroupCurrentMemberAssignmentValue,
        "readers",
        "a",
    )
    assert isinstance(current, ConsumerGroupCurrentMemberAssignmentValue)
    (given,), (kept,) = current.partitions_pending_revocation, current.assigned_partitions
    assert (current.state, len(given.partitions) + len(kept.partitions)) == (1, 3)
    assert kept.assignment_epochs == [first] * len(kept.partitions)
    target = read_value(
        node,
        GroupRecordKind.CONSUMER_TARGET,
        ConsumerGroupTargetAssignmentMemberValue,
        "readers",
        "b",
    )
    assert isinstance(target, ConsumerGroupTargetAssignmentMemberValue)
    assert [each.partitions for each in target.topic_partitions] == [given.partitions]

    consume(node, "a", -1)
    consume(node, "b", -1)
    node.loop.run()
    assert read_table(node) == expected_table(node)
    assert len(read_table(node)) == 2  # the group's epoch, and its target's
    node.broker.group_admin.delete("readers")
    node.loop.run()
    assert read_table(node) == {}


def test_members_that_are_there_when_the_topic_begins(node: Node):
    for send in (consume, share, stream):
        send(node, "a", 0)
    node.loop.run()
    start_topic(node)

    assert read_table(node) == expected_table(node)
    assert len(read_table(node)) == 2 + 3 + 3 + 3 + 3 + 3


def test_nothing_is_written_twice(node: Node):
    start_topic(node)
    epoch = consume(node, "a", 0)
    for _ in range(3):
        consume(node, "a", epoch)
    node.loop.run()

    rows = list(read_records(node, java_hash("readers") % 50))
    assert len(rows) == len({(key, value) for _, key, value in rows})
    assert read_table(node) == expected_table(node)


def test_positions_of_a_share_group(node: Node):
    start_topic(node)
    share(node, "a", 0)
    partition = node.partition(2)
    node.broker.share_partitions.start("sharers", partition.partition_id, 0)
    node.loop.run()
    shared = read_value(
        node,
        GroupRecordKind.SHARE_PARTITIONS,
        ShareGroupStatePartitionMetadataValue,
        "sharers",
    )
    assert isinstance(shared, ShareGroupStatePartitionMetadataValue)
    assert [(each.topic_name, each.partitions) for each in shared.initialized_topics] == [
        ("orders", [2])
    ]
    node.broker.share_partitions.remove("sharers")
    node.loop.run()
    assert read_table(node) == expected_table(node)


def test_a_group_that_becomes_one_of_another_kind(node: Node):
    start_topic(node)
    consume(node, "a", 0, "group")
    consume(node, "a", -1, "group")
    node.loop.run()
    assert encode_record_key(GroupRecordKind.CONSUMER_GROUP, "group") in read_table(node)
    metadata = encode_subscription(Subscription(topics=["orders"]))
    request = JoinRequest("group", "", "consumer", (("range", metadata),), 30_000, 60_000)
    node.broker.groups.join(request)
    node.loop.run()
    assert read_table(node) == {}


def check_offsets(node: Node, seen: dict[tuple[int, int], tuple[bytes, bytes | None]]) -> None:
    """Check that no offset has another record than before."""
    for number in range(50):
        for offset, key, value in read_records(node, number):
            assert seen.setdefault((number, offset), (key, value)) == (key, value)


def test_records_follow_the_groups_through_crashes(node: Node):
    random = Random(5)
    start_topic(node)
    epochs: dict[tuple[str, str], int] = {}
    seen: dict[tuple[int, int], tuple[bytes, bytes | None]] = {}
    senders = {"readers": consume, "sharers": share, "streamers": stream}
    for _ in range(400):
        name, member = random.choice(list(senders)), random.choice("abc")
        epoch = -1 if random.random() < 0.2 else epochs.get((name, member), 0)
        try:
            epochs[name, member] = max(0, senders[name](node, member, epoch))
        except BrokerError:
            epochs[name, member] = 0
        chance = random.random()
        if chance < 0.05:
            node.flush()
        if chance < 0.6:
            node.loop.run()
        if chance > 0.97:
            node.crash()
            node.loop.run()
        if 0.5 < chance < 0.6:
            check_offsets(node, seen)
    for send in senders.values():  # after a crash the next heartbeat brings what is missing
        for member in "abc":
            send(node, member, 0)
    node.loop.run()
    assert read_table(node) == expected_table(node)
