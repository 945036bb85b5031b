"""The rows of a classic group and of its members, as they are stored (membership.py).

group   u8 kind 0 | u8 version 1 | u32 generation | u32 members | text protocol type |
        text protocol | text id of the leader
member  u8 version 1 | u32 session timeout, ms | u32 rebalance timeout, ms | u8 static |
        text instance | text client id | text host | u32 length, assignment | u32 count |
        count x (text name | u32 length, metadata)
text =  u16 length, UTF-8
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.facts import VERSION, ByteReader
from trilogue.broker.groups.classic.members import ClassicMember, JoinRequest, MemberHandover

CLASSIC_ROW: Final = 0  # the first byte of the group's row

_GROUP: Final = Struct(">BBII")
_MEMBER: Final = Struct(">BIIB")
_TEXT: Final = Struct(">H")
_SIZE: Final = Struct(">I")
_TEXT_MAX: Final = 0xFFFF

Protocols = tuple[tuple[str, bytes], ...]


class ClassicGroupRow(NamedTuple):
    """A generation of a group."""

    generation: int
    member_count: int
    protocol_type: str
    protocol: str
    leader_id: str


def encode_group(row: ClassicGroupRow) -> bytes:
    """Encode the row of a group."""
    head = _GROUP.pack(CLASSIC_ROW, VERSION, row.generation, row.member_count)
    return head + encode_texts((row.protocol_type, row.protocol, row.leader_id))


def decode_group(data: bytes) -> ClassicGroupRow:
    """Decode the row of a group; CorruptLog."""
    with ByteReader("classic group", data) as reader:
        kind, version, generation, count = reader.read_struct(_GROUP)
        reader.check_version(version)
        if kind != CLASSIC_ROW:
            raise ValueError(f"a group of kind {kind}")
        return ClassicGroupRow(
            generation, count, read_text(reader), read_text(reader), read_text(reader)
        )


def encode_member(member: ClassicMember) -> bytes:
    """Encode the row of a member."""
    static = member.instance_id is not None
    head = _MEMBER.pack(VERSION, member.session_timeout_ms, member.rebalance_timeout_ms, static)
    texts = member.instance_id or "", member.client_id, member.client_host
    return b"".join(
        (
            head,
            encode_texts(texts),
            _SIZE.pack(len(member.assignment)),
            member.assignment,
            encode_protocols(member.protocols),
        )
    )


def decode_member(group: str, protocol_type: str, member_id: str, data: bytes) -> MemberHandover:
    """Decode the row of a member; CorruptLog."""
    with ByteReader("classic member", data) as reader:
        version, session_ms, rebalance_ms, static = reader.read_struct(_MEMBER)
        reader.check_version(version)
        instance_id = read_text(reader)
        client_id, client_host = read_text(reader), read_text(reader)
        assignment = reader.read_bytes(*reader.read_struct(_SIZE))
        request = JoinRequest(
            group=group,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=read_protocols(reader),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            instance_id=instance_id if static else None,
            client_id=client_id,
            client_host=client_host,
        )
        return MemberHandover(request, assignment)


def encode_protocols(protocols: Protocols) -> bytes:
    """Encode the protocols of a member."""
    parts = [_SIZE.pack(len(protocols))]
    for name, metadata in protocols:
        parts += (encode_text(name), _SIZE.pack(len(metadata)), metadata)
    return b"".join(parts)


def read_protocols(reader: ByteReader) -> Protocols:
    """Read the protocols of a member."""
    (count,) = reader.read_struct(_SIZE)
    return tuple(
        (read_text(reader), reader.read_bytes(*reader.read_struct(_SIZE))) for _ in range(count)
    )


def encode_text(text: str) -> bytes:
    """Encode a text; more than 65,535 bytes are cut, which clients' names never have."""
    encoded = text.encode()[:_TEXT_MAX]
    return _TEXT.pack(len(encoded)) + encoded


def encode_texts(texts: Iterable[str]) -> bytes:
    """Encode texts one after the other."""
    return b"".join(map(encode_text, texts))


def read_text(reader: ByteReader) -> str:
    """Read a text."""
    return reader.read_text(*reader.read_struct(_TEXT))
