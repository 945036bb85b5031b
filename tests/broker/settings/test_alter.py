"""Settings of a topic that lives: what a change makes of them, and when it holds."""

from __future__ import annotations

import pytest

from tests.broker.fakes import batch
from tests.broker.topics.test_cluster import ORDERS, Room
from trilogue.broker.errors import InvalidRequest, InvalidSetting, TooLarge, UnknownTopic
from trilogue.broker.settings.topic_settings import Change, change_settings
from trilogue.meta.errors import PreconditionFailed

SET, RESET, APPEND, SUBTRACT = Change.SET, Change.RESET, Change.APPEND, Change.SUBTRACT
KEPT = {"retention.ms": "5", "flush": "interval"}

CHANGED = [
    ([], KEPT),
    ([("retention.ms", SET, " 6 ")], {"retention.ms": "6", "flush": "interval"}),
    ([("flush", RESET, None)], {"retention.ms": "5"}),
    ([("flush", RESET, "ignored")], {"retention.ms": "5"}),
    ([("retention.bytes", RESET, None)], KEPT),
    ([("no.such", RESET, None)], KEPT),
    ([("cleanup.policy", SUBTRACT, "delete")], {**KEPT, "cleanup.policy": ""}),
    ([("retention.bytes", SET, "7")], {**KEPT, "retention.bytes": "7"}),
    (
        [("segment.ms", SET, "1000")],
        {**KEPT, "segment.ms": "1000"},
    ),  # requests nothing that is missing
    ([("remote.storage.enable", SET, "false")], KEPT),  # it has one value only: nothing to keep
    ([("remote.storage.enable", RESET, None)], KEPT),
]

REFUSED = [
    (("no.such", SET, "1"), InvalidSetting),
    (("retention.ms", SET, "soon"), InvalidSetting),
    (("remote.storage.enable", SET, "true"), InvalidSetting),
    (("retention.ms", APPEND, "1"), InvalidSetting),
    (("retention.ms", SUBTRACT, "1"), InvalidSetting),
    (("retention.ms", SET, None), InvalidRequest),
    (("cleanup.policy", APPEND, None), InvalidRequest),
    (("cleanup.policy", APPEND, "vanish"), InvalidSetting),
]


@pytest.mark.parametrize(("changes", "after"), CHANGED)
def test_a_change_touches_what_it_names(changes, after):
    assert change_settings(KEPT, changes) == after


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_invalid_change_is_refused_with_the_key(change, reason):
    with pytest.raises(reason, match=change[0].replace(".", r"\.")):
        change_settings(KEPT, [change])


def test_one_setting_is_changed_once():
    with pytest.raises(InvalidRequest, match=r"retention\.ms"):
        change_settings(KEPT, [("retention.ms", SET, "1"), ("retention.ms", RESET, None)])


def test_an_item_that_is_there_is_not_appended_again():
    before = {"cleanup.policy": "delete"}
    expected = change_settings({}, [("cleanup.policy", SET, "delete")])

    assert change_settings(before, [("cleanup.policy", APPEND, "delete")]) == expected
    assert change_settings(before, [("cleanup.policy", SUBTRACT, "compact")]) == expected


# -- the commit ----------------------------------------------------------------------------------


def test_a_change_holds_when_it_is_recorded_and_applied():
    room = Room()
    topic = room.create("orders", partition_count=2, settings={"retention.ms": "5"})
    partition = topic.partitions[0]
    commit = room.cluster.plan_alter(ORDERS, {"max.message.bytes": "100", "flush": "interval"})
    partition.append(batch(value=b"x" * 200), now_ms=0)
    assert room.cluster.pending_change(ORDERS) is commit.done

    altered = room.carry_out(commit)

    assert room.cluster.topic(ORDERS) is altered is room.cluster.topic_by_id(topic.topic_id)
    assert altered.settings == {"max.message.bytes": "100", "flush": "interval"}
    assert altered.partitions == topic.partitions, "whoever holds a partition goes on with it"
    with pytest.raises(TooLarge):
        partition.append(batch(value=b"x" * 200), now_ms=0)
    assert [each.log.acks_from_memory for each in altered.partitions] == [True, True]
    assert altered.row == room.meta.state.topics[topic.row.key]
    assert altered.row.epoch == topic.row.epoch + 1
    assert room.cluster.pending_change(ORDERS) is None
    assert room.cluster.generation == 1


def test_a_topic_is_changed_by_one_at_a_time():
    room = Room()
    room.create("orders")
    first = room.cluster.plan_alter(ORDERS, {"retention.ms": "1"})

    with pytest.raises(InvalidRequest):
        room.cluster.plan_alter(ORDERS, {"retention.ms": "2"})
    first.abandon(PreconditionFailed("x"))

    assert room.carry_out(room.cluster.plan_alter(ORDERS, {"retention.ms": "3"}))


def test_a_topic_that_goes_is_not_changed():
    room = Room()
    with pytest.raises(UnknownTopic):
        room.cluster.plan_alter(ORDERS, {})
    room.create("orders")
    room.cluster.plan_delete(ORDERS)

    with pytest.raises(UnknownTopic):
        room.cluster.plan_alter(ORDERS, {})


def test_a_change_that_was_outrun_leaves_everything_as_it_is():
    room = Room()
    topic = room.create("orders")
    commit = room.cluster.plan_alter(ORDERS, {"retention.ms": "1"})
    row = topic.row
    room.meta.write_now([], [])

    assert isinstance(commit.abandon(PreconditionFailed("changed elsewhere")), UnknownTopic)
    assert room.cluster.topic(ORDERS) is topic
    assert topic.row is row


def test_a_change_survives_in_meta():
    room = Room()
    room.create("orders")
    room.carry_out(room.cluster.plan_alter(ORDERS, {"flush": "interval"}))

    again = Room(room.meta, room.log)

    assert again.cluster.topic(ORDERS).partitions[0].acks_from_memory
