"""What classic members of consumer groups get, as bytes."""

from __future__ import annotations

import pytest

from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka.shares import read_share, write_share
from trilogue.wire.kafka.membership import (
    AssignedPartitions,
    Assignment,
    decode_assignment,
    encode_assignment,
)

T = parse_kafka("t")


@pytest.mark.parametrize(
    ("said", "version"),
    [(b"\0\0...", 0), (b"\0\2", 2), (b"\0\3", 3), (b"\0\7", 3), (b"\xff\xff", 0), (b"", 0)],
)
def test_a_share_is_written_in_the_version_of_the_member(said, version):
    share = write_share({T: (1, 2)}, said)

    assert int.from_bytes(share[:2], "big") == version
    (topic,) = decode_assignment(share).assigned_partitions
    assert (topic.topic, topic.partitions) == ("t", [1, 2])


def test_a_share_is_read_without_names_that_no_topic_can_have():
    assigned = [
        AssignedPartitions(topic="t", partitions=[0]),
        AssignedPartitions(topic="a/b", partitions=[1]),
    ]

    share = read_share(encode_assignment(Assignment(assigned_partitions=assigned)))

    assert share == {T: (0,)}


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\0\0\5", b"\xff\xff\0\0"])
def test_bytes_that_are_no_share_are_none(data):
    assert read_share(data) is None
