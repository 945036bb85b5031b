"""The data directory: who may work on it, in which format it is, what lies where.

DIR/format       text, written before anything else: which program can read the rest
DIR/lock         held while a process works here
DIR/meta.sqlite  topics, settings, segments: meta's
DIR/reserve      room to let go of when the disk is full
DIR/journal/     see journal_files.py
DIR/segments/    segments and their manifest
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
_TEXT: Final = "trilogue data format "
FORMAT_BYTES_MAX: Final = 100
FILL_BYTES: Final = 1 << 20


class DataDirectory:
    """An open data directory. Others are kept out until `close`."""

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path = path
        self.journal = path / "journal"
        self.segments = path / "segments"
        self.meta = path / "meta.sqlite"
        self.reserve = path / "reserve"
        self._lock = lock

    @classmethod
    def open(cls, fs: FileSystem, path: Path) -> DataDirectory:
        """Lock it, make it if it is new, check its format.

        Raises `AlreadyLocked`, `NewerFormat`, `CorruptLog`, `OSError`.
        """
        made = [each for each in (path, *path.parents) if not fs.exists(each)]
        fs.make_directory(path)
        for each in made:  # or a power cut takes it away with all that was acknowledged in it
            fs.sync_directory(each.parent)
        directory = cls(path, fs.lock(path / "lock"))
        try:
            directory._check_format(fs)
            fs.make_directory(directory.journal)
            fs.make_directory(directory.segments)
            fs.sync_directory(path)
        except BaseException:
            directory.close()
            raise
        return directory

    def close(self) -> None:
        """Let others have it."""
        self._lock.release()

    def _check_format(self, fs: FileSystem) -> None:
        path = self.path / "format"
        if not fs.exists(path):
            if fs.exists(self.journal) or fs.exists(self.meta):
                raise CorruptLog("there is data but nothing says in which format", path)
            write_small(fs, path, f"{_TEXT}{FORMAT}\n".encode())
            return
        content = fs.read(path)[:FORMAT_BYTES_MAX]
        version = content.removeprefix(_TEXT.encode()).strip()
        if not content.startswith(_TEXT.encode()) or not version.isdigit():
            raise CorruptLog("this does not say the format of the data", path)
        if int(version) > FORMAT:
            raise NewerFormat(
                f"{self.path} has data format {int(version)}, this program knows up to {FORMAT}: "
                "use the version that wrote it, or a newer one"
            )

    def make_reserve(self, fs: FileSystem, size: int) -> None:
        """Fill the reserve, durable, unless it is there. Slow: for a thread. Never raises."""
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


def size_of(fs: FileSystem, path: Path) -> int:
    """Bytes of a file."""
    file = fs.open_read(path)
    try:
        return file.size()
    finally:
        file.close()


def write_small(fs: FileSystem, path: Path, content: bytes) -> None:
    """Write a whole small file so that it is there durably, or not at all."""
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
