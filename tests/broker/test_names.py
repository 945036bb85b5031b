from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.errors import InvalidName
from trilogue.broker.names import Defaults, TopicName, parse_kafka, spelled_kafka

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
    assert spelled_kafka(name) == text


@pytest.mark.parametrize("text", REFUSED)
def test_a_name_that_no_topic_can_have_is_refused(text: str):
    with pytest.raises(InvalidName):
        parse_kafka(text)


def test_a_door_has_its_own_defaults():
    defaults = Defaults("acme", "shop")

    name = parse_kafka("orders", defaults)

    assert name == TopicName("acme", "shop", "orders")
    assert spelled_kafka(name, defaults) == "orders"
    assert spelled_kafka(name) == "acme/shop/orders"


def test_the_default_namespace_may_be_spelled_out():
    assert parse_kafka("public/default/orders") == parse_kafka("orders")


@given(st.text(alphabet="ab/.-_ :=é0partion", max_size=30))
def test_whatever_is_accepted_is_spelled_so_that_it_reads_back(text: str):
    try:
        name = parse_kafka(text)
    except InvalidName:
        return

    assert parse_kafka(spelled_kafka(name)) == name
    assert parse_kafka(str(name)) == name
