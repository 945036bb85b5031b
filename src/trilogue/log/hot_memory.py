"""The few functions of hot.py that touch memory: plain Python here, compiled twins in hot.pxd.

What has no room for them raises, compiled a ValueError.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from trilogue.entry.entry import LENGTH_PREFIX
from trilogue.log.frame import PREFIX

_STAMP: Final = Struct(">qii")  # the first bytes of an entry: base offset, length, owner epoch


def put(target: memoryview, at: int, data: memoryview) -> None:
    """Copy bytes to a place."""
    target[at : at + len(data)] = data


def put_prefix(target: memoryview, at: int, partition_id: int, owner_epoch: int) -> None:
    """Write what stands before an entry in a frame."""
    PREFIX.pack_into(target, at, partition_id, owner_epoch, 0)


def put_stamp(entry: memoryview, base_offset: int, size: int, owner_epoch: int) -> None:
    """Give an entry of this size its offset and epoch."""
    _STAMP.pack_into(entry, 0, base_offset, size - LENGTH_PREFIX, owner_epoch)
