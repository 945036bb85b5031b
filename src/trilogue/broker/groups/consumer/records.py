"""The rows of a consumer group and of its members, as they are stored (membership.py).

group   u8 kind 1 | u8 version 1 | u32 epoch
member  u8 version 1 | i32 epoch | i32 previous epoch | u8 state | i32 rebalance timeout, ms |
        u8 which texts are there | text instance | text rack | text assignor | text client id |
        text host | text pattern | u32 count, count x (text tenant | text namespace |
        text topic) | partitions that it has to revoke | u32 count, count x (i32 epoch |
        partitions that it owns since then) | u8 speaks as a classic member |
        u32 session timeout, ms, and its protocols if it does
partitions =  u32 count, count x (16 bytes topic id | u32 count | count x u32)
text =        u16 length, UTF-8
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import Final

from trilogue.broker.facts import VERSION, ByteReader
from trilogue.broker.groups.classic.records import (
    encode_protocols,
    encode_texts,
    read_protocols,
    read_text,
)
from trilogue.broker.groups.consumer.assignors import (
    PartitionIndexes,
)
from trilogue.broker.groups.consumer.members import ClassicMemberMetadata, ConsumerGroupMember
from trilogue.broker.groups.reconciliation import STATES
from trilogue.broker.names import TopicName

CONSUMER_ROW: Final = 1  # the first byte of the group's row

_GROUP: Final = Struct(">BBI")
_MEMBER: Final = Struct(">BiiBiB")
_COUNT: Final = Struct(">I")
_EPOCH: Final = Struct(">i")
_FLAG: Final = Struct(">B")
_TOPIC: Final = Struct(">16sI")
_ID_SIZE: Final = 16


def is_consumer_group(row: bytes) -> bool:
    """Whether the row of a group is one of these."""
    return row[:1] == bytes([CONSUMER_ROW])


def encode_group(epoch: int) -> bytes:
    """Encode the row of a group."""
    return _GROUP.pack(CONSUMER_ROW, VERSION, epoch)


def decode_group(data: bytes) -> int:
    """Return the epoch in the row of a group; CorruptLog."""
    with ByteReader("consumer group", data) as reader:
        _, version, epoch = reader.read_struct(_GROUP)
        reader.check_version(version)
        return epoch


def encode_member(member: ConsumerGroupMember) -> bytes:
    """Encode the row of a member."""
    optional = member.instance_id, member.rack, member.assignor
    there = sum((text is not None) << bit for bit, text in enumerate(optional))
    state = STATES.index(member.state)
    head = _MEMBER.pack(
        VERSION, member.epoch, member.previous_epoch, state, member.rebalance_timeout_ms, there
    )
    parts = [
        head,
        encode_texts(text or "" for text in optional),
        encode_texts((member.client_id, member.client_host, member.pattern)),
        _COUNT.pack(len(member.topics)),
        *(encode_texts(name) for name in sorted(member.topics)),
        _encode_partitions(member.revoking),
        _COUNT.pack(len(member.assignment_epochs)),
    ]
    for epoch, partitions in member.assignment_epochs:
        parts += (_EPOCH.pack(epoch), _encode_partitions(partitions))
    classic = member.classic
    parts.append(_FLAG.pack(classic is not None))
    if classic is not None:
        parts += (_COUNT.pack(classic.session_timeout_ms), encode_protocols(classic.protocols))
    return b"".join(parts)


def decode_member(member_id: str, data: bytes) -> ConsumerGroupMember:
    """Decode the row of a member; CorruptLog."""
    with ByteReader("consumer group member", data) as reader:
        version, epoch, previous, state, rebalance_ms, there = reader.read_struct(_MEMBER)
        reader.check_version(version)
        if state >= len(STATES):
            raise ValueError(f"a member in state {state}")
        texts = [read_text(reader) for _ in range(3)]
        instance_id, rack, assignor = (
            text if there >> bit & 1 else None for bit, text in enumerate(texts)
        )
        client_id, client_host, pattern = (read_text(reader) for _ in range(3))
        (count,) = reader.read_struct(_COUNT)
        topics = frozenset(TopicName(*(read_text(reader) for _ in range(3))) for _ in range(count))
        revoking = _read_partitions(reader)
        (count,) = reader.read_struct(_COUNT)
        epochs = [(reader.read_struct(_EPOCH)[0], _read_partitions(reader)) for _ in range(count)]
        classic = None
        if reader.read_struct(_FLAG)[0]:
            (session_ms,) = reader.read_struct(_COUNT)
            classic = ClassicMemberMetadata(session_ms, read_protocols(reader))
        member = ConsumerGroupMember(
            member_id,
            instance_id=instance_id,
            rack=rack,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=rebalance_ms,
            topics=topics,
            pattern=pattern,
            assignor=assignor,
            classic=classic,
            epoch=epoch,
            previous_epoch=previous,
            state=STATES[state],
            revoking=revoking,
            assignment_epochs=epochs,
        )
        member.restore_assigned()
        return member


def _encode_partitions(partitions: PartitionIndexes) -> bytes:
    parts = [_COUNT.pack(len(partitions))]
    for topic_id, indexes in partitions.items():
        numbers = array("I", sorted(indexes))
        if sys.byteorder == "little":
            numbers.byteswap()
        parts += (_TOPIC.pack(topic_id, len(numbers)), numbers.tobytes())
    return b"".join(parts)


def _read_partitions(reader: ByteReader) -> PartitionIndexes:
    found: dict[bytes, frozenset[int]] = {}
    for _ in range(*reader.read_struct(_COUNT)):
        topic_id = reader.read_bytes(_ID_SIZE)
        (count,) = reader.read_struct(_COUNT)
        numbers = array("I", reader.read_bytes(count * 4))
        if sys.byteorder == "little":
            numbers.byteswap()
        found[topic_id] = frozenset(numbers)
    return found
