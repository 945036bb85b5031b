"""Metadata of classic members inside JoinGroup (`Subscription`) and SyncGroup (`Assignment`).

Both are an int16 version and the fields of that version. A reader decodes a newer version by the
fields that it knows, so bytes may remain. The broker passes them through; clients, and `trilogue
groups`, decode them.
"""

from __future__ import annotations

from typing import TypeVar

from trilogue.wire.errors import WireError
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.schema import Bytes, blob, int32, message, since, string, table

M = TypeVar("M")


@message()
class OwnedPartitions:
    """Partitions of one topic that the member owns."""

    topic: string = since(1)
    partitions: list[int32] = since(1)


@message(versions=(0, 3))
class Subscription:
    """The topics of a member. v1 owned partitions · v2 generation · v3 rack."""

    topics: list[string] = since(0)
    user_data: blob | None = since(0, null=0, default=None)
    owned_partitions: list[OwnedPartitions] = since(1)
    generation_id: int32 = since(2, default=-1)
    rack_id: string | None = since(3, null=3, default=None)


@message()
class AssignedPartitions:
    """Partitions of one topic that are assigned to the member."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message(versions=(0, 3))
class Assignment:
    """The assignment of a member; the same in all versions."""

    assigned_partitions: list[AssignedPartitions] = since(0)
    user_data: blob | None = since(0, null=0, default=None)


def decode_subscription(data: Bytes) -> Subscription:
    """Decode a subscription; raises WireError.

    Of a version whose own fields are not there (platformatic-kafka writes version 1 without owned
    partitions) the fields of version 0, by which Kafka's coordinator reads topics.
    """
    try:
        return _decode(Subscription, data)
    except WireError:
        if len(data) < 2 or data[0] >= 0x80:  # no version, or one below zero
            raise
        return decoder(Subscription, 0)(data, 2)[0]


def encode_subscription(subscription: Subscription, version: int = 3) -> bytes:
    """Encode a subscription."""
    return _encode(Subscription, subscription, version)


def decode_assignment(data: Bytes) -> Assignment:
    """Decode an assignment; raises WireError."""
    return _decode(Assignment, data)


def encode_assignment(assignment: Assignment, version: int = 3) -> bytes:
    """Encode an assignment."""
    return _encode(Assignment, assignment, version)


def _decode(cls: type[M], data: Bytes) -> M:
    if len(data) < 2:
        raise WireError(f"{cls.__name__} without a version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise WireError(f"{cls.__name__} of version {version}")
    found, _ = decoder(cls, min(version, table(cls).last))(data, 2)
    return found


def _encode(cls: type[M], content: M, version: int) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    encoder(cls, version)(content, out)
    return bytes(out)
