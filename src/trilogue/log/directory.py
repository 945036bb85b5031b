"""The data directory: its layout, its format and its lock.

DIR/format       text, written before anything else: which program version can read the rest
DIR/lock         held while a process works here
DIR/meta.sqlite  topics, settings, segments; owned by meta
DIR/reserve      space that is freed when the disk is full
DIR/journal/     see log/journal/files.py
DIR/segments/    segments and their manifest
DIR/restoring    a restore has not ended: what is here is not whole
DIR/cluster      of a node of a cluster: which one; meta is then in its database
DIR/nodes/2/     lock, reserve and journal of node 2, where several nodes share the directory: their
                 supervisor holds DIR/lock, node 1 has DIR/nodes/1/lock
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final

from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.files import FileSystem, Lock

log = logging.getLogger(__name__)

FORMAT: Final = 1
FIRST_NODE: Final = 1
CLUSTER_FILE: Final = "cluster"
RESTORING: Final = "restoring"
_TEXT: Final = "trilogue data format "
FORMAT_BYTES_MAX: Final = 100
FILL_BYTES: Final = 1 << 20


def parse_format(content: bytes) -> int | None:
    """Return the format that the file `format` names; None where it names none."""
    content = content[:FORMAT_BYTES_MAX]
    version = content.removeprefix(_TEXT.encode()).strip()
    is_named = content.startswith(_TEXT.encode()) and version.isdigit()
    return int(version) if is_named else None


class DataDirectory:
    """An open data directory. It is locked against other processes until `close`."""

    def __init__(self, path: Path, lock: Lock, node_id: int = FIRST_NODE) -> None:
        own = path if node_id == FIRST_NODE else path / "nodes" / str(node_id)
        self.path = path
        self.journal = own / "journal"
        self.segments = path / "segments"
        self.meta = path / "meta.sqlite"
        self.reserve = own / "reserve"
        self._lock = lock

    @classmethod
    def open(cls, fs: FileSystem, path: Path) -> DataDirectory:
        """Create the directory if it is new, lock it and check its format.

        Raises `AlreadyLocked`, `NewerFormat`, `CorruptLog`, `OSError`.
        """
        _make_durably(fs, path)
        directory = cls(path, fs.lock(path / "lock"))
        directory._prepare(fs)
        return directory

    @classmethod
    def open_shared(cls, fs: FileSystem, path: Path, node_id: int) -> DataDirectory:
        """Open the part of one of several nodes; the caller's parent has the directory locked.

        Raises as `open` does.
        """
        own = path / "nodes" / str(node_id)
        _make_durably(fs, own)
        directory = cls(path, fs.lock(own / "lock"), node_id)
        directory._prepare(fs)
        return directory

    def _prepare(self, fs: FileSystem) -> None:
        try:
            self._check_format(fs)
            fs.make_directory(self.journal)
            fs.make_directory(self.segments)
            fs.sync_directory(self.journal.parent)
            fs.sync_directory(self.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def _check_format(self, fs: FileSystem) -> None:
        path = self.path / "format"
        if fs.exists(self.path / RESTORING):
            raise CorruptLog(
                "a restore to this directory has not ended: run it again, or remove the directory",
                self.path / RESTORING,
            )
        if not fs.exists(path):
            if fs.exists(self.journal) or fs.exists(self.meta):
                raise CorruptLog("there is data but no file names its format", path)
            write_small(fs, path, f"{_TEXT}{FORMAT}\n".encode())
            return
        version = parse_format(fs.read(path))
        if version is None:
            raise CorruptLog("this file does not name the format of the data", path)
        if version > FORMAT:
            raise NewerFormat(
                f"{self.path} has data format {version}, this program knows up to {FORMAT}: "
                "use the version that wrote it, or a newer one"
            )

    def make_reserve(self, fs: FileSystem, size: int) -> None:
        """Create and fill the reserve file durably if it does not exist.

        Slow, so it belongs in a thread. Errors are ignored.
        """
        temporary = self.reserve.with_suffix(".tmp")
        try:
            if fs.exists(self.reserve) and size_of(fs, self.reserve) >= size:
                return
            if fs.exists(temporary):
                fs.unlink(temporary)
            file = fs.open(temporary, create=True)
            try:
                zeros = bytes(FILL_BYTES)
                for at in range(0, size, FILL_BYTES):
                    file.pwrite(zeros[: size - at], at)
                file.sync()
            finally:
                file.close()
            fs.rename(temporary, self.reserve)
            fs.sync_directory(self.path)
        except OSError as error:
            log.warning("reserve.failed", extra={"reason": str(error)})
            with contextlib.suppress(OSError):
                fs.unlink(temporary)


def _make_durably(fs: FileSystem, path: Path) -> None:
    """Create a folder and its parents; a power cut cannot remove it with what will be in it."""
    made = [each for each in (path, *path.parents) if not fs.exists(each)]
    fs.make_directory(path)
    for each in made:
        fs.sync_directory(each.parent)


def size_of(fs: FileSystem, path: Path) -> int:
    """Return the size of a file in bytes."""
    file = fs.open_read(path)
    try:
        return file.size()
    finally:
        file.close()


def write_small(fs: FileSystem, path: Path, content: bytes) -> None:
    """Write a small file so that after a crash it is either complete and durable or absent."""
    temporary = path.with_name(path.name + ".tmp")
    if fs.exists(temporary):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True)
    try:
        file.pwrite(content, 0)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.parent)
