"""Records of `__consumer_offsets` and `__transaction_state`, as Kafka 4.3 writes them.

    OffsetCommitKey v1        group | topic | i32 partition
    OffsetCommitValue v3      i64 offset | i32 leader epoch | metadata | i64 commit timestamp
                      v1      i64 offset | metadata | i64 commit timestamp | i64 expiry timestamp
    GroupMetadataKey v2       group
    GroupMetadataValue v3     protocol type | i32 generation | protocol or null | leader or null |
                              i64 since | i32 count | count x member
    member                    id | instance or null | client id | host | i32 rebalance timeout |
                              i32 session timeout | bytes subscription | bytes assignment
    TransactionLogKey v0      transactional id
    TransactionLogValue v0    i64 producer id | i16 epoch | i32 timeout | i8 status |
                              i32 count | count x (topic | i32 count | count x i32 partition) |
                              i64 changed | i64 started

Each begins with an i16, a key with its kind and a value with its version. Groups of the other kinds
are in `groups/group_records.py`. Texts have a length of i16, bytes one of i32. A record without a
value says that its key is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

OFFSET_KEY, GROUP_KEY, TRANSACTION_KEY = 1, 2, 0
OFFSET_VALUE, EXPIRING_VALUE, GROUP_VALUE, TRANSACTION_VALUE = 3, 1, 3, 0
NO_EXPIRY: Final = -1
TEXT_MAX: Final = 0x7FFF

_VERSION = Struct(">h")
_SIZE = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_OFFSET = Struct(">hqi")
_EXPIRING = Struct(">hq")
_TIMES = Struct(">qq")
_TIMEOUTS = Struct(">ii")
_TRANSACTION = Struct(">hqhib")
_NULL = _SIZE.pack(-1)


class StoredMember(NamedTuple):
    """A member in the record of its group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


def encode_key(kind: int, *texts: str) -> bytes:
    """Encode the kind of a record and the texts that its key begins with."""
    return b"".join((_VERSION.pack(kind), *map(_text, texts)))


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    """Encode an OffsetCommitKey."""
    return encode_key(OFFSET_KEY, group, topic) + _INT.pack(partition)


def encode_offset_value(
    offset: int, leader_epoch: int, metadata: str, committed_ms: int, expires_ms: int = NO_EXPIRY
) -> bytes:
    """Encode an OffsetCommitValue; of a client that named a retention, with the end of it."""
    if expires_ms == NO_EXPIRY:
        head = _OFFSET.pack(OFFSET_VALUE, offset, leader_epoch)
        return head + _text(metadata) + _LONG.pack(committed_ms)
    head = _EXPIRING.pack(EXPIRING_VALUE, offset)
    return head + _text(metadata) + _TIMES.pack(committed_ms, expires_ms)


def encode_group_key(group: str) -> bytes:
    """Encode a GroupMetadataKey."""
    return encode_key(GROUP_KEY, group)


def encode_group_value(
    protocol_type: str,
    generation: int,
    *,
    protocol: str | None,
    leader: str | None,
    since_ms: int,
    members: Sequence[StoredMember],
) -> bytes:
    """Encode a GroupMetadataValue."""
    parts = [
        _VERSION.pack(GROUP_VALUE),
        _text(protocol_type),
        _INT.pack(generation),
        _text(protocol),
        _text(leader),
        _LONG.pack(since_ms),
        _INT.pack(len(members)),
    ]
    for each in members:
        parts += map(_text, each[:4])
        parts += (
            _TIMEOUTS.pack(each.rebalance_timeout_ms, each.session_timeout_ms),
            _INT.pack(len(each.subscription)),
            each.subscription,
            _INT.pack(len(each.assignment)),
            each.assignment,
        )
    return b"".join(parts)


def encode_transaction_key(transactional_id: str) -> bytes:
    """Encode a TransactionLogKey."""
    return encode_key(TRANSACTION_KEY, transactional_id)


def encode_transaction_value(
    producer_id: int,
    epoch: int,
    *,
    timeout_ms: int,
    status: int,
    partitions: Mapping[str, Iterable[int]],
    changed_ms: int,
    started_ms: int,
) -> bytes:
    """Encode a TransactionLogValue."""
    head = _TRANSACTION.pack(TRANSACTION_VALUE, producer_id, epoch, timeout_ms, status)
    parts = [head, _INT.pack(len(partitions))]
    for topic, some in partitions.items():
        numbers = [*some]
        parts += (_text(topic), _INT.pack(len(numbers)), *map(_INT.pack, numbers))
    parts.append(_TIMES.pack(changed_ms, started_ms))
    return b"".join(parts)


def _text(text: str | None) -> bytes:
    if text is None:
        return _NULL
    encoded = text.encode()[:TEXT_MAX]
    return _SIZE.pack(len(encoded)) + encoded
