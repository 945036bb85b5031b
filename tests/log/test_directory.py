from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from tests.fakes import FakeFileSystem
from trilogue.log.directory import DataDirectory
from trilogue.log.errors import AlreadyLocked, CorruptLog, NewerFormat

DATA = Path("/data")


def test_new_directory_writes_its_format_first() -> None:
    fs = FakeFileSystem()

    directory = DataDirectory.open(fs, DATA)

    assert fs.read(DATA / "format") == b"trilogue data format 1\n"
    assert fs.exists(directory.journal)
    assert fs.exists(directory.segments)
    fs.power_cut(Random(1))
    assert fs.read(DATA / "format") == b"trilogue data format 1\n"
    DataDirectory.open(fs, DATA)


def test_a_second_process_is_refused_until_the_first_ends() -> None:
    fs = FakeFileSystem()
    directory = DataDirectory.open(fs, DATA)

    with pytest.raises(AlreadyLocked):
        DataDirectory.open(fs, DATA)

    directory.close()
    DataDirectory.open(fs, DATA)


def change_format(fs: FakeFileSystem, content: bytes) -> None:
    fs.names[DATA / "format"].data = bytearray(content)


@pytest.mark.parametrize("content", [b"", b"hello", b"trilogue data format x", b"1\n"])
def test_a_format_that_does_not_read_is_refused_and_the_lock_let_go(content: bytes) -> None:
    fs = FakeFileSystem()
    DataDirectory.open(fs, DATA).close()
    change_format(fs, content)

    with pytest.raises(CorruptLog, match="format"):
        DataDirectory.open(fs, DATA)

    assert fs.locks == set()


def test_a_newer_format_is_refused_with_what_to_do() -> None:
    fs = FakeFileSystem()
    DataDirectory.open(fs, DATA).close()
    change_format(fs, b"trilogue data format 12\n")

    with pytest.raises(NewerFormat, match="data format 12, this program knows up to 1"):
        DataDirectory.open(fs, DATA)


def test_data_without_a_format_is_refused() -> None:
    fs = FakeFileSystem()
    DataDirectory.open(fs, DATA).close()
    fs.unlink(DATA / "format")

    with pytest.raises(CorruptLog, match="no file names its format"):
        DataDirectory.open(fs, DATA)


def test_a_start_that_died_early_is_started_again() -> None:
    for steps in range(12):
        fs = FakeFileSystem()
        fs.cut_after(steps)
        try:
            DataDirectory.open(fs, DATA)
        except BaseException:  # noqa: BLE001 - the power failed
            fs.power_cut(Random(steps))
            fs.directories.clear()

        fs.kill()
        DataDirectory.open(fs, DATA)


def test_the_reserve_is_made_once_and_failing_to_is_no_reason_to_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs = FakeFileSystem()
    directory = DataDirectory.open(fs, DATA)
    fs.fail("write", errno.ENOSPC)
    directory.make_reserve(fs, 3_000_000)
    assert "reserve.failed" in caplog.messages
    assert not fs.exists(directory.reserve)
    assert not fs.exists(directory.reserve.with_suffix(".tmp"))

    directory.make_reserve(fs, 3_000_000)
    directory.make_reserve(fs, 5)

    assert len(fs.read(directory.reserve)) == 3_000_000
    fs.power_cut(Random(1))
    assert len(fs.read(directory.reserve)) == 3_000_000


def test_a_reserve_that_is_too_small_is_made_again() -> None:
    """It was emptied, or a larger one is configured now."""
    fs = FakeFileSystem()
    directory = DataDirectory.open(fs, DATA)
    directory.make_reserve(fs, 5)

    directory.make_reserve(fs, 3_000_000)

    fs.power_cut(Random(1))
    assert len(fs.read(directory.reserve)) == 3_000_000
