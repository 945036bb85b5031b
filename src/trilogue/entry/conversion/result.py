"""The results of conversions: sections, a batch, messages, or the reason for a skip."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from trilogue.entry.compression import Buffer


class Reason(StrEnum):
    """The reason why readers of another protocol do not get messages of an entry."""

    ENCRYPTED = "encrypted"  # only its own clients have the key
    CHUNKED = "chunked"  # a message in several entries
    TOO_LARGE = "too_large"  # for the reader's frame, or for decompression
    DAMAGED = "damaged"  # violates its format


class Section(NamedTuple):
    """A section for Pulsar clients: `0e01 | crc | size | metadata | payload`."""

    offset: int  # the first offset: the entry id
    span: int  # consecutive offsets that it covers: the number of items of a batch
    data: bytes
    is_batch: bool
    holes: tuple[tuple[int, int], ...] = ()  # offsets [start, end), never acked
    deliver_at_ms: int = 0  # not before this time; 0: at once


class SkippedRange(NamedTuple):
    """Consecutive offsets that the reader does not get; without a reason they have no messages."""

    offset: int
    span: int
    reason: Reason | None = None
    messages: int = 0  # how many the reader does not get
    detail: str = ""


class Batch(NamedTuple):
    """A batch for Kafka clients; where the entry is skipped, without records, but with its span."""

    data: bytes | Buffer
    skipped: SkippedRange | None = None


class TubeMessage(NamedTuple):
    """A message for TubeMQ clients: its data, which begin with attributes where the flag is 1."""

    offset: int
    data: bytes
    flag: int  # 1: the data have attributes
    message_type: str | None  # for stream filters; the attributes repeat it
    message_time: int  # yyyyMMddHHmm as a number, -1 when there is none
