"""Text fields: parsed, formatted, rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.tubemq.captures import NAMES, recorded
from tests.wire.tubemq.test_vectors import body_of
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.frame import parse_message, parse_request, parse_response
from trilogue.wire.tubemq.methods import find_method
from trilogue.wire.tubemq.text_fields import (
    TEXT_LIMIT,
    BrokerInfo,
    Condition,
    Failure,
    Hosting,
    Partition,
    PartitionKey,
    Subscription,
    TopicInfo,
    TopicMeta,
    held_texts,
    parse_held,
    parse_required,
)

BROKER = BrokerInfo(1, "127.0.0.1", 18123)
HERE = Partition(BROKER, "demo", 0)
CONSUMER = "cap_consumer_192.0.2.2-21003-229904018314-180165797-Pull-1.13.0"

TEXTS = {
    "1:127.0.0.1:18123": BROKER,
    "demo#1:3:1#": TopicInfo("demo", (Hosting(1, 3, 1),)),
    "demo#1:3:2,7:4:1#1048576": TopicInfo("demo", (Hosting(1, 3, 2), Hosting(7, 4, 1)), 1048576),
    "demo#1:2:3:1": TopicMeta("demo", ((Hosting(1, 3, 2), 1),)),
    "1:func:2": PartitionKey(1, "func", 2),
    "1:127.0.0.1:18123#demo:0": HERE,
    f"{CONSUMER}@cap_consumer#1:127.0.0.1:18123#demo:0": Subscription(
        CONSUMER, "cap_consumer", HERE
    ),
    "demo#typeA,typeB": Condition("demo", ("typeA", "typeB")),
    "411:1:127.0.0.1:18123#demo:0": Failure(411, HERE),
}
KINDS = sorted({type(value) for value in TEXTS.values()}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_and_written_again(text: str):
    value = TEXTS[text]

    assert type(value).parse(text) == value
    assert str(value) == text


@given(st.sampled_from(KINDS), st.text("abz019:#@,=- \x00é", max_size=30))
def test_any_text_is_one_or_a_wire_error(kind, text: str):
    try:
        value = kind.parse(text)
    except WireError:
        return
    assert kind.parse(str(value)) == value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    ["", ":", "#", "::", "a:b:c", "1:h:99999", "1:h:-1", "1::5", "x#1", "#1:1:1", "@#1:h:1#t:0",
     "c@#1:h:1#t:0", "411", f"1:{'9' * 20}:1:1", "x" * (TEXT_LIMIT + 1)],
)  # fmt: skip
def test_invalid_text_is_refused_or_round_trips(kind, text: str):
    try:
        value = kind.parse(text)
    except WireError:
        return
    assert str(value).rstrip("#") == text.rstrip("#")


def test_a_partition_has_a_key_without_its_place():
    assert str(HERE.key) == "1:demo:0"


def test_an_empty_port_is_8123():
    assert BrokerInfo.parse("5:host:") == BrokerInfo(5, "host", 8123)
    assert BrokerInfo(2, "::1", 9) == BrokerInfo.parse("2:::1:9")


def test_a_third_part_need_not_be_there():
    assert TopicInfo.parse("demo#1:3:1") == TopicInfo("demo", (Hosting(1, 3, 1),))
    assert TopicInfo.parse("demo##") == TopicInfo("demo", ())


def test_where_a_bound_group_begins():
    required = {PartitionKey(1, "demo", 0): 112, PartitionKey(1, "demo", 1): 56}

    assert parse_required(" 1:demo:0=112 ,,1:demo:1=56") == required
    assert parse_required("") == {}
    for wrong in ("1:demo:0", "1:demo=5", "1:demo:0=x"):
        with pytest.raises(WireError):
            parse_required(wrong)


def test_partitions_of_a_client_balance_consumer_round_trip():
    keys = [PartitionKey(1, "demo", 0), PartitionKey(1, "other", 2), PartitionKey(7, "demo", 1)]

    assert held_texts(keys) == ["demo#1:0,7:1", "other#1:2"]
    assert list(parse_held("demo#1:0,7:1")) == [keys[0], keys[2]]
    assert list(parse_held("demo")) == list(parse_held("demo#")) == []
    for wrong in ("demo#1", "demo#1:0,", "demo#1:x", "demo#:1", "demo#1:2:3"):
        with pytest.raises(WireError):
            list(parse_held(wrong))


FIELDS = {
    "brokerInfos": BrokerInfo,
    "brokerConfigList": BrokerInfo,
    "topicInfos": TopicInfo,
    "topicMetaInfoList": TopicMeta,
    "subscribeInfo": Subscription,
    "partitionInfo": Partition,
    "topicCondition": Condition,
    "failureInfo": Failure,
}


def texts_of(message) -> list[tuple[str, str]]:
    """Return the texts in a message, at any depth, with the names of their fields."""
    found = []
    for field, value in message.ListFields():
        if field.name in FIELDS:
            found += [(field.name, each) for each in value]
        elif field.message_type is not None and not field.is_repeated:
            found += texts_of(value)
    return found


def test_every_recorded_text_is_read_and_written_again():
    seen = set()
    for name in NAMES:
        for frame in recorded(name):
            cut = body_of(frame)
            envelope = parse_request(cut) if frame.is_request else parse_response(cut)
            method = find_method(envelope.method)
            if method is None:  # C++ producers close with a request of no method
                continue
            kind = method.request if frame.is_request else method.response
            for field, text in texts_of(parse_message(kind, envelope.body)):
                assert str(FIELDS[field].parse(text)) == text
                seen.add(field)

    assert seen >= FIELDS.keys() - {"failureInfo"}
