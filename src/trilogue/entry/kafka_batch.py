"""Kafka's record batch v2: check, patch, build and read one."""

from __future__ import annotations

from struct import pack_into
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import CHECKED_FROM, LOG_APPEND_TIME
from trilogue.entry.walk import check_produced, read_header, set_base

__all__ = ["check_produced", "read_header", "set_base", "set_log_append_time"]

_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


def set_log_append_time(entry: bytearray | memoryview, now_ms: int) -> None:
    """Give every record of the batch the broker's time; costs a new checksum over the batch."""
    header = read_header(entry)
    view = memoryview(entry)[: header.length]
    pack_into(">h", view, _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    pack_into(">q", view, _MAX_TIMESTAMP_AT, now_ms)
    pack_into(">I", view, _CRC_AT, crc32c(view[CHECKED_FROM:]))
