"""Compaction leaves of a partition what a real Kafka's cleaner left of it, byte for byte.

Five rounds with tombstones, committed and aborted transactions, markers whose time comes and
idempotent producers, recorded by tools/kafka_cleaner.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.jobs.compacted import World
from trilogue.entry.compaction.compaction import delete_horizon
from trilogue.entry.walk import read_header, walk_headers

RETENTION_MS = 2_000  # of tombstones, in the recording
VECTORS = Path(__file__).parents[2] / "vectors" / "log"


def rounds(version: str) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """The end of each round, and the entries before and after it."""
    text = (VECTORS / f"cleaned-kafka-{version}.hex").read_text()
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    for (_, end, _, before), (_, _, _, after) in zip(rows[::2], rows[1::2], strict=True):
        yield int(end), entries(before), entries(after)


def entries(text: str) -> list[bytes]:
    data = bytes.fromhex(text)
    return [data[at : at + length] for at, length, *_ in walk_headers(data)]


def horizons(found: list[bytes]) -> set[int]:
    return {each for entry in found if (each := delete_horizon(read_header(entry))) is not None}


@pytest.mark.parametrize("per_block", [1, 100])
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_compacted_entries_equal_those_of_kafkas_cleaner(version: str, per_block: int):
    world = World(epoch=0, delete_retention_ms=RETENTION_MS, entries_per_block=per_block)
    known: set[int] = set()
    count = 0
    for end, before, after in rounds(version):
        for entry in before:
            base = read_header(entry).base_offset
            if base >= world.end:
                world.append_entry(entry, hole=base - world.end)
        world.flush()
        theirs = [entry for entry in after if read_header(entry).base_offset < end]
        fresh = horizons(theirs) - known
        known |= fresh
        world.now_ms = max(fresh) - RETENTION_MS if fresh else max(known) + 1

        world.compact(end)

        ours = [entry for entry in world.entries() if read_header(entry).base_offset < end]
        assert [entry.hex() for entry in ours] == [entry.hex() for entry in theirs]
        count += 1
    assert count == 5


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_the_recording_has_what_the_rules_are_about(version: str):
    """Tombstones and markers came and went, entries were emptied and aborted data was there."""
    afters = [after for _, _, after in rounds(version)]
    (_, first, _), *_ = rounds(version)

    assert any(read_header(entry).is_transactional for entry in first)
    markers = [
        {read_header(e).base_offset for e in after if read_header(e).is_control} for after in afters
    ]
    assert len(markers[0]) > len(markers[-1]), "a marker went"
    assert any(read_header(entry).record_count == 0 for entry in afters[0])
    assert len({horizon for after in afters for horizon in horizons(after)}) >= 3
