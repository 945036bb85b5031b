"""The layout of the entry header: the 61 bytes of Kafka's record batch v2 that every entry has.

     0        8      12     16 17    21   23     27       35       43       51   53     57     61
    +--------+------+------+--+-----+----+------+--------+--------+--------+----+------+------+---
    | base   | bytes| owner|2 | crc | at | last | base   | max    | pro-   | ep | base | rec- | ...
    | offset | after| epoch|  | 32c | tr | delta| time   | time   | ducer  | och| seq. | ords |
    +--------+------+------+--+-----+----+------+--------+--------+--------+----+------+------+---
                                    |<------------- covered by the checksum ------------------ ...

All integers are big-endian. The length field counts the bytes behind it. The format of a Pulsar or
TubeMQ entry is in attribute bits 8 and 9, which the high byte of the attributes holds. Compiled
modules take the same numbers from header.pxd; a test compares the two.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
OWNER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CHECKSUM_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57
HEADER_SIZE: Final = 61

LENGTH_PREFIX: Final = 12  # base offset and length: what the length field does not count
STAMP_SIZE: Final = 16  # what the broker sets: base offset, length, owner epoch
CHECKED_FROM: Final = 21  # the checksum covers the entry from here to its end
FORMAT_AT: Final = 21  # the high byte of the attributes
CODEC_AT: Final = 22  # the low byte of the attributes
MAGIC: Final = 2
SMALLEST_RECORD: Final = 7  # bytes of a record that has neither key, value nor headers

HEADER: Final = Struct(">qiibIhiqqqhii")
STAMP: Final = Struct(">qii")  # base offset, length, owner epoch
SPAN: Final = Struct(">qi11xi")  # base offset, length, last offset delta
TIMED_SPAN: Final = Struct(">qi11xi8xq")  # and the maximum timestamp
REPLAYED: Final = Struct(">q13xhi8xqq")  # base offset, attributes, delta, max timestamp, producer
