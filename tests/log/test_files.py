"""The port, kept by the real file system and by the fake one alike."""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
from pathlib import Path
from random import Random

import pytest

from tests.fakes import FakeFileSystem
from trilogue.log.errors import AlreadyLocked
from trilogue.log.files import BLOCK, FileSystem, OsFileSystem, ScratchFileSystem

KINDS: dict[str, type[FileSystem]] = {
    "real": OsFileSystem,
    "scratch": ScratchFileSystem,
    "fake": FakeFileSystem,
}


@pytest.fixture(params=KINDS)
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return KINDS[request.param]()


@pytest.fixture
def home(fs: FileSystem, tmp_path: Path) -> Path:
    path = tmp_path / "private" / "home"
    fs.make_directory(path)
    return path


def test_written_bytes_are_read(fs: FileSystem, home: Path) -> None:
    file = fs.open(home / "a", create=True)

    file.pwrite(b"hello", 3)
    file.pwrite_durable(bytearray(b"HE"), 3)
    file.sync()

    assert file.pread(100, 0) == b"\0\0\0HEllo"
    assert file.pread(2, 4) == b"El"
    assert file.size() == 8
    assert fs.read(home / "a") == b"\0\0\0HEllo"
    file.close()


def test_a_map_stays_good_after_close(fs: FileSystem, home: Path) -> None:
    file = fs.open(home / "a", create=True)
    assert bytes(file.map()) == b""
    file.pwrite(b"x" * 5000, 0)

    view = file.map()
    file.close()

    assert bytes(view) == b"x" * 5000
    assert view.readonly


def test_file_opened_for_reading_is_read_only(fs: FileSystem, home: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open_read(home / "a")
    made = fs.open(home / "a", create=True)
    made.pwrite(b"as it was", 0)
    made.close()

    file = fs.open_read(home / "a")

    assert file.pread(100, 3) == b"it was"
    assert bytes(file.map()) == b"as it was"
    for write in (file.pwrite, file.pwrite_durable):
        with pytest.raises(OSError, match=r"(?i)descriptor|for reading"):
            write(b"not any more", 0)
    assert fs.read(home / "a") == b"as it was"
    file.close()


def test_a_file_that_only_others_may_write_can_be_opened_for_reading(tmp_path: Path) -> None:
    """A brokerless reader of segments may have no more than that right."""
    OsFileSystem().open(tmp_path / "a", create=True).close()

    file = OsFileSystem().open_read(tmp_path / "a")
    mode = fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
    file.close()

    assert mode == os.O_RDONLY


def test_create_refuses_an_existing_file_and_open_a_missing_one(fs: FileSystem, home: Path) -> None:
    fs.open(home / "a", create=True).close()

    with pytest.raises(FileExistsError):
        fs.open(home / "a", create=True)
    with pytest.raises(FileNotFoundError):
        fs.open(home / "b")
    with pytest.raises(FileNotFoundError):
        fs.unlink(home / "b")


def test_rename_replaces(fs: FileSystem, home: Path) -> None:
    for name in "ab":
        file = fs.open(home / name, create=True)
        file.pwrite(name.encode(), 0)
        file.close()

    fs.rename(home / "a", home / "b")
    fs.sync_directory(home)

    assert fs.listdir(home) == ["b"]
    assert fs.read(home / "b") == b"a"
    assert not fs.exists(home / "a")


def test_truncate_cuts_and_fills_with_zeros(fs: FileSystem, home: Path) -> None:
    file = fs.open(home / "a", create=True)
    file.pwrite(b"abc", 0)

    file.truncate(2)
    file.truncate(4)

    assert file.pread(9, 0) == b"ab\0\0"
    file.close()


def test_a_second_lock_is_refused_until_the_first_is_released(fs: FileSystem, home: Path) -> None:
    lock = fs.lock(home / "lock")

    with pytest.raises(AlreadyLocked):
        fs.lock(home / "lock")

    lock.release()
    fs.lock(home / "lock").release()


def test_directories_that_are_made_above_another_are_private(tmp_path: Path) -> None:
    """`nodes`, above the directory of each of several nodes, could be listed by everyone."""
    OsFileSystem().make_directory(tmp_path / "nodes" / "1")

    for made in (tmp_path / "nodes", tmp_path / "nodes" / "1"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_directories_and_files_are_private() -> None:
    fs = OsFileSystem()
    home = Path(os.environ.get("TMPDIR", "/tmp")) / f"private-{os.getpid()}"
    fs.make_directory(home)
    fs.open(home / "a", create=True).close()

    try:
        assert home.stat().st_mode & 0o777 == 0o700
        assert (home / "a").stat().st_mode & 0o777 == 0o600
    finally:
        fs.unlink(home / "a")
        home.rmdir()


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="symbolic"):
        OsFileSystem().open(tmp_path / "link")


def test_direct_writes_work_where_the_file_system_supports_them(tmp_path: Path) -> None:
    fs = OsFileSystem()
    direct = fs.takes_direct(tmp_path)
    file = fs.open(tmp_path / "a", create=True, direct=direct)
    block = memoryview(mmap.mmap(-1, BLOCK))
    block[:5] = b"hello"

    file.pwrite_durable(block, BLOCK)

    assert file.direct == direct
    assert file.pread(5, BLOCK) == b"hello"
    assert fs.listdir(tmp_path) == ["a"]
    file.close()


def test_a_file_system_travels_to_another_process() -> None:
    assert isinstance(pickle.loads(pickle.dumps(OsFileSystem())), OsFileSystem)


def test_free_bytes_are_those_of_the_disk(tmp_path: Path) -> None:
    fs = OsFileSystem()

    assert 0 < fs.free_bytes(tmp_path) < fs.total_bytes(tmp_path) < 1 << 60


def test_fake_power_cut_keeps_exactly_what_was_synced() -> None:
    fs, home = FakeFileSystem(), Path("/home")
    fs.make_directory(home)
    outcomes = set()

    for seed in range(40):
        path = home / str(seed)
        file = fs.open(path, create=True)
        file.pwrite(b"a" * 2048, 0)
        file.sync()
        fs.sync_directory(home)
        file.pwrite(b"b" * 1024, 0)
        fs.power_cut(Random(seed))
        outcomes.add(fs.read(path))

    sectors = {content[at : at + 512] for content in outcomes for at in range(0, 2048, 512)}
    assert sectors == {b"a" * 512, b"b" * 512}, "sectors are whole"
    assert len(outcomes) == 4, "old, new, and torn in both orders"
    assert all(content[1024:] == b"a" * 1024 for content in outcomes)


def test_fake_kill_keeps_all_and_a_failed_sync_is_never_made_good() -> None:
    fs, home = FakeFileSystem(), Path("/home")
    fs.make_directory(home)
    file = fs.open(home / "a", create=True)
    fs.sync_directory(home)
    fs.fail("sync")

    with pytest.raises(OSError, match="Input/output"):
        file.pwrite_durable(b"x" * 512, 0)
    fs.kill()
    again = fs.open(home / "a")
    again.sync()

    assert fs.read(home / "a") == b"x" * 512, "the page cache shows it"
    fs.power_cut(Random(1))
    assert fs.read(home / "a") == bytes(512), "no disk holds it"


def test_scratch_files_wait_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A recovery's files are copies of rows in PostgreSQL: each sync would be a pause."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: pytest.fail("a scratch file was synced"))
    fs, write = ScratchFileSystem(), os.pwritev
    flags: list[int] = []

    def note(fd: int, parts: tuple[memoryview], offset: int, given: int) -> int:
        flags.append(given)
        return write(fd, parts, offset, given)

    monkeypatch.setattr(os, "pwritev", note)

    file = fs.open(tmp_path / "a", create=True, direct=True)
    file.pwrite_durable(b"x" * 10, 0)
    file.sync()
    fs.sync_directory(tmp_path)

    assert flags == [0]
    assert not file.direct
    assert not fs.takes_direct(tmp_path)
    assert fs.read(tmp_path / "a") == b"x" * 10
    file.close()
