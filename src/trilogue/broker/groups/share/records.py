"""The rows of a share group and of its members, as they are stored (groups/membership.py).

group   u8 kind 2 | u8 version 1 | u32 epoch
member  u8 version 1 | i32 epoch | u8 has a rack | text rack | text client id | text host |
        u32 count, count x (text tenant | text namespace | text topic)
text =  u16 length, UTF-8
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from trilogue.broker.facts import VERSION, ByteReader
from trilogue.broker.groups.classic.records import encode_texts, read_text
from trilogue.broker.groups.share.members import ShareGroupMember
from trilogue.broker.names import TopicName

SHARE_ROW: Final = 2  # the first byte of the group's row

_GROUP: Final = Struct(">BBI")
_MEMBER: Final = Struct(">BiB")
_COUNT: Final = Struct(">I")


def is_share_group(row: bytes) -> bool:
    """Whether the row of a group is one of these."""
    return row[:1] == bytes([SHARE_ROW])


def encode_group(epoch: int) -> bytes:
    """Encode the row of a group."""
    return _GROUP.pack(SHARE_ROW, VERSION, epoch)


def decode_group(data: bytes) -> int:
    """Return the epoch in the row of a group; CorruptLog."""
    with ByteReader("share group", data) as reader:
        _, version, epoch = reader.read_struct(_GROUP)
        reader.check_version(version)
        return epoch


def encode_member(member: ShareGroupMember) -> bytes:
    """Encode the row of a member."""
    head = _MEMBER.pack(VERSION, member.epoch, member.rack is not None)
    texts = member.rack or "", member.client_id, member.client_host
    names = [encode_texts(name) for name in sorted(member.topics)]
    return head + encode_texts(texts) + _COUNT.pack(len(names)) + b"".join(names)


def decode_member(member_id: str, data: bytes) -> ShareGroupMember:
    """Decode the row of a member; CorruptLog."""
    with ByteReader("share group member", data) as reader:
        version, epoch, has_rack = reader.read_struct(_MEMBER)
        reader.check_version(version)
        rack, client_id, client_host = (read_text(reader) for _ in range(3))
        (count,) = reader.read_struct(_COUNT)
        topics = frozenset(TopicName(*(read_text(reader) for _ in range(3))) for _ in range(count))
        return ShareGroupMember(
            member_id,
            rack if has_rack else None,
            client_id,
            client_host,
            topics,
            epoch,
            previous_epoch=epoch,
        )
