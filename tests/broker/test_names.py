from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.errors import InvalidName
from trilogue.broker.names import (
    NameDefaults,
    NamespaceName,
    PulsarName,
    TopicName,
    format_kafka,
    format_tubemq,
    is_kafka_name,
    is_tubemq_name,
    parse_kafka,
    parse_namespace,
    parse_pulsar,
    parse_tubemq,
)

SPELLINGS = [
    ("orders", TopicName("public", "default", "orders")),
    ("a.B_c-9", TopicName("public", "default", "a.B_c-9")),
    ("x" * 249, TopicName("public", "default", "x" * 249)),
    ("acme/shop/orders", TopicName("acme", "shop", "orders")),
    ("acme/eu/shop/orders", TopicName("acme", "eu/shop", "orders")),
    ("a=b:c/d=e/orders", TopicName("a=b:c", "d=e", "orders")),
    ("orders-partition-", TopicName("public", "default", "orders-partition-")),
    ("orders-partition-x", TopicName("public", "default", "orders-partition-x")),
    ("orders-partition-3x", TopicName("public", "default", "orders-partition-3x")),
    ("partition-3", TopicName("public", "default", "partition-3")),
]

REFUSED = [
    "",
    ".",
    "..",
    "x" * 250,
    "two parts",
    "tenant/topic",
    "a/b/c/d/e",
    "/default/orders",
    "public//orders",
    "public/default/",
    "public/./orders",
    "public/../orders",
    "püblic/default/orders",
    "ordérs",
    "orders\n",
    "orders\0",
    "orders:1",
    "٣",
    "orders-partition-0",
    "orders-partition-12",
    "acme/shop/orders-partition-1",
    "-partition-1",
]


@pytest.mark.parametrize(("text", "name"), SPELLINGS)
def test_a_name_is_read_and_written_back(text: str, name: TopicName):
    assert parse_kafka(text) == name
    assert format_kafka(name) == text


@pytest.mark.parametrize("text", REFUSED)
def test_a_name_that_no_topic_can_have_is_refused(text: str):
    with pytest.raises(InvalidName):
        parse_kafka(text)


@pytest.mark.parametrize(("text", "name"), SPELLINGS)
def test_tubemqs_names_are_kafkas_without_the_marks_of_its_own_texts(text: str, name: TopicName):
    """Wire facts, section 3: `brokerId:topic:partitionId`, `partKey=offset`."""
    assert is_tubemq_name(name) is not any(mark in text for mark in ":=")
    if is_tubemq_name(name):
        assert parse_tubemq(text) == name
        assert format_tubemq(name) == text
    else:
        with pytest.raises(InvalidName):
            parse_tubemq(text)


@pytest.mark.parametrize("text", [*REFUSED, "a:b", "a=b", "a#b", "a,b", "a@b"])
def test_invalid_tubemq_topic_name_is_refused(text: str):
    with pytest.raises(InvalidName):
        parse_tubemq(text)


def test_a_topic_that_kafka_cannot_spell_is_none_for_tubemq():
    assert not is_tubemq_name(TopicName("public", "default", "größe 1"))


def test_a_listener_has_its_own_defaults():
    defaults = NameDefaults("acme", "shop")

    name = parse_kafka("orders", defaults)

    assert name == TopicName("acme", "shop", "orders")
    assert format_kafka(name, defaults) == "orders"
    assert format_kafka(name) == "acme/shop/orders"


def test_the_default_namespace_may_be_spelled_out():
    assert parse_kafka("public/default/orders") == parse_kafka("orders")


@given(st.text(alphabet="ab/.-_ :=é0partion", max_size=30))
def test_whatever_is_accepted_is_spelled_so_that_it_reads_back(text: str):
    try:
        name = parse_kafka(text)
    except InvalidName:
        return

    assert parse_kafka(format_kafka(name)) == name
    assert parse_kafka(str(name)) == name


PULSAR = [
    ("t", PulsarName(TopicName("public", "default", "t"))),
    ("tn/ns/t", PulsarName(TopicName("tn", "ns", "t"))),
    ("persistent://tn/ns/t", PulsarName(TopicName("tn", "ns", "t"))),
    ("persistent://tn/ns/t-partition-3", PulsarName(TopicName("tn", "ns", "t"), 3)),
    ("t-partition-0", PulsarName(TopicName("public", "default", "t"), 0)),
    ("non-persistent://tn/ns/t", PulsarName(TopicName("tn", "ns", "t"), None, False)),
    ("persistent://tn/cl/ns/t", PulsarName(TopicName("tn", "cl/ns", "t"))),
    ("persistent://tn/ns/a%2Fb", PulsarName(TopicName("tn", "ns", "a%2Fb"))),
    ("größe 1", PulsarName(TopicName("public", "default", "größe 1"))),
    ("t-partition-x", PulsarName(TopicName("public", "default", "t-partition-x"))),
    ("x" * 1_024, PulsarName(TopicName("public", "default", "x" * 1_024))),
]


@pytest.mark.parametrize(("text", "name"), PULSAR)
def test_pulsars_forms_of_a_name_are_read(text: str, name: PulsarName):
    """The forms of a Pulsar name (docs/reference/wire/pulsar.md)."""
    assert parse_pulsar(text) == name
    assert parse_pulsar(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tn/cl/ns/t",
        "tn/t",
        "persistent://t",
        "persistent://tn/t",
        "persistent://tn/cl/ns/a/b",
        "persist://tn/ns/t",
        "://tn/ns/t",
        "persistent://tn/ns/",
        "persistent://tn//t",
        "persistent://t\xfc/ns/t",
        "-partition-1",
        "t-partition-01",
        "t-partition-1234567890",
        "t-partition-1-partition-2",
        "persistent://tn/ns/..",
        "a\0b",
        "a\nb",
        "a\ud800b",
        "\xfc" * 513,
    ],
)
def test_invalid_pulsar_topic_name_is_refused(text: str):
    with pytest.raises(InvalidName):
        parse_pulsar(text)


@given(st.text(alphabet="ab/.-_ :=\xe90partion%", max_size=40), st.booleans())
def test_every_valid_pulsar_name_round_trips(text: str, domain: bool):
    try:
        name = parse_pulsar(f"persistent://{text}" if domain else text)
    except InvalidName:
        return

    assert parse_pulsar(str(name)) == name
    if is_kafka_name(name.topic):
        assert parse_kafka(str(name.topic)) == name.topic


def test_a_namespace_is_read_in_both_forms():
    assert parse_namespace("tn/ns") == NamespaceName("tn", "ns")
    assert parse_namespace("tn/cl/ns") == NamespaceName("tn", "cl/ns")
    for refused in ("tn", "tn/", "/ns", "a/b/c/d", "tn/n s"):
        with pytest.raises(InvalidName):
            parse_namespace(refused)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "names.md"


def test_page_of_topic_names_matches_the_parsers():
    rows = re.findall(r"^\| ([\w, ]+) \| `([^`]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    reported = [row for row in rows if {*row[0].split(", ")} <= {"Kafka", "TubeMQ", "Pulsar"}]
    parsers = {"Kafka": parse_kafka, "TubeMQ": parse_tubemq}

    for doors, spelled, meant in reported:
        canonical = "/".join(re.findall(r"`([^`]+)`", meant)[-3:]) if " / " in meant else meant
        for door in doors.split(", "):
            parse = parsers.get(door)
            name = parse_pulsar(spelled).topic if parse is None else parse(spelled)
            if meant.startswith("understood and refused"):
                assert not parse_pulsar(spelled).persistent
            else:
                assert f"{name!s}" in canonical.replace("`", ""), (door, spelled)
    assert len(reported) == 9
