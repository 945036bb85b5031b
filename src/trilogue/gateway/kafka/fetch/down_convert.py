"""Fetch v0-v3: batches converted to the message sets that clients before Kafka 0.11 can read.

Runs in the executor, for each partition of the response that has records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.gateway.stream import Buffer

MESSAGE_SETS_UNTIL: Final = 3  # the last version of Fetch with magic 0 or 1
MAGIC_1_SINCE: Final = 2  # the first version with magic 1


def down_convert_parts(
    conversions: ConversionCache,
    partition_id: int,
    parts: Sequence[Buffer],
    room: int,
    *,
    version: int,
    from_offset: int,
    keep: bool,
) -> tuple[list[Buffer], int]:
    """Return whole messages of at most `room` bytes (the first in any case) and the next offset.

    No messages and an offset above `from_offset`: the entries up to there have no form in the old
    formats. `keep` caches the conversion: the entries are in memory, where none changes. Raises
    UnsupportedCompression for a first batch in zstd.
    """
    return conversions.for_old_kafka(
        partition_id,
        parts,
        room,
        magic=0 if version < MAGIC_1_SINCE else 1,
        from_offset=from_offset,
        keep=keep,
    )
