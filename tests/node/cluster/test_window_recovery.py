"""Rows of PostgreSQL become the journal files that they were taken from."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("asyncpg")

from trilogue.log.errors import CorruptLog
from trilogue.log.files import BLOCK, OsFileSystem
from trilogue.log.journal.frame import FileHeader, file_name
from trilogue.log.journal.recovery import recover
from trilogue.log.journal.window import Window as JournalWindow
from trilogue.meta.shared_journal import Window
from trilogue.node.cluster.window_recovery import encode_row, write_journal

CLUSTER = bytes(range(16))
FILES = [FileHeader(3, 77, CLUSTER), FileHeader(4, 78, CLUSTER)]
FACT = 9


def make_frame(sequence: int, header: FileHeader) -> memoryview:
    """A frame with one fact."""
    window = JournalWindow(BLOCK)
    window.facts.append((FACT, b"fact %d" % sequence))
    return window.seal(
        seed=header.seed,
        flags=0,
        sequence=sequence,
        durable_through=sequence - 1,
        node_id=1,
        node_epoch=1,
        append_time_ms=1,
    )


def make_window(sequence: int, header: FileHeader) -> Window:
    """The row of that frame."""
    frame = make_frame(sequence, header)
    found, row = encode_row(header, frame)
    assert found == sequence
    assert len(row) < BLOCK, "a row has no padding"
    return Window(sequence, row)


def test_a_recovery_finds_the_frames_of_the_rows_and_of_nothing_else(tmp_path: Path):
    fs = OsFileSystem()
    (tmp_path / file_name(9)).write_bytes(b"what no row knows")
    windows = [make_window(each, FILES[each > 12]) for each in range(11, 15)]

    write_journal(fs, tmp_path, CLUSTER, windows)

    sequences: list[int] = []
    found = recover(
        fs,
        tmp_path,
        cluster_id=CLUSTER,
        flushed_through=10,
        replay=lambda _data, frame, _path: sequences.append(frame.sequence),
    )
    assert sequences == [11, 12, 13, 14]
    assert [each.number for each in found.sealed] == [3, 4]
    assert found.last_sequence == 14


def test_no_rows_are_an_empty_journal(tmp_path: Path):
    (tmp_path / file_name(9)).write_bytes(b"what no row knows")

    write_journal(OsFileSystem(), tmp_path, CLUSTER, [])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [lambda row: row[:7], lambda row: row[:-1], lambda row: row[:-1] + b"\0", lambda row: row * 2],
    ids=["no frame", "cut", "changed", "longer"],
)
def test_a_row_that_is_not_its_frame_is_damage(tmp_path: Path, damage):
    window = make_window(11, FILES[0])

    with pytest.raises(CorruptLog, match="window 11"):
        write_journal(OsFileSystem(), tmp_path, CLUSTER, [Window(11, damage(window.data))])
