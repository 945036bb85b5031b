"""The layout of a TubeMQ entry: the fixed block behind the header, the type, and the data.

     0            61            93                93 + type size                    length
    +------------+-------------+-----------------+----------------------------------+
    | header     | fixed block | type, UTF-8     | data, as sent to consumers       |
    | header.py  | 32 bytes    | where it has one|                                  |
    +------------+-------------+-----------------+----------------------------------+

    fixed block, so that filters, recovery and append do not read the data:
    +---------+-------+-----------+-----------+----------+-----------+----------+-------------+
    | version | flags | type size | type hash | checksum | sent from | time     | broker time |
    | 1       | 1     | 2         | 4         | 4        | 4         | 8        | ms, 8       |
    +---------+-------+-----------+-----------+----------+-----------+----------+-------------+

Compiled modules take the same numbers from layout.pxd; a test compares the two.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

VERSION_AT: Final = 61
FLAGS_AT: Final = 62
TYPE_SIZE_AT: Final = 63
TYPE_HASH_AT: Final = 65
DATA_CHECKSUM_AT: Final = 69
SENT_FROM_AT: Final = 73
MESSAGE_TIME_AT: Final = 77
BROKER_TIME_AT: Final = 85
TYPE_AT: Final = 93
BLOCK_VERSION: Final = 1

ATTRIBUTES: Final = 1  # flags of the block; the first is also the flag on the wire
TYPED: Final = 2

FIXED_BLOCK: Final = Struct(
    ">BBHiIiqq"
)  # version, flags, type size, hash, checksum, address, times
