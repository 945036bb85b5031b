"""Rules of administrators for TubeMQ's groups: access, speed; stored, bounded, with ids."""

from __future__ import annotations

import pytest

from tests.broker.topics.test_namespaces import House
from trilogue.broker.errors import ConcurrentChange, InUse, InvalidSetting
from trilogue.broker.names import parse_kafka
from trilogue.broker.settings.topic_settings import TUBEMQ_DELETED, TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE
from trilogue.broker.tubemq import group_rules
from trilogue.broker.tubemq.flow_control import NO_RULES
from trilogue.broker.tubemq.group_rules import (
    NO_FLOW_CONTROL,
    BrokerRecord,
    ClusterRecord,
    ConsumeRecord,
    DenialReason,
    FlowControlText,
    TopicRecord,
    TubeGroupRecord,
    check_group,
    next_flow_text,
)
from trilogue.log.errors import CorruptLog
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import PutSetting

PLANES = parse_kafka("planes")
SLOW = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":400}]}]'
SLOWER = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":800}]}]'


@pytest.fixture
def house():
    return House()


# -- who may read


def test_group_without_rules_may_consume(house):
    assert house.broker.rules.may_consume("any", PLANES) is None


def test_of_a_topic_for_named_groups_the_others_are_450(house):
    rules = house.broker.rules
    house.carry_out(rules.plan_topic(PLANES, TopicRecord(named_groups_only=True)))
    house.carry_out(rules.plan_consume("named", PLANES, ConsumeRecord()))

    denied = rules.may_consume("other", PLANES)

    assert rules.may_consume("named", PLANES) is None
    assert denied is not None
    assert denied.reason is DenialReason.GROUP_FORBIDDEN
    assert rules.may_consume("other", parse_kafka("ships")) is None


def test_a_group_on_the_black_list_of_a_topic_is_450_with_the_reason(house):
    rules = house.broker.rules
    record = ConsumeRecord(may=False, reason="too loud")
    house.carry_out(rules.plan_consume("bad", PLANES, record))

    denied = rules.may_consume("bad", PLANES)

    assert denied is not None
    assert denied.reason is DenialReason.GROUP_FORBIDDEN
    assert "too loud" in denied.text


@pytest.mark.parametrize(
    ("allowed", "requested", "stated"),
    [
        (("a", "b"), (), "must set"),
        (("a", "b"), ("a", "c"), "unauthorized filter conditions"),
        ((), ("a",), "not allowed to consume any"),
    ],
)
def test_a_group_that_needs_filters_is_455_without_or_with_others(
    house, allowed, requested, stated
):
    rules = house.broker.rules
    record = ConsumeRecord(filtered=True, filters=allowed)
    house.carry_out(rules.plan_consume("g", PLANES, record))

    denied = rules.may_consume("g", PLANES, requested)

    assert denied is not None
    assert denied.reason is DenialReason.CONTENT_FORBIDDEN
    assert stated in denied.text


def test_a_group_with_some_of_its_filters_may_read(house):
    rules = house.broker.rules
    record = ConsumeRecord(filtered=True, filters=("a", "b"))
    house.carry_out(rules.plan_consume("g", PLANES, record))

    assert rules.may_consume("g", PLANES, ("b",)) is None


# -- how fast


def test_unset_flow_control_is_blank(house):
    assert house.broker.rules.flow("any") == NO_FLOW_CONTROL
    assert house.broker.rules.default_flow.text == ""
    assert house.broker.rules.default_flow.id == -2


def test_the_id_of_a_flow_changes_with_its_text_and_never_comes_back(house):
    rules = house.broker.rules
    ids = []
    for text, holds in ((SLOW, True), (SLOWER, True), (SLOW, True), (SLOW, False), ("", False)):
        flow = next_flow_text(rules.cluster.flow, text, holds=holds, now_ms=1_000)
        house.carry_out(rules.plan_cluster(ClusterRecord(flow)))
        ids.append(rules.default_flow.id)

    assert sorted(set(ids)) == ids
    assert rules.default_flow.text == ""
    assert rules.default_flow.rules is NO_RULES


def test_the_same_text_again_has_the_same_id():
    before = next_flow_text(FlowControlText(), SLOW, holds=True, now_ms=1_000)

    assert next_flow_text(before, SLOW, holds=True, now_ms=9_000) is before


def test_the_flow_of_a_group_is_its_own(house):
    rules = house.broker.rules
    flow = next_flow_text(FlowControlText(), SLOW, holds=True, now_ms=5)
    house.carry_out(rules.plan_group("g", TubeGroupRecord(flow)))

    assert rules.flow("g").text == SLOW
    assert rules.flow("g").rules.empty_pause_ms(3) == 400
    assert rules.flow("h") == NO_FLOW_CONTROL


def test_a_flow_that_no_client_could_read_is_refused(house):
    with pytest.raises(InvalidSetting):
        house.broker.rules.plan_cluster(ClusterRecord(FlowControlText(1, "[{}]", holds=True)))
    with pytest.raises(InvalidSetting):
        house.broker.rules.plan_group(
            "g", TubeGroupRecord(FlowControlText(1, "nonsense", holds=True))
        )


# -- topics and the node


def test_an_administrator_stops_writing_and_reading_of_one_topic_or_all(house):
    rules, topic = house.broker.rules, house.create_topic("orders")
    assert rules.accepts_publish(topic)
    assert rules.accepts_subscribe(topic)

    topic.settings[TUBEMQ_PUBLISH] = "false"
    assert not rules.accepts_publish(topic)
    assert rules.accepts_subscribe(topic)
    topic.settings[TUBEMQ_SUBSCRIBE] = "false"
    assert not rules.accepts_subscribe(topic)
    topic.settings.clear()
    house.carry_out(rules.plan_broker(BrokerRecord(publishes=False, subscribes=False)))
    assert not rules.accepts_publish(topic)
    assert not rules.accepts_subscribe(topic)


def test_a_topic_that_was_taken_from_tubemq_is_not_deployed(house):
    rules, topic = house.broker.rules, house.create_topic("orders")
    topic.settings[TUBEMQ_DELETED] = "true"

    assert not rules.is_deployed(topic)
    assert not rules.accepts_publish(topic)
    assert not rules.accepts_subscribe(topic)


def test_the_largest_message_is_the_topics_then_the_clusters_then_a_mebibyte(house):
    rules, topic = house.broker.rules, house.create_topic("orders")
    own = house.create_topic("own", settings={"max.message.bytes": "2000"})

    assert rules.message_size_max(topic) == 1 << 20
    house.carry_out(rules.plan_cluster(ClusterRecord(message_mib_max=3)))
    assert rules.message_size_max(topic) == 3 << 20
    assert rules.message_size_max(own) == 2000
    with pytest.raises(InvalidSetting):
        rules.plan_cluster(ClusterRecord(message_mib_max=16))


# -- stored, read back, bounded


def test_all_of_it_is_there_after_a_restart(house):
    rules = house.broker.rules
    flow = next_flow_text(FlowControlText(), SLOW, holds=True, now_ms=5)
    house.carry_out(rules.plan_cluster(ClusterRecord(flow, message_mib_max=2)))
    house.carry_out(rules.plan_broker(BrokerRecord(publishes=False)))
    house.carry_out(rules.plan_topic(PLANES, TopicRecord(named_groups_only=True)))
    house.carry_out(rules.plan_group("g", TubeGroupRecord(flow)))
    house.carry_out(rules.plan_consume("g", PLANES, ConsumeRecord(filtered=True, filters=("a",))))

    after = House(house.meta).broker.rules

    assert after.default_flow == rules.default_flow
    assert after.flow("g") == rules.flow("g")
    assert (after.cluster, after.broker) == (rules.cluster, rules.broker)
    assert list(after.every_consume()) == list(rules.every_consume())
    assert after.may_consume("h", PLANES) == rules.may_consume("h", PLANES)


def test_removed_rules_are_gone_and_listeners_are_notified(house):
    rules = house.broker.rules
    received: list[int] = []
    rules.listeners.append(lambda: received.append(1))
    house.carry_out(rules.plan_topic(PLANES, TopicRecord(named_groups_only=True)))
    house.carry_out(rules.plan_group("g", TubeGroupRecord(FlowControlText(3, SLOW, holds=True))))
    house.carry_out(rules.plan_consume("g", PLANES, ConsumeRecord(may=False)))

    house.carry_out(rules.plan_topic(PLANES, None))
    house.carry_out(rules.plan_group("g", None))
    house.carry_out(rules.plan_consume("g", PLANES, None))

    assert rules.may_consume("g", PLANES) is None
    assert rules.flow("g") == NO_FLOW_CONTROL
    assert len(received) == 6
    assert not [key for key in house.meta.state.settings if key.startswith("tubemq/")]


def test_conflicting_rule_change_raises_concurrent_change(house):
    rules = house.broker.rules
    late = rules.plan_group("g", TubeGroupRecord())
    house.carry_out(rules.plan_group("g", TubeGroupRecord(FlowControlText(3, SLOW, holds=True))))

    with pytest.raises(ConcurrentChange):
        house.carry_out(late)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a\tb", "x" * 1_025, "a\x00"])
def test_a_name_that_no_group_has_is_refused(name):
    with pytest.raises(InvalidSetting):
        check_group(name)


@pytest.mark.parametrize("filters", [("",), ("a,b",), ("x" * 257,), tuple(map(str, range(501)))])
def test_filters_that_clients_cannot_send_are_refused(house, filters):
    with pytest.raises(InvalidSetting):
        house.broker.rules.plan_consume("g", PLANES, ConsumeRecord(filters=filters))


def test_a_reason_has_a_length(house):
    with pytest.raises(InvalidSetting):
        house.broker.rules.plan_consume("g", PLANES, ConsumeRecord(reason="x" * 1_025))


def test_there_are_only_so_many_rules(house, monkeypatch):
    monkeypatch.setattr(group_rules, "RECORDS_MAX", 1)
    rules = house.broker.rules
    house.carry_out(rules.plan_consume("g", PLANES, ConsumeRecord()))
    house.carry_out(rules.plan_group("g", TubeGroupRecord()))
    house.carry_out(rules.plan_topic(PLANES, TopicRecord()))

    rules.plan_consume("g", PLANES, ConsumeRecord(may=False))
    for plan in (
        lambda: rules.plan_consume("h", PLANES, ConsumeRecord()),
        lambda: rules.plan_group("h", TubeGroupRecord()),
        lambda: rules.plan_topic(parse_kafka("ships"), TopicRecord()),
    ):
        with pytest.raises(InUse):
            plan()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("tubemq/cluster", "nonsense"),
        ("tubemq/group/g", '{"flow": 3}'),
        ("tubemq/cluster", '{"flow": {"id": 3, "text": "nonsense", "holds": true}}'),
    ],
)
def test_unreadable_group_rule_raises_corrupt_log(key, text):
    meta = MemoryMeta(b"c" * 16, 1, 5)
    meta.write_now([PutSetting(key, text)])

    with pytest.raises(CorruptLog):
        House(meta)
