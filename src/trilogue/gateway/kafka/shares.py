"""What classic members of consumer groups get (`Assignment` v0-v3), from and to the broker's words.

The broker passes the bytes of classic groups on unread. It has them read when a classic group
becomes a consumer group, and written for classic members of consumer groups, in the version in
which the member spoke of itself.
"""

from __future__ import annotations

from trilogue.broker.consumer_group_classic import NamedParts, Shares
from trilogue.broker.errors import InvalidName
from trilogue.broker.names import parse_kafka, spelled_kafka
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.membership import (
    AssignedPartitions,
    Assignment,
    decode_assignment,
    encode_assignment,
)
from trilogue.wire.kafka.schema import table

VERSION_MAX = table(Assignment).last


def read_share(data: bytes) -> NamedParts | None:
    """Read a share, without names that no topic can have; None for bytes that are no such thing."""
    try:
        said = decode_assignment(data)
    except WireError:
        return None
    found = {}
    for each in said.assigned_partitions:
        try:
            found[parse_kafka(each.topic)] = tuple(each.partitions)
        except InvalidName:
            continue
    return found


def write_share(parts: NamedParts, like: bytes) -> bytes:
    """Write a share in the version of the member's own bytes, as far as we know it."""
    version = int.from_bytes(like[:2], "big", signed=True)
    assigned = [
        AssignedPartitions(topic=spelled_kafka(name), partitions=list(indexes))
        for name, indexes in parts.items()
    ]
    share = Assignment(assigned_partitions=assigned, user_data=None)
    return encode_assignment(share, min(max(version, 0), VERSION_MAX))


SHARES = Shares(read_share, write_share)
