"""The only place of the log that touches a file system.

All other modules receive a `FileSystem`, so that tests can pass one that cuts, tears, reorders,
flips and fails. The ports are as narrow as the log's needs: whole-buffer positioned reads and
writes, one call that writes *and* makes durable, and the directory operations whose durability
needs a call of its own (a created or renamed file survives a power cut only once its directory
has been synced).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trilogue.log.errors import AlreadyLocked

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK = 4096
"""Alignment in bytes of everything the journal writes; O_DIRECT accepts whole blocks only."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


class File(Protocol):
    """An open file. Every failing call raises `OSError`; none of them retries."""

    @property
    def path(self) -> Path:
        """The name it was opened by."""

    @property
    def direct(self) -> bool:
        """Whether writes go past the page cache and have to be block-aligned in every respect."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data`; not durable yet."""

    def pwrite_durable(self, data: Buffer, offset: int) -> None:
        """Write all of `data` and return once it survives a power cut."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def read_into(self, room: memoryview, offset: int) -> int:
        """Fill `room`; returns the number of bytes read, less than its length only at the end.

        For a `direct` file, `room` must be whole blocks of page-aligned memory (of a mapping).
        """

    def sync(self) -> None:
        """Return once everything written so far survives a power cut."""

    def size(self) -> int:
        """The file's length in bytes."""

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long."""

    def map(self) -> memoryview:
        """Map the whole file at its present size, read-only; views stay valid after `close`."""

    def fileno(self) -> int:
        """The descriptor, for the commit thread."""

    def close(self) -> None:
        """Close the descriptor. Makes nothing durable."""


class Lock(Protocol):
    """An exclusive hold on a file; it ends with the process at the latest."""

    def release(self) -> None:
        """Release the lock."""


class FileSystem(Protocol):
    """The file-system operations that the log needs."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file and refuses an existing one.

        `direct` requests I/O that bypasses the page cache; it is used where the file system has it.
        """

    def open_read(self, path: Path, *, direct: bool = False) -> File:
        """Open for reading only. Use it for files that may belong to another user.

        `direct` requests I/O that bypasses the page cache, as in `open`.
        """

    def read(self, path: Path) -> bytes:
        """The whole content of a small file."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` in one step; durable after `sync_directory`."""

    def unlink(self, path: Path) -> None:
        """Remove the name; durable after `sync_directory`."""

    def listdir(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: Path) -> bool:
        """Whether the path exists."""

    def make_directory(self, path: Path) -> None:
        """Make a private directory (and its parents) unless it is there."""

    def sync_directory(self, path: Path) -> None:
        """Return once names created, renamed and removed in it survive a power cut."""

    def free_bytes(self, path: Path) -> int:
        """Free space in bytes, for an ordinary user, on the file system that holds `path`."""

    def total_bytes(self, path: Path) -> int:
        """Size in bytes of the whole file system that holds `path`."""

    def takes_direct(self, directory: Path) -> bool:
        """Whether files in the directory can be written past the page cache, in blocks of 4 KiB."""

    def lock(self, path: Path) -> Lock:
        """Hold `path` exclusively or raise `AlreadyLocked`."""


class OsFile:
    """An open file of the operating system."""

    __slots__ = ("_fd", "direct", "path")

    def __init__(self, path: Path, fd: int, *, direct: bool) -> None:
        self.path = path
        self.direct = direct
        self._fd = fd

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data`."""
        self._write(data, offset, 0)

    def pwrite_durable(self, data: Buffer, offset: int) -> None:
        """Write all of `data` with one synchronous call per piece.

        One that makes the file longer is synced once more: Linux before 6.7 may return from a
        direct synchronous write with the new length in memory only.
        """
        extends = offset + memoryview(data).nbytes > self.size()
        self._write(data, offset, os.RWF_DSYNC)
        if extends:
            os.fdatasync(self._fd)

    def _write(self, data: Buffer, offset: int, flags: int) -> None:
        view = memoryview(data).cast("B")
        while view:
            written = os.pwritev(self._fd, (view,), offset, flags)
            if written <= 0:
                raise OSError(errno.EIO, "nothing was written", str(self.path))
            offset += written
            view = view[written:]

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes."""
        if self.direct:  # needs an aligned buffer; no hot path reads this way
            return bytes(self.map()[offset : offset + size])
        return os.pread(self._fd, size, offset)

    def read_into(self, room: memoryview, offset: int) -> int:
        """Fill `room` as far as the file goes."""
        done = 0
        while done < len(room):
            size = os.preadv(self._fd, (room[done:],), offset + done)
            done += size
            if not size or (self.direct and size % BLOCK):
                break
        return done

    def sync(self) -> None:
        """Sync data and the metadata needed to find it."""
        os.fsync(self._fd)

    def size(self) -> int:
        """The file's length in bytes.

        Not by fstat: it shows the time of the last write, and since Linux 6.13 the next one then
        has to set a new time, which may cost a second write to disk (docs/decisions/0006).
        """
        return os.lseek(self._fd, 0, os.SEEK_END)

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long."""
        os.ftruncate(self._fd, size)

    def map(self) -> memoryview:
        """The whole file, read-only."""
        if self.size() == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, 0, prot=mmap.PROT_READ))

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsLock:
    """An flock on an open descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock. The file stays: the flock is what counts."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class ScratchFile(OsFile):
    """A file that need not survive a power cut: nothing waits for the disk."""

    __slots__ = ()

    def pwrite_durable(self, data: Buffer, offset: int) -> None:
        """Write all of `data`."""
        self.pwrite(data, offset)

    def sync(self) -> None:
        """Return at once."""


class OsFileSystem:
    """The operating system's files, private to their owner and never through a symbolic link.

    It has no state, so it can be sent to the helper process.
    """

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> File:
        """Open for reading and writing."""
        return _opened(path, _open_descriptor(path, create=create), direct=direct)

    def open_read(self, path: Path, *, direct: bool = False) -> File:
        """Open for reading; a read-only mount or a right to read is enough."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return _opened(path, fd, direct=direct)

    def read(self, path: Path) -> bytes:
        """The whole content of a small file."""
        return path.read_bytes()

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` in one step."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove the name."""
        path.unlink()

    def listdir(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(entry.name for entry in path.iterdir())

    def exists(self, path: Path) -> bool:
        """Whether there is something of that name."""
        return path.exists()

    def make_directory(self, path: Path) -> None:
        """Make a private directory unless it is there, and private ones above it."""
        for missing in [each for each in reversed(path.parents) if not each.exists()]:
            missing.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Sync the names in it."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """Room left for an ordinary user."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: Path) -> int:
        """Room of the whole file system."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    def takes_direct(self, directory: Path) -> bool:
        """Try it: the open may succeed where the write does not."""
        path = directory / "direct.tmp"
        path.unlink(missing_ok=True)
        file = self.open(path, create=True, direct=True)
        try:
            if file.direct:
                file.pwrite(mmap.mmap(-1, BLOCK), 0)
        except OSError:  # EINVAL, or a full disk: then direct I/O is not worth a retry
            return False
        finally:
            file.close()
            path.unlink()
        return file.direct

    def lock(self, path: Path) -> Lock:
        """Take an flock, which a killed process cannot leave behind."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise AlreadyLocked(f"another process works on {path.parent}") from None
        return OsLock(fd)


class ScratchFileSystem(OsFileSystem):
    """Files of a directory whose content is elsewhere, too, and that ends with its process."""

    __slots__ = ()

    def open(
        self,
        path: Path,
        *,
        create: bool = False,
        direct: bool = False,  # noqa: ARG002 - it is a hint
    ) -> File:
        """Open for reading and writing, by way of the page cache."""
        return ScratchFile(path, _open_descriptor(path, create=create), direct=False)

    def sync_directory(self, path: Path) -> None:
        """Return at once."""

    def takes_direct(self, directory: Path) -> bool:  # noqa: ARG002 - whatever it is
        """Nothing is written past the page cache."""
        return False


def _open_descriptor(path: Path, *, create: bool) -> int:
    """Open a file, or make an empty one, for reading and writing."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    if create:
        flags |= os.O_CREAT | os.O_EXCL
    return os.open(path, flags, FILE_MODE)


def _opened(path: Path, fd: int, *, direct: bool) -> OsFile:
    """Wrap an open descriptor; with `direct`, turn on direct I/O where the file system has it."""
    if not direct:
        return OsFile(path, fd, direct=False)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            os.close(fd)
            raise
        direct = False
    return OsFile(path, fd, direct=direct)
