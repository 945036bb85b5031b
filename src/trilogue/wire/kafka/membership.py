"""What members of a consumer group tell each other inside JoinGroup and SyncGroup.

Both blobs are an int16 version and the fields of that version.  Readers take a newer version by
reading the fields they know, so a blob may be longer than what is read of it.  The broker passes
them on unread; clients, and `trilogue groups`, look inside.
"""

from __future__ import annotations

from typing import TypeVar

from trilogue.wire.errors import WireError
from trilogue.wire.kafka.compile import decoder, encoder
from trilogue.wire.kafka.schema import Bytes, blob, int32, message, since, string, table

M = TypeVar("M")


@message()
class OwnedPartitions:
    """Partitions of one topic that the member has."""

    topic: string = since(1)
    partitions: list[int32] = since(1)


@message(versions=(0, 3))
class Subscription:
    """What a member wants: v1 adds what it owns, v2 since which generation, v3 its rack."""

    topics: list[string] = since(0)
    user_data: blob | None = since(0, null=0, default=None)
    owned_partitions: list[OwnedPartitions] = since(1)
    generation_id: int32 = since(2, default=-1)
    rack_id: string | None = since(3, null=3, default=None)


@message()
class AssignedPartitions:
    """Partitions of one topic that the member gets."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message(versions=(0, 3))
class Assignment:
    """What a member gets; the same in all versions."""

    assigned_partitions: list[AssignedPartitions] = since(0)
    user_data: blob | None = since(0, null=0, default=None)


def decode_subscription(data: Bytes) -> Subscription:
    """Read a member's wishes."""
    return _decode(Subscription, data)


def encode_subscription(subscription: Subscription, version: int = 3) -> bytes:
    """Write a member's wishes."""
    return _encode(Subscription, subscription, version)


def decode_assignment(data: Bytes) -> Assignment:
    """Read a member's share."""
    return _decode(Assignment, data)


def encode_assignment(assignment: Assignment, version: int = 3) -> bytes:
    """Write a member's share."""
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
