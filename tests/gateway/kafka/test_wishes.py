from __future__ import annotations

import pytest

from trilogue.broker.any_group import Wishes
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka.wishes import read_wishes
from trilogue.wire.kafka.membership import OwnedPartitions, Subscription, encode_subscription


@pytest.mark.parametrize("version", range(4))
def test_what_a_member_wants_is_read_in_every_version(version: int):
    said = Subscription(
        topics=["orders", "acme/shop/bills"],
        user_data=b"u",
        owned_partitions=[OwnedPartitions(topic="orders", partitions=[0, 2])] if version else [],
        generation_id=7 if version >= 2 else -1,
        rack_id="r" if version == 3 else None,
    )

    assert read_wishes(encode_subscription(said, version)) == Wishes(
        frozenset({parse_kafka("orders"), parse_kafka("acme/shop/bills")}),
        ((parse_kafka("orders"), (0, 2)),) if version else (),
        7 if version >= 2 else -1,
        "r" if version == 3 else None,
        b"u",
    )


def test_names_that_no_topic_can_have_are_nothing_to_wish_for():
    said = Subscription(topics=["a b", "orders"])

    wishes = read_wishes(encode_subscription(said))

    assert wishes is not None
    assert wishes.topics == {parse_kafka("orders")}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_bytes_of_another_kind_are_no_wishes(metadata: bytes):
    assert read_wishes(metadata) is None
