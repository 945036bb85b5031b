"""Subscriptions and assignments of classic members, decoded and encoded for the broker."""

from __future__ import annotations

import pytest

from trilogue.broker.groups.group import MemberSubscription
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka.groups.member_metadata import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from trilogue.wire.kafka.groups.member_metadata import (
    AssignedPartitions,
    Assignment,
    OwnedPartitions,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

T = parse_kafka("t")


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_in_every_version(version: int):
    subscription = Subscription(
        topics=["orders", "acme/shop/bills"],
        user_data=b"u",
        owned_partitions=[OwnedPartitions(topic="orders", partitions=[0, 2])] if version else [],
        generation_id=7 if version >= 2 else -1,
        rack_id="r" if version == 3 else None,
    )

    assert read_subscription(encode_subscription(subscription, version)) == MemberSubscription(
        frozenset({parse_kafka("orders"), parse_kafka("acme/shop/bills")}),
        ((parse_kafka("orders"), (0, 2)),) if version else (),
        7 if version >= 2 else -1,
        "r" if version == 3 else None,
        b"u",
    )


def test_a_subscription_is_read_without_invalid_names():
    subscription = Subscription(topics=["a b", "orders"])

    decoded = read_subscription(encode_subscription(subscription))

    assert decoded is not None
    assert decoded.topics == {parse_kafka("orders")}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_bytes_that_are_no_subscription_are_none(metadata: bytes):
    assert read_subscription(metadata) is None


@pytest.mark.parametrize(
    ("metadata", "version"),
    [(b"\0\0...", 0), (b"\0\2", 2), (b"\0\3", 3), (b"\0\7", 3), (b"\xff\xff", 0), (b"", 0)],
)
def test_an_assignment_is_written_in_the_version_of_the_member(metadata, version):
    assignment = write_assignment({T: (1, 2)}, metadata)

    assert int.from_bytes(assignment[:2], "big") == version
    (topic,) = decode_assignment(assignment).assigned_partitions
    assert (topic.topic, topic.partitions) == ("t", [1, 2])


def test_an_assignment_is_read_without_invalid_names():
    assigned = [
        AssignedPartitions(topic="t", partitions=[0]),
        AssignedPartitions(topic="a/b", partitions=[1]),
    ]

    assignment = read_assignment(encode_assignment(Assignment(assigned_partitions=assigned)))

    assert assignment == {T: (0,)}


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\0\0\5", b"\xff\xff\0\0"])
def test_bytes_that_are_no_assignment_are_none(data):
    assert read_assignment(data) is None
