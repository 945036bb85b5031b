"""The layout of a Pulsar entry: the fixed block behind the header, and the section of the producer.

     0            61            101                                                    length
    +------------+-------------+------+--------+---------------+----------+-----------+
    | header     | fixed block | 0e01 | crc32c | metadata size | metadata | payload   |
    | header.py  | 40 bytes    | 2    | 4      | 4             |          |           |
    +------------+-------------+------+--------+---------------+----------+-----------+
                               |<--------- the section: sent in MESSAGE, unchanged -->|

    fixed block, so that recovery and append need no protobuf:
    +---------+-------+------+---------------+-------------+----------+-------------+----------+
    | version | flags | zero | metadata size | sequence id | highest  | broker time | producer |
    | 1       | 1     | 2    | 4             | 8           | 8        | ms, 8       | 8        |
    +---------+-------+------+---------------+-------------+----------+-------------+----------+

Compiled modules take the same numbers from layout.pxd; a test compares the two.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

VERSION_AT: Final = 61
FLAGS_AT: Final = 62
RESERVED_AT: Final = 63  # two zero bytes
METADATA_SIZE_AT: Final = 65
SEQUENCE_ID_AT: Final = 69
HIGHEST_SEQUENCE_ID_AT: Final = 77
BROKER_TIME_AT: Final = 85
PRODUCER_KEY_AT: Final = 93
PULSAR_SECTION_AT: Final = 101
SECTION_CHECKSUM_AT: Final = 103
UNCHECKED_AT: Final = (
    107  # the section without its checksum, as clients before protocol version 6 read it
)
METADATA_AT: Final = 111
BLOCK_VERSION: Final = 1

CHUNK: Final = 1  # flags of the block
OUR_CHECKSUM: Final = 2  # the producer sent none
KEYED: Final = 4
BATCH: Final = 8
DELAYED: Final = 16
ENCRYPTED: Final = 32

PART_MAGIC: Final = 0x0E  # the first byte of the two parts that may precede the metadata
CHECKSUM_PART: Final = 1  # its second byte: a checksum follows
BROKER_METADATA_PART: Final = 2  # its second byte: a size and the broker's metadata follow
SECTION_METADATA_AT: Final = 10  # in a section with a checksum, which stored ones have
PART_HEAD_SIZE: Final = 6  # of the magic and the checksum, or of the magic and the size

FIXED_BLOCK: Final = Struct(
    ">BBHIqqqQ"
)  # version, flags, 0, metadata size, sequences, time, producer
