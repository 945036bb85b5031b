"""The bytes of a file are those that were added, whichever way they went to disk."""

from __future__ import annotations

import mmap
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import FakeFileSystem
from trilogue.log.files import BLOCK, OsFileSystem
from trilogue.log.segments.appender import GENTLE_PIECE, PIECE, Appender

FOLDER = Path("/data")


def written(fs: FakeFileSystem, parts: list[bytes], *, direct: bool) -> list[int]:
    sizes: list[int] = []
    file = fs.open(FOLDER / "f", create=True, direct=direct)
    appender = Appender(file, sizes.append)
    for part in parts:
        appender.add(part)
    assert appender.size == sum(map(len, parts))
    appender.finish()
    assert appender.size == sum(map(len, parts))
    file.close()
    return sizes


def a_disk() -> FakeFileSystem:
    fs = FakeFileSystem(direct=True)
    fs.make_directory(FOLDER)
    return fs


@pytest.mark.parametrize("direct", [False, True])
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 255), st.sampled_from([0, 1, 61, BLOCK, 70_001, PIECE, PIECE + 5])
        ),
        max_size=6,
    )
)
def test_appended_bytes_are_read(direct: bool, parts: list[tuple[int, int]]):
    fs = a_disk()
    pieces = [bytes((byte,)) * size for byte, size in parts]

    written(fs, pieces, direct=direct)

    assert fs.read(FOLDER / "f") == b"".join(pieces)


@pytest.mark.parametrize("direct", [False, True])
def test_it_is_durable_when_it_is_finished(direct: bool):
    fs = a_disk()

    written(fs, [b"x" * 5000], direct=direct)
    fs.sync_directory(FOLDER)
    fs.power_cut(Random(1))

    assert fs.read(FOLDER / "f") == b"x" * 5000


def test_past_the_page_cache_only_whole_blocks_go():
    assert written(a_disk(), [b"x" * (PIECE + 1)], direct=True) == [PIECE, BLOCK]


def test_memory_that_is_used_again_leaves_no_trace_behind_the_end(tmp_path: Path):
    file = OsFileSystem().open(tmp_path / "f", create=True, direct=True)
    appender = Appender(file)
    appender.add(b"a" * PIECE + b"b" * 10)
    appender.finish()
    file.close()

    assert (tmp_path / "f").read_bytes() == b"a" * PIECE + b"b" * 10
    assert mmap.PAGESIZE <= BLOCK


def test_a_gentle_one_writes_smaller_pieces(tmp_path: Path) -> None:
    fs = OsFileSystem()
    for direct in (False, fs.takes_direct(tmp_path)):
        path, sizes = tmp_path / f"gentle {direct}", list[int]()
        file = fs.open(path, create=True, direct=direct)
        appender = Appender(file, sizes.append, gently=True)
        for _ in range(10):
            appender.add(b"x" * 100_000)
        appender.finish()
        file.close()

        assert max(sizes) < GENTLE_PIECE + 100_000
        assert path.read_bytes() == b"x" * 1_000_000
