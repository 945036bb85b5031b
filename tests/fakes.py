"""Stand-ins for the world around the log: a disk that lies as real ones do, a loop, a clock.

`FakeFileSystem` keeps, per sector of 512 bytes, what the disk surely holds and what was written
since. A kill loses nothing of that (the page cache stays); a power cut lets each sector not yet
durable come out as any of the contents it had since then, so writes are cut, torn and reordered at
will. Names change in order, and durably with the sync of their directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from random import Random

from trilogue.log.errors import AlreadyLocked
from trilogue.log.files import BLOCK

SECTOR = 512


class Inode:
    """A file's bytes as the kernel shows them, as the disk holds them, and what is in between."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.versions: dict[int, list[bytes]] = {}  # sector -> contents since it was durable
        self.sizes: list[int] = []  # since the size was durable

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
            self.sizes.append(end)
        self.data[offset:end] = data
        for sector in range(offset // SECTOR, -(-end // SECTOR)):
            self.versions.setdefault(sector, []).append(self._sector(sector))

    def _sector(self, sector: int) -> bytes:
        return bytes(self.data[sector * SECTOR : (sector + 1) * SECTOR])

    def truncate(self, size: int) -> None:
        self.data = self.data[:size] + bytes(max(0, size - len(self.data)))
        self.sizes.append(size)
        self.versions = {at: seen for at, seen in self.versions.items() if at * SECTOR < size}

    def persist(self, sectors: range | None = None) -> None:
        """Make all, or some sectors and the size, durable."""
        size = len(self.data)
        self.durable = self.durable[:size] + bytes(max(0, size - len(self.durable)))
        self.sizes.clear()
        for sector in list(self.versions) if sectors is None else sectors:
            if self.versions.pop(sector, None) is not None:
                self._put(sector, self._sector(sector))

    def _put(self, sector: int, content: bytes) -> None:
        at = sector * SECTOR
        room = max(0, len(self.durable) - at)
        self.durable[at : at + len(content[:room])] = content[:room]

    def forget_pending(self) -> None:
        """What a failed sync does: the pages stay as they are and are called clean."""
        self.versions.clear()
        self.sizes.clear()

    def power_cut(self, random: Random) -> None:
        size = random.choice([len(self.durable), *self.sizes])
        self.durable = self.durable[:size] + bytes(max(0, size - len(self.durable)))
        for sector, seen in sorted(self.versions.items()):
            content = random.choice([None, *seen])
            if content is not None:
                self._put(sector, content)
        self.data = bytearray(self.durable)
        self.forget_pending()


class PowerCut(BaseException):  # nothing that the code under test might catch
    """The operation under way does not come back."""


class FakeFile:
    def __init__(
        self,
        fs: FakeFileSystem,
        path: Path,
        inode: Inode,
        *,
        direct: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self.direct = direct
        self.read_only = read_only
        self.inode = inode
        self._fs = fs
        self._life = fs.life
        self._open = True

    def _enter(self, operation: str) -> None:
        assert self._open, "a closed file is used"
        assert self._life == self._fs.life, "a dead process uses a file"
        self._fs.step(operation, self)

    def _check_aligned(self, size: int, offset: int) -> None:
        if self.read_only:
            raise OSError(errno.EBADF, "opened for reading")
        if self.direct and (size % BLOCK or offset % BLOCK):
            raise OSError(errno.EINVAL, "not aligned")

    def pwrite(self, data: bytes, offset: int) -> None:
        self._check_aligned(len(data), offset)
        self.inode.write(bytes(data), offset)
        self._enter("write")

    def pwrite_durable(self, data: bytes, offset: int) -> None:
        self._check_aligned(len(data), offset)
        content = bytes(data)
        self.inode.write(content, offset)
        self._enter("write")
        self._enter("sync")
        last = -(-(offset + len(content)) // SECTOR)
        self.inode.persist(range(offset // SECTOR, last))

    def pread(self, size: int, offset: int) -> bytes:
        self._enter("read")
        return bytes(self.inode.data[offset : offset + size])

    def read_into(self, room: memoryview, offset: int) -> int:
        if self.direct and (len(room) % BLOCK or offset % BLOCK):
            raise OSError(errno.EINVAL, "not aligned")
        data = self.pread(len(room), offset)
        room[: len(data)] = data
        return len(data)

    def sync(self) -> None:
        self._enter("sync")
        self.inode.persist()

    def size(self) -> int:
        return len(self.inode.data)

    def truncate(self, size: int) -> None:
        self._enter("write")
        self.inode.truncate(size)

    def map(self) -> memoryview:
        self._enter("read")
        return memoryview(bytes(self.inode.data))

    def fileno(self) -> int:
        raise AssertionError("there is no descriptor")

    def close(self) -> None:
        self._open = False


class FakeLock:
    def __init__(self, fs: FakeFileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path

    def release(self) -> None:
        self._fs.locks.discard(self._path)


class FakeFileSystem:
    """Files in memory. `fail` and `cut_after` arrange trouble, `kill` and `power_cut` are it."""

    def __init__(self, *, direct: bool = False) -> None:
        self.direct = direct
        self.life = 0
        self.free = 1 << 40
        self.locks: set[Path] = set()
        self.names: dict[Path, Inode] = {}
        self.durable_names: dict[Path, Inode] = {}
        self.directories: set[Path] = set()
        self.changes: list[dict[Path, Inode | None]] = []  # of names, not yet durable, in order
        self.counts: dict[str, int] = {}
        self._failures: list[tuple[str, int]] = []  # operation, errno
        self._cut_after: int | None = None

    # -- trouble ---------------------------------------------------------------------------

    def fail(self, operation: str, number: int = errno.EIO) -> None:
        """Let the next `write`, `sync`, `create`, `rename`, `unlink` or `sync_directory` fail."""
        self._failures.append((operation, number))

    def cut_after(self, steps: int | None) -> None:
        """Let the power fail in the middle of the operation after so many more; None: do not."""
        self._cut_after = steps

    def step(self, operation: str, file: FakeFile | None = None) -> None:
        self.counts[operation] = self.counts.get(operation, 0) + 1
        if operation != "read" and self._cut_after is not None:
            self._cut_after -= 1
            if self._cut_after < 0:
                self._cut_after = None
                raise PowerCut
        for at, (which, number) in enumerate(self._failures):
            if which == operation:
                del self._failures[at]
                if file is not None:
                    file.inode.forget_pending()
                raise OSError(number, os.strerror(number))

    def kill(self) -> None:
        """End the process. The page cache stays."""
        self.life += 1
        self.locks.clear()
        self._failures.clear()
        self._cut_after = None

    def power_cut(self, random: Random) -> None:
        """End the machine: what is not durable comes out as it likes."""
        self.kill()
        for change in self.changes[: random.randint(0, len(self.changes))]:
            self._apply(change)
        self.changes.clear()
        self.names = dict(self.durable_names)
        for inode in {id(each): each for each in self.names.values()}.values():
            inode.power_cut(random)

    def flip(self, path: Path, at: int, bit: int) -> None:
        """Let the disk return one bit that was not written."""
        inode = self.names[path]
        inode.data[at] ^= 1 << bit
        inode.durable = bytearray(inode.data)
        inode.forget_pending()

    def _apply(self, change: dict[Path, Inode | None]) -> None:
        _change(self.durable_names, change)

    def _name(self, change: dict[Path, Inode | None]) -> None:
        _change(self.names, change)
        self.changes.append(change)

    # -- the port --------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> FakeFile:
        if create:
            self.step("create")
            if path in self.names:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            if path.parent not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
            self._name({path: Inode()})
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return FakeFile(self, path, self.names[path], direct=direct and self.direct)

    def open_read(self, path: Path, *, direct: bool = False) -> FakeFile:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return FakeFile(self, path, self.names[path], direct=direct and self.direct, read_only=True)

    def read(self, path: Path) -> bytes:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return bytes(self.names[path].data)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename")
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        self._name({target: self.names[source], source: None})

    def unlink(self, path: Path) -> None:
        self.step("unlink")
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        self._name({path: None})

    def listdir(self, path: Path) -> list[str]:
        return sorted(name.name for name in self.names if name.parent == path)

    def exists(self, path: Path) -> bool:
        return path in self.names or path in self.directories

    def make_directory(self, path: Path) -> None:
        self.directories.update((path, *path.parents))

    def sync_directory(self, path: Path) -> None:
        self.step("sync_directory")
        for change in self.changes:
            if path in {name.parent for name in change}:
                self._apply(change)
        self.changes = [
            change for change in self.changes if path not in {name.parent for name in change}
        ]

    def free_bytes(self, path: Path) -> int:
        return self.free

    def total_bytes(self, path: Path) -> int:
        return 2 * self.free

    def takes_direct(self, directory: Path) -> bool:
        return self.direct

    def lock(self, path: Path) -> FakeLock:
        if path in self.locks:
            raise AlreadyLocked(f"another process works on {path.parent}")
        self.locks.add(path)
        return FakeLock(self, path)


def _change(names: dict[Path, Inode], change: dict[Path, Inode | None]) -> None:
    for path, inode in change.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


class FakeLoop:
    """Callbacks in order, none before `run`; background work on request, in the same thread."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], object]] = []
        self.jobs: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []  # in the order of their making
        self.time_ms = 1_700_000_000_000
        self.seconds = 1_000.0

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.ready.append(callback)

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.timers.append((self.seconds + delay_s, callback))

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        raise AssertionError("nothing to read from")

    def remove_reader(self, fd: int) -> None:
        raise AssertionError("nothing was read from")

    def background(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def turn(self) -> bool:
        """Run the callbacks that are ready now; return whether there were any."""
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()
        return bool(ready)

    def run(self) -> None:
        """Run until nothing is ready."""
        while self.turn():
            pass

    def work(self) -> None:
        """Do the background work, then run."""
        while self.jobs:
            self.jobs.pop(0)()
        self.run()

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.seconds

    def pass_time(self, seconds: float) -> None:
        """What timers wait for comes due, in order; it happens with the next `run`."""
        self.seconds += seconds
        self.time_ms += int(seconds * 1000)
        due = sorted((each for each in self.timers if each[0] <= self.seconds), key=itemgetter(0))
        self.timers = [each for each in self.timers if each[0] > self.seconds]
        self.ready += [callback for _, callback in due]
