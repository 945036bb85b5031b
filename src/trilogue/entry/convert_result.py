"""What a conversion gives its reader: sections, a batch, messages, or why something is missing."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from trilogue.entry.compression import Buffer
from trilogue.entry.entry import InvalidEntry


class Reason(StrEnum):
    """Why something of an entry does not reach readers of another protocol."""

    ENCRYPTED = "encrypted"  # only its own clients have the key
    CHUNKED = "chunked"  # a message in several entries
    TRANSACTIONAL = "transactional"
    TOO_LARGE = "too_large"  # larger than the reader's frame, or than we decompress
    DAMAGED = "damaged"  # not what its format says


class Section(NamedTuple):
    """What a Pulsar client gets: `0e01 | crc | size | metadata | payload`, for offsets in a row."""

    offset: int  # the first one: the entry id
    span: int  # offsets that it covers, which is also the number of items of a batch
    data: bytes
    is_batch: bool
    holes: tuple[tuple[int, int], ...] = ()  # offsets [start, end) that hold nothing, acked by none


class Skipped(NamedTuple):
    """Offsets in a row of which the reader gets nothing; without a reason nothing was there."""

    offset: int
    span: int
    reason: Reason | None = None
    messages: int = 0  # that a reader misses
    detail: str = ""


class Batch(NamedTuple):
    """What a Kafka client gets; empty, but with all its offsets, when something was skipped."""

    data: bytes | Buffer
    skipped: Skipped | None = None


class TubeMessage(NamedTuple):
    """What a TubeMQ client gets of one message: its data, attributes first where the flag has 1."""

    offset: int
    data: bytes
    flag: int  # 1: attributes are there
    message_type: str | None  # what its filters ask for; the attributes repeat it
    message_time: int  # yyyyMMddHHmm as a number, -1 when there is none


class CannotConvert(InvalidEntry):
    """An entry has messages that readers of another protocol cannot get."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else f"{reason}")
        self.reason = reason
