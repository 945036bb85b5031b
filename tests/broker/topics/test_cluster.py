from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from tests.broker.fakes import FakeLog, batch
from trilogue.broker.errors import (
    BrokerError,
    DiskFull,
    InvalidAssignment,
    InvalidPartitions,
    InvalidRequest,
    InvalidSetting,
    ReplicationFactor,
    StorageFailed,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.topics.cluster import Cluster, ClusterLimits, TopicEvent
from trilogue.broker.topics.placement import PARTITIONS_PER_STEP
from trilogue.broker.topics.topic import Topic
from trilogue.log import errors as log_errors
from trilogue.meta.errors import PreconditionFailed
from trilogue.meta.memory import MemoryMeta

LIMITS = ClusterLimits(default_partitions=3, topic_partitions_max=50, partitions_max=100)


class Room:
    """A cluster over a meta in memory and a log of offsets; node 1, epoch 5."""

    def __init__(self, meta: MemoryMeta | None = None, log: FakeLog | None = None) -> None:
        self.meta = meta or MemoryMeta(b"c" * 16, 1, 5)
        self.log = log or FakeLog()
        self.forgotten: list[int] = []
        self.producers = Producers()
        ids = count(1)
        self.cluster = Cluster(
            self.meta.state,
            allocate=self.meta.allocate,
            new_topic_id=lambda: next(ids).to_bytes(16, "big"),
            now_ms=lambda: 777,
            producers=self.producers,
            forget=self._forget,
            limits=LIMITS,
        )
        self.cluster.attach(self.log)

    def _forget(self, partition_ids: Sequence[int]) -> Iterator[None]:
        self.forgotten += partition_ids
        return iter(())

    def carry_out(self, commit: MetadataChange) -> object:
        """What a node does with a commit."""
        try:
            self.meta.write_now(commit.ops(), commit.preconditions)
        except Exception as error:
            raise commit.abandon(error) from error
        return commit.apply()

    def create(self, name: str, **fields) -> Topic:
        return self.carry_out(self.plan_create(name, **fields))

    def plan_create(self, name: str, **fields) -> MetadataChange[Topic]:
        return self.cluster.plan_create(self.cluster.check_create(parse_kafka(name), **fields))


ORDERS = TopicName("public", "default", "orders")


def test_many_partitions_come_and_go_in_steps_and_the_topic_in_one():
    room = Room()
    room.cluster.limits = ClusterLimits(topic_partitions_max=1_000, partitions_max=1_000)
    made = room.plan_create("orders", partition_count=3 * PARTITIONS_PER_STEP)
    room.meta.write_now(made.ops(), made.preconditions)

    steps = made.steps()
    for _ in range(3):
        next(steps)
        assert room.cluster.find_topic(ORDERS) is None
        assert not made.done.done
    with pytest.raises(StopIteration):
        next(steps)

    topic = room.cluster.topic(ORDERS)
    assert len(topic.partitions) == 3 * PARTITIONS_PER_STEP
    assert made.done.result() is topic

    gone = room.cluster.plan_delete(ORDERS)
    room.meta.write_now(gone.ops(), gone.preconditions)
    steps = gone.steps()
    next(steps)
    assert room.cluster.find_topic(ORDERS) is None
    assert room.cluster.partition_count == 0
    assert len(room.log.partitions) == 2 * PARTITIONS_PER_STEP
    for _ in steps:
        pass
    assert not room.log.partitions
    assert gone.done.done


def test_a_name_may_be_given_again_while_what_had_it_is_let_go():
    """Who knows topics by name must hear of the end of one before the beginning of the next."""
    room = Room()
    room.cluster.limits = ClusterLimits(topic_partitions_max=1_000, partitions_max=10_000)
    events: list[tuple[TopicEvent, bytes]] = []
    room.cluster.listeners.append(lambda event, topic: events.append((event, topic.topic_id)))
    old = room.create("orders", partition_count=3 * PARTITIONS_PER_STEP)
    gone = room.cluster.plan_delete(ORDERS)
    room.meta.write_now(gone.ops(), gone.preconditions)
    letting_go = gone.steps()
    next(letting_go)

    new = room.create("orders")
    again = room.cluster.plan_delete(ORDERS)
    for _ in letting_go:
        pass

    with pytest.raises(UnknownTopic, match="being deleted"):
        room.cluster.plan_delete(ORDERS)
    room.carry_out(again)
    assert events == [
        (TopicEvent.CREATED, old.topic_id),
        (TopicEvent.DELETED, old.topic_id),
        (TopicEvent.CREATED, new.topic_id),
        (TopicEvent.DELETED, new.topic_id),
    ]
    assert room.log.partitions == {}


def test_partitions_that_are_made_while_what_holds_for_all_changes_obey_the_change():
    room = Room()
    room.cluster.limits = ClusterLimits(topic_partitions_max=1_000, partitions_max=1_000)
    made = room.plan_create("orders", partition_count=2 * PARTITIONS_PER_STEP)
    room.meta.write_now(made.ops(), made.preconditions)
    steps = made.steps()
    next(steps)

    room.cluster.apply_topic_defaults({"max.message.bytes": "2000"})
    for _ in steps:
        pass

    sizes = {each.message_size_max for each in room.cluster.topic(ORDERS).partitions}
    assert sizes == {2_000}


def test_a_topic_is_there_when_it_is_recorded_and_applied():
    room = Room()

    commit = room.plan_create("orders", partition_count=2, settings={"retention.ms": "5"})
    before = room.cluster.find_topic(ORDERS)
    topic = room.carry_out(commit)

    assert before is None
    assert room.cluster.topic(ORDERS) is topic is commit.done.result()
    assert room.cluster.topic_by_id(topic.topic_id) is topic
    assert list(room.cluster) == [topic]
    assert (len(room.cluster), room.cluster.partition_count) == (1, 2)
    assert topic.settings == {"retention.ms": "5"}
    assert topic.partitioned
    assert topic.row == room.meta.state.topics[ORDERS.tenant, ORDERS.namespace, ORDERS.name]
    assert topic.row.created_ms == 777
    assert [each.settings.retention_ms for each in topic.partitions] == [5, 5]
    assert {each.owner_epoch for each in topic.partitions} == {5}
    assert (room.cluster.cluster_id, room.cluster.node_id, room.cluster.node_epoch) == (
        b"c" * 16,
        1,
        5,
    )


def test_partition_ids_are_never_given_twice():
    room = Room()
    first = room.create("orders")
    room.carry_out(room.cluster.plan_delete(ORDERS))

    second = room.create("orders")

    assert not set(first.row.partitions) & set(second.row.partitions)
    assert first.topic_id != second.topic_id


def test_metadata_change_contains_the_number_of_ids_to_reserve():
    assert Room().plan_create("orders", partition_count=7).partition_ids == 7


REFUSED = [
    ({"partition_count": 0}, InvalidPartitions),
    ({"partition_count": -2}, InvalidPartitions),
    ({"partition_count": 51}, InvalidPartitions),
    ({"replication_factor": 2}, ReplicationFactor),
    ({"replication_factor": 0}, ReplicationFactor),
    ({"replication_factor": -2}, ReplicationFactor),
    ({"assignment": {1: [1]}}, InvalidAssignment),
    ({"assignment": {0: [1], 2: [1]}}, InvalidAssignment),
    ({"assignment": {0: [2]}}, InvalidAssignment),
    ({"assignment": {0: [1, 1]}}, InvalidAssignment),
    ({"assignment": {0: []}}, InvalidAssignment),
    ({"assignment": {0: [1]}, "partition_count": 1}, InvalidRequest),
    ({"assignment": {0: [1]}, "replication_factor": 1}, InvalidRequest),
    ({"settings": {"cleanup.policy": "archive"}}, InvalidSetting),
    ({"settings": {"nonsense": "1"}}, InvalidSetting),
]


@pytest.mark.parametrize(("fields", "reason"), REFUSED)
def test_a_topic_that_cannot_be_is_refused_and_nothing_is_pending(fields, reason):
    room = Room()

    with pytest.raises(reason):
        room.plan_create("orders", **fields)

    assert room.cluster.pending_creation(ORDERS) is None


ACCEPTED = [
    ({}, 3),
    ({"partition_count": -1, "replication_factor": -1}, 3),
    ({"partition_count": 50, "replication_factor": 1}, 50),
    ({"assignment": {1: [1], 0: [1]}}, 2),
    ({"assignment": {}, "partition_count": 4}, 4),
]


@pytest.mark.parametrize(("fields", "partitions"), ACCEPTED)
def test_a_topic_has_the_partitions_requested(fields, partitions):
    assert len(Room().create("orders", **fields).partitions) == partitions


def test_total_partition_limit_counts_pending_creations():
    room = Room()
    room.create("a", partition_count=50)
    pending = room.plan_create("b", partition_count=40)

    with pytest.raises(InvalidPartitions):
        room.plan_create("c", partition_count=11)
    pending.abandon(log_errors.StorageFailed("broken"))

    assert len(room.create("c", partition_count=50).partitions) == 50


def test_to_check_is_not_to_make():
    room = Room()

    new = room.cluster.check_create(ORDERS, partition_count=2)

    assert (new.name, new.partition_count) == (ORDERS, 2)
    assert len(room.cluster) == 0
    assert room.cluster.pending_creation(ORDERS) is None


def test_a_name_that_is_being_made_is_taken_and_can_be_waited_for():
    room = Room()
    commit = room.plan_create("orders")

    with pytest.raises(TopicExists):
        room.plan_create("orders")
    waiting = room.cluster.pending_creation(ORDERS)
    assert waiting is not None
    topic = room.carry_out(commit)

    assert waiting.result() is topic
    assert room.cluster.pending_creation(ORDERS) is None
    with pytest.raises(TopicExists):
        room.plan_create("orders")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PreconditionFailed("absent"), TopicExists),
        (log_errors.StorageFailed("broken"), StorageFailed),
        (log_errors.DiskFull("full"), DiskFull),
        (InvalidPartitions("no"), InvalidPartitions),
        (RuntimeError("else"), StorageFailed),
    ],
)
def test_a_topic_that_could_not_be_recorded_frees_its_name(error, reason):
    room = Room()
    commit = room.plan_create("orders")

    notify = commit.abandon(error)

    assert type(notify) is reason
    assert commit.done.error is notify
    assert room.cluster.pending_creation(ORDERS) is None
    assert len(room.create("orders").partitions) == 3


def test_two_clusters_over_one_meta_do_not_make_a_topic_twice():
    first = Room()
    second = Room(first.meta)
    late = second.plan_create("orders")
    first.create("orders")

    with pytest.raises(TopicExists):
        second.carry_out(late)


def test_a_deleted_topic_is_gone_with_all_that_hangs_on_it():
    room = Room()
    topic = room.create("orders")
    ids = list(topic.row.partitions)

    assert room.carry_out(room.cluster.plan_delete(ORDERS)) is None

    assert (room.cluster.find_topic(ORDERS), len(room.cluster)) == (None, 0)
    assert room.forgotten == ids
    assert room.log.partitions == {}
    assert room.meta.state.topics == {}
    assert not any(map(room.cluster.has_partition, ids))
    with pytest.raises(UnknownTopicId):
        room.cluster.topic_by_id(topic.topic_id)
    with pytest.raises(UnknownTopic):
        topic.partition(0).append(batch(), now_ms=0)


def test_a_topic_is_served_until_its_deletion_is_recorded():
    room = Room()
    topic = room.create("orders")

    room.cluster.plan_delete(ORDERS)

    assert room.cluster.find_topic(ORDERS) is topic
    assert topic.partition(2).append(batch(), now_ms=0).base_offset == 0
    with pytest.raises(UnknownTopic):
        room.cluster.plan_delete(ORDERS)
    with pytest.raises(TopicExists):
        room.plan_create("orders")


def test_a_deletion_that_could_not_be_recorded_changes_nothing():
    room = Room()
    topic = room.create("orders")
    commit = room.cluster.plan_delete(ORDERS)

    notify = commit.abandon(PreconditionFailed("changed"))

    assert isinstance(notify, UnknownTopic)
    assert room.cluster.find_topic(ORDERS) is topic
    assert room.carry_out(room.cluster.plan_delete(ORDERS)) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.topic(ORDERS),
        lambda cluster: cluster.plan_delete(ORDERS),
        lambda cluster: cluster.topic_by_id(bytes(16)),
    ],
)
def test_unknown_topic_raises_broker_error(call):
    with pytest.raises(BrokerError):
        call(Room().cluster)


@pytest.mark.parametrize("index", [-1, 3])
def test_a_partition_that_a_topic_does_not_have_is_unknown(index: int):
    topic = Room().create("orders")

    with pytest.raises(UnknownTopic):
        topic.partition(index)


def test_topics_are_there_again_after_a_start():
    room = Room()
    topic = room.create("orders", partition_count=2, settings={"max.message.bytes": "7"})
    topic.partition(1).log.high_watermark = 9

    back = Room(room.meta, room.log)

    found = back.cluster.topic(ORDERS)
    assert found.row == topic.row
    assert [each.partition_id for each in found.partitions] == list(topic.row.partitions)
    assert found.partition(1).message_size_max == 7
    assert back.cluster.durable_end(topic.row.partitions[1]) == 9


def test_partitions_are_known_before_there_is_a_log_but_have_no_end():
    room = Room()
    (partition_id,) = room.create("orders", partition_count=1).row.partitions

    cluster = Cluster(
        room.meta.state,
        allocate=room.meta.allocate,
        new_topic_id=bytes,
        now_ms=lambda: 0,
        producers=Producers(),
        forget=lambda _: iter(()),
        limits=LIMITS,
    )

    assert cluster.has_partition(partition_id)
    assert cluster.durable_end(partition_id) == 0
    assert cluster.durable_end(99) == 0
    assert len(cluster) == 0
