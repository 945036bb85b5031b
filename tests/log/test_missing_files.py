"""Files of a data directory deleted or emptied, one by one: the same content, or a clear refusal.

The content is never less: reads of what a missing segment held are errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.log.old_data import FIXTURES, check, description, messages, partition, run, unpacked
from trilogue.log.errors import CorruptLog
from trilogue.log.files import OsFileSystem
from trilogue.log.segments.manifest import read_manifest
from trilogue.node.errors import StartError
from trilogue.node.node import Node

CLOSED = next(path for path in FIXTURES if path.name.endswith("closed.tar.xz"))
KILLED = next(path for path in FIXTURES if path.name.endswith("killed.tar.xz"))


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"\xa5" * 100)


MADE_AGAIN = [
    "segments/manifest.json",
    "segments/manifest.json.tmp",
    "reserve",
    "reserve.tmp",
    "lock",
    "meta.sqlite-shm",
    "format.tmp",
    "journal/0000000000000099.spare",
    "journal/0000000000000099.tmp",
]
HOW = [delete, empty, fill_with_garbage]
Damage = Callable[[Path], None]


@pytest.mark.parametrize("damage", HOW)
def test_replaceable_files_are_created_again(tmp_path: Path, damage: Damage):
    """One after the other, each before a start."""
    data, expected = unpacked(KILLED, tmp_path), description(KILLED)
    run(data, lambda _: None, drain=False)

    for name in MADE_AGAIN:
        path = data / name
        path.touch(0o600)
        damage(path)
        run(data, lambda node: check(node, expected), drain=False)
        assert read_manifest(OsFileSystem(), data / "segments").segments

    run(data, lambda node: check(node, expected))


@pytest.mark.parametrize("damage", HOW)
@pytest.mark.parametrize("name", ["format", "meta.sqlite"])
def test_loss_of_an_irreplaceable_file_stops_the_start(tmp_path: Path, name: str, damage: Damage):
    data = unpacked(KILLED, tmp_path)
    damage(data / name)

    with pytest.raises(StartError, match=r"format|meta"):
        run(data, lambda _: None)
    with pytest.raises(StartError, match=r"format|meta"):
        run(data, lambda _: None)


@pytest.mark.parametrize("damage", [empty, fill_with_garbage])
def test_a_journal_file_without_a_header_stops_the_start(tmp_path: Path, damage: Damage):
    """Its header was durable before its name. (A missing last file leaves no trace.)"""
    data = unpacked(KILLED, tmp_path)
    for path in sorted((data / "journal").iterdir()):
        kept = path.read_bytes()
        damage(path)
        with pytest.raises(StartError, match="header of a journal file"):
            run(data, lambda _: None)
        path.write_bytes(kept)


@pytest.mark.parametrize("damage", HOW)
def test_damaged_segment_is_an_error_and_other_data_is_read(tmp_path: Path, damage: Damage):
    """Each segment in its turn: the footer is in it, so nothing else of it can be lost."""
    names = [path.name for path in (unpacked(CLOSED, tmp_path) / "segments").glob("*.segment")]
    hurt: set[int] = set()
    for name in sorted(names):
        data = unpacked(CLOSED, tmp_path / name)
        damage(data / "segments" / name)
        run(data, partial(look, name=name, hurt=hurt), drain=False)

    assert len(hurt) >= 4


def look(node: Node, *, name: str, hurt: set[int]) -> None:
    """Reads of partitions with messages in that segment fail; all others are complete."""
    (info,) = [each for each in node.storage.log.segments.values() if each.name == name]
    for row in description(CLOSED)["partitions"]:
        where = partition(node, row["topic"], row["partition"])
        extent = info.partitions.find_extent(where.partition_id)
        if extent is not None and extent.end_offset > where.log.start_offset:
            hurt.add(where.partition_id)
            with pytest.raises(CorruptLog, match=name):
                messages(where)
        else:
            assert messages(where) == row["messages"]
