"""Faults from outside the process: failing system calls, full disks, power cuts.

strace makes chosen system calls of an unmodified server fail, or kills the server at them. A power
cut is a loop image with ext4 that is shut down (EXT4_IOC_SHUTDOWN without a flush of its log):
unsynced data is gone at the next mount. Both need root; without it the tests are skipped.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers import Broker, OurServer
from tests.tools import require, require_program, require_root
from tests.waiting import wait_until

WRITES = "pwritev2,pwritev,pwrite64,write,fdatasync,fsync,sync_file_range"
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def require_strace() -> None:
    """strace, and the right to trace."""
    require_program("strace")
    require_root()


@contextmanager
def injected(
    pid: int, fault: str, paths: Iterable[Path], log: Path, *, calls: str = WRITES
) -> Iterator[None]:
    """Attach to a running process: its writes to `paths` meet the fault (`error=EIO:when=1`)."""
    command = ["strace", "-f", "-ttt", "-p", str(pid), "-o", str(log), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{fault}"]
    for path in paths:
        command += ["-P", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        first = tracer.stderr.readline()
        assert "attached" in first, first
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)  # detaches
            tracer.communicate(timeout=10)


def first_error_at(log: Path, error: str = "EIO") -> float | None:
    """Wall-clock second of the first injected error in a log of strace -ttt."""
    times = [float(line.split()[1]) for line in log.read_text().splitlines() if error in line]
    return min(times, default=None)


def killing_wrapper(log: Path, calls: str, number: int) -> tuple[str, ...]:
    """A command prefix under which the n-th such call of a thread is its process's last.

    -D: the tracer is a grandchild, so the process keeps being ours, under its own id.
    """
    fault = f"inject={calls}:signal=KILL:when={number}"
    return ("strace", "-D", "-f", "-qq", "-o", str(log), "-e", f"trace={calls}", "-e", fault)


@contextmanager
def small_disk(where: Path, size_mib: int) -> Iterator[Path]:
    """A file system of that size, in memory, that really runs full."""
    require_root()
    where.mkdir()
    done = mount("-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(where))
    require("mounts", found=done)
    try:
        yield where
    finally:
        unmount(where)


class CutDisk:
    """An ext4 image whose power can be cut; `root` is where it is mounted."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        require_root()
        require_program("mkfs.ext4")
        self.image, self.root = folder / "image", folder / "disk"
        self.root.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size_mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)
        self.mount()

    def mount(self) -> None:
        """Mounting after a cut replays the file system's journal, as a boot does."""
        require("mounts", found=mount("-o", "loop", str(self.image), str(self.root)))

    def cut(self) -> None:
        """From here on every write fails, and what was not synced will be gone."""
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def reboot(self) -> None:
        """Mount the image again, once the last process that uses the old mount has ended."""
        unmount(self.root)
        wait_until(lambda: not self.is_used(), f"the end of all processes that use {self.root}")
        self.mount()

    def cut_under(self, server: Broker) -> None:
        """Cut the power of a server under load, and start it again."""
        self.cut_off(server)
        server.start()

    def cut_off(self, server: Broker) -> None:
        """Cut the power of a server under load.

        It stops just before: a machine without power sends nothing. Without that, a write that
        extends a file during the shutdown of ext4 may come back as a success, and be acked,
        although the shutdown threw its metadata away (seen in about one of ten cuts with small
        journal files; everything that was acked before the cut began was there).
        """
        os.kill(server.pid, signal.SIGSTOP)
        self.cut()
        server.kill9()
        self.reboot()

    def is_used(self) -> bool:
        command = ["losetup", "-j", str(self.image)]
        return bool(subprocess.run(command, capture_output=True, check=True).stdout)

    def close(self) -> None:
        unmount(self.root)


def kill(server: OurServer) -> None:
    """A sudden end."""
    server.kill9()


def stop(server: OurServer) -> None:
    """An orderly end."""
    assert server.stop() == 0, server.output


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


def unmount(where: Path) -> None:
    subprocess.run(["umount", "-l", str(where)], capture_output=True, check=False)
