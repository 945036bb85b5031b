"""The rows that a change wrote, as bytes: what a node reads to follow the changes of others.

A record is MessagePack: a list of [table, key, value], with None for a removed row. Snapshots are
not in it, since no store keeps them in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from trilogue.log.segments.extents import Extents
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.meta.operations import NodeRow, PartitionState, SlotRow, TopicKey, TopicRow
from trilogue.meta.state import REMOVED, SNAPSHOTS, VERSION, MetaState, Write

KEY_AND_ROW: Final[dict[str, tuple[Any, Any]]] = {
    "nodes": (int, NodeRow),
    "slots": (int, SlotRow),
    "topics": (TopicKey, TopicRow),
    "topic_keys": (bytes, TopicKey),
    "partitions": (int, PartitionState),
    "segments": (int, SegmentInfo),
    "settings": (str, str),
    "next_ids": (str, int),
    "counters": (str, int),
}


def _encode_extents(value: object) -> bytes:
    if isinstance(value, Extents):
        return value.to_bytes()
    raise NotImplementedError(f"{value!r} is no part of a row")


def _decode_extents(kind: type, value: Any) -> Any:
    return Extents.from_bytes(value) if kind is Extents else value


def encode_writes(writes: Iterable[Write]) -> bytes:
    """Return the record of a change."""
    rows = [
        (table, key, None if value is REMOVED else value)
        for table, key, value in writes
        if table != SNAPSHOTS
    ]
    return msgspec.msgpack.encode(rows, enc_hook=_encode_extents)


def decode_writes(record: bytes) -> list[Write]:
    """Return the writes of a record; ValueError for anything else."""
    rows = msgspec.msgpack.decode(record, type=list[tuple[str, msgspec.Raw, msgspec.Raw]])
    return [_write(*row) for row in rows]


def _write(table: str, key: msgspec.Raw, row: msgspec.Raw) -> Write:
    if table not in KEY_AND_ROW:
        raise ValueError(f"there is no table {table}")
    key_type, row_type = KEY_AND_ROW[table]
    value = msgspec.msgpack.decode(row, type=row_type | None, dec_hook=_decode_extents)
    found: Any = msgspec.msgpack.decode(key, type=key_type)
    return table, found, REMOVED if value is None else value


def last_version(writes: Sequence[Write]) -> int:
    """Return the number of the last change of these writes."""
    versions = [row for table, key, row in writes if (table, key) == ("counters", VERSION)]
    return int(versions[-1])


def differences(before: MetaState, after: MetaState) -> list[Write]:
    """Return the writes that make the rows of `before` those of `after`."""
    writes: list[Write] = []
    for table in KEY_AND_ROW:
        old: dict[Any, Any] = getattr(before, table)
        new: dict[Any, Any] = getattr(after, table)
        writes += ((table, key, REMOVED) for key in old.keys() - new.keys())
        writes += ((table, key, row) for key, row in new.items() if old.get(key) != row)
    return writes
