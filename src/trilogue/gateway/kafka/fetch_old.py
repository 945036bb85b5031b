"""Fetch v0-v3: what a look found, as message sets that clients before 2017 can read.

Called in the executor for each partition of the answer that has something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trilogue.gateway.conversions import Conversions
from trilogue.gateway.stream import Buffer

OLD_UNTIL: Final = 3  # the last version of Fetch that is answered in magic 0 or 1
TIMES_SINCE: Final = 2  # the first one in magic 1


def old_parts(
    conversions: Conversions,
    partition_id: int,
    parts: Sequence[Buffer],
    room: int,
    *,
    version: int,
    from_offset: int,
    keep: bool,
) -> tuple[list[Buffer], int]:
    """Whole messages of at most `room` bytes, the first in any case, and the offset behind them.

    No messages and an offset above `from_offset`: nothing up to there can be said in the old
    formats. `keep` says that the entries are in memory, where none changes. A first batch in zstd
    is an UnsupportedCompression.
    """
    return conversions.for_old_kafka(
        partition_id,
        parts,
        room,
        magic=0 if version < TIMES_SINCE else 1,
        from_offset=from_offset,
        keep=keep,
    )
