"""Metadata of classic members, in every version and in unknown newer ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.kafka.instances import messages
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.groups.member_metadata import (
    AssignedPartitions,
    Assignment,
    OwnedPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)


@given(st.data(), st.integers(0, 3))
def test_subscriptions_and_assignments_come_back_as_they_went(data: st.DataObject, version: int):
    subscription = data.draw(messages(Subscription, version))
    share = data.draw(messages(Assignment, version))
    assert isinstance(subscription, Subscription)
    assert isinstance(share, Assignment)

    assert decode_subscription(encode_subscription(subscription, version)) == subscription
    assert decode_assignment(encode_assignment(share, version)) == share


def test_the_bytes_of_a_subscription():
    subscription = Subscription(
        topics=["a"],
        user_data=b"u",
        owned_partitions=[OwnedPartitions(topic="a", partitions=[1])],
        generation_id=2,
        rack_id="r",
    )

    assert encode_subscription(subscription) == bytes.fromhex(
        "0003"  # version
        "00000001 0001 61"  # topics
        "00000001 75"  # user data
        "00000001 0001 61 00000001 00000001"  # owned partitions
        "00000002"  # generation
        "0001 72"  # rack
    )
    assert encode_subscription(subscription, 0) == bytes.fromhex(
        "0000 00000001 0001 61 00000001 75"
    )


def test_the_bytes_of_an_assignment():
    share = Assignment(assigned_partitions=[AssignedPartitions(topic="a", partitions=[0, 1])])

    assert encode_assignment(share, 1) == bytes.fromhex(
        "0001 00000001 0001 61 00000002 00000000 00000001 ffffffff"
    )


def test_a_newer_version_is_read_as_far_as_it_is_known():
    newer = bytes.fromhex("0009") + encode_subscription(Subscription(topics=["a"]))[2:] + b"more"

    assert decode_subscription(newer).topics == ["a"]


@pytest.mark.parametrize("version", [1, 2, 3, 9])
def test_a_version_without_its_own_fields_is_read_as_version_0(version: int):
    """As platformatic-kafka writes version 1, and as a group reads topics in Kafka."""
    first = encode_subscription(Subscription(topics=["a"], user_data=b"u"), 0)

    decoded = decode_subscription(version.to_bytes(2, "big") + first[2:])

    assert decoded == Subscription(topics=["a"], user_data=b"u")


@pytest.mark.parametrize("raw", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_broken_blobs_are_wire_errors(raw: bytes):
    with pytest.raises(WireError):
        decode_subscription(raw)
    with pytest.raises(WireError):
        decode_assignment(raw)
