"""Topics that get more partitions or are terminated, and the listeners that are called."""

from __future__ import annotations

import pytest

from tests.broker.fakes import batch
from tests.broker.topics.test_cluster import ORDERS, Room
from trilogue.broker.errors import InvalidPartitions, InvalidRequest, InvalidSetting, UnknownTopic
from trilogue.broker.names import NamespaceName
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.policies import TERMINATED


def test_a_topic_grows_and_keeps_what_it_has():
    room = Room()
    topic = room.create("orders", partition_count=2, settings={"retention.ms": "5"})
    topic.partitions[1].append(batch(), now_ms=0)
    commit = room.cluster.plan_add_partitions(ORDERS, 4)
    before = room.cluster.topic(ORDERS)

    grown = room.carry_out(commit)

    assert commit.partition_ids == 2
    assert before is topic
    assert grown is room.cluster.topic(ORDERS) is room.cluster.topic_by_id(topic.topic_id)
    assert grown.partitions[:2] == topic.partitions
    assert len({*grown.row.partitions}) == 4
    assert [each.settings.retention_ms for each in grown.partitions] == [5] * 4
    assert grown.partitions[3].append(batch(), now_ms=0).base_offset == 0
    assert room.cluster.partition_count == 4
    again = Room(room.meta, room.log).cluster.topic(ORDERS)
    assert again.row == grown.row
    assert [each.partition_id for each in again.partitions] == list(grown.row.partitions)


def test_more_replicas_in_sync_than_there_can_be_are_refused():
    """Whichever protocol requests them; what a topic has already stays with fewer nodes."""
    room = Room()
    wanted = {"min.insync.replicas": "2"}
    with pytest.raises(InvalidSetting, match="up to 1 replicas"):
        room.create("orders", settings=wanted)
    topic = room.create("orders", settings={"min.insync.replicas": "1"})
    with pytest.raises(InvalidSetting, match="up to 1 replicas"):
        room.cluster.plan_alter(ORDERS, wanted)
    topic.row.settings.update(wanted)
    room.carry_out(room.cluster.plan_alter(ORDERS, {**wanted, "retention.ms": "5"}))
    assert room.cluster.topic(ORDERS).settings == {**wanted, "retention.ms": "5"}


def test_a_topic_grows_only_upwards_and_within_the_limits():
    room = Room()
    room.create("orders", partition_count=2)
    room.create("bare", partitioned=False)

    for count in (0, 1, 2, 51):
        with pytest.raises(InvalidPartitions):
            room.cluster.plan_add_partitions(ORDERS, count)
    with pytest.raises(InvalidPartitions, match="does not grow"):
        room.cluster.plan_add_partitions(room.create("b", partitioned=False).name, 2)
    for index in range(3):
        room.create(f"full{index}", partition_count=30)
    with pytest.raises(InvalidPartitions, match="all topics together"):
        room.cluster.plan_add_partitions(ORDERS, 12)


def test_a_topic_grows_once_at_a_time():
    room = Room()
    room.create("orders", partition_count=1)
    commit = room.cluster.plan_add_partitions(ORDERS, 2)

    assert room.cluster.pending_change(ORDERS) is commit.done
    with pytest.raises(InvalidRequest):
        room.cluster.plan_add_partitions(ORDERS, 3)
    with pytest.raises(InvalidRequest):
        room.cluster.plan_alter(ORDERS, {})
    room.carry_out(commit)
    assert room.cluster.pending_change(ORDERS) is None


def test_a_growth_that_is_outrun_leaves_nothing():
    room = Room()
    room.create("orders", partition_count=1)
    commit = room.cluster.plan_add_partitions(ORDERS, 2)
    room.carry_out(room.cluster.plan_delete(ORDERS))

    with pytest.raises(UnknownTopic):
        room.carry_out(commit)

    assert room.cluster.partition_count == 0
    assert room.cluster.pending_change(ORDERS) is None
    with pytest.raises(UnknownTopic):
        room.cluster.plan_add_partitions(ORDERS, 3)


def test_a_partition_that_is_over_is_over_after_a_restart_too():
    room = Room()
    topic = room.create("orders", partition_count=3)

    altered = room.carry_out(room.cluster.plan_alter(ORDERS, {TERMINATED: "[1]"}))
    again = Room(room.meta, room.log).cluster.topic(ORDERS)

    assert [each.terminated for each in topic.partitions] == [False, True, False]
    assert [each.terminated for each in again.partitions] == [False, True, False]
    assert altered.settings == {TERMINATED: "[1]"}


def test_an_unpartitioned_topic_has_one_partition():
    room = Room()

    topic = room.create("bare", partition_count=7, partitioned=False)

    assert (topic.partitioned, len(topic.partitions)) == (False, 1)
    assert not Room(room.meta, room.log).cluster.topic(topic.name).partitioned


def test_listeners_are_notified_after_each_change_is_applied():
    room = Room()
    events: list[tuple[TopicEvent, str, int]] = []
    room.cluster.listeners.append(
        lambda event, topic: events.append((event, topic.name.name, len(topic.partitions)))
    )
    room.create("orders", partition_count=1)
    room.carry_out(room.cluster.plan_add_partitions(ORDERS, 2))
    room.carry_out(room.cluster.plan_alter(ORDERS, {"retention.ms": "5"}))
    room.cluster.refresh_policies(ORDERS.namespace_name)
    room.carry_out(room.cluster.plan_delete(ORDERS))

    assert events == [
        (TopicEvent.CREATED, "orders", 1),
        (TopicEvent.ALTERED, "orders", 2),
        (TopicEvent.ALTERED, "orders", 2),
        (TopicEvent.ALTERED, "orders", 2),
        (TopicEvent.DELETED, "orders", 2),
    ]


def test_a_listener_that_fails_keeps_nothing_from_being_true(caplog):
    room = Room()
    events: list[TopicEvent] = []

    def fail(_event: TopicEvent, _topic: object) -> None:
        raise RuntimeError("a mistake of ours")

    room.cluster.listeners += [fail, lambda event, _topic: events.append(event)]
    commit = room.plan_create("orders")

    topic = room.carry_out(commit)

    assert commit.done.result() is topic
    assert events == [TopicEvent.CREATED]
    assert "topic.listener_failed" in caplog.text


def test_topics_are_counted_and_listed_by_namespace():
    room = Room()
    for name in ("b", "acme/shop/z", "a"):
        room.create(name)
    home, shop = NamespaceName("public", "default"), NamespaceName("acme", "shop")

    assert [each.name.name for each in room.cluster.topics_in(home)] == ["a", "b"]
    assert (room.cluster.topic_count(home), room.cluster.topic_count(shop)) == (2, 1)
    again = Room(room.meta, room.log).cluster
    assert (again.topic_count(home), again.topic_count(shop)) == (2, 1)
    room.carry_out(room.cluster.plan_delete(room.cluster.topics_in(shop)[0].name))
    assert room.cluster.topic_count(shop) == 0
