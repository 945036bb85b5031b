"""What a server process and its children cost: CPU, memory, bytes written, syncs; read from /proc.

A process tree is measured as a whole, because work that was moved into a helper process still has
to be paid. Counters of children that ended are in their parent's cutime and cstime.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
CGROUP = Path("/sys/fs/cgroup")
NOT_A_DISK = {"tmpfs", "ramfs", "overlay"}


def tree(pid: int) -> list[int]:
    """The process and everything below it.

    By the parent of each process: a list of children (`/proc/PID/task/TID/children`) may lack some
    while others end.
    """
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    pids = [pid]
    for each in pids:
        pids += children.get(each, [])
    return pids


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree so far."""
    total = 0
    for number in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS


class CpuGroup:
    """CPU of a process and of all that it starts from now on, by a control group.

    A parent that ignores the end of its children, as the daemon of Spark's Python workers does, has
    nothing of them in its counters, and a tree then seems to use less than nothing. Without the
    right to make a group it is the tree that is counted, and `is_exact` is false.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._usage = pid, Path()
        self.is_exact = False
        for root, usage in ((CGROUP / "cpuacct", "cpuacct.usage"), (CGROUP, "cpu.stat")):
            group = root / f"trilogue-bench-{os.getpid()}-{pid}"
            with suppress(OSError):
                group.mkdir()
                if (group / usage).exists():
                    for one in tree(pid):
                        (group / "cgroup.procs").write_text(str(one))
                    self._usage, self.is_exact = group / usage, True
                    return
                group.rmdir()

    def cpu_seconds(self) -> float:
        """User and system time so far, of processes that have ended as well."""
        if not self.is_exact:
            return cpu_seconds(self._pid)
        text = self._usage.read_text()
        if text.startswith("usage_usec"):
            return int(text.split()[1]) / 1e6
        return int(text) / 1e9

    def remove(self) -> None:
        """Remove the group; its processes have ended."""
        if self.is_exact:
            with suppress(OSError):  # one of them still ends
                self._usage.parent.rmdir()


def bytes_written(pid: int) -> int:
    """Bytes the tree sent towards the disk (page cache pages made dirty, direct writes)."""
    total = 0
    for number in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{number}/io").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return total


def memory_mb(pid: int) -> float:
    """Memory of the tree, shared pages counted once (proportional set size)."""
    total = 0
    for number in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


@dataclass
class Cost:
    """What happened between begin and end of a measurement."""

    cpu_s: float
    written_bytes: int
    settling_cpu_s: float = 0.0

    @property
    def whole_cpu_s(self) -> float:
        """With the work that was put off until after the load."""
        return self.cpu_s + self.settling_cpu_s


class Meter:
    """Reads the counters of one tree at the begin and the end of a measurement."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.cpu, self.written = cpu_seconds(pid), bytes_written(pid)

    def read(self) -> Cost:
        return Cost(cpu_seconds(self.pid) - self.cpu, bytes_written(self.pid) - self.written)


def settle(pids: list[int], *, quiet_share: float = 0.08, limit_s: float = 15.0) -> None:
    """Wait until none of the servers works any more: put-off work belongs to who put it off."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(0.3)
        used = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
        if max(used) <= 0.3 * quiet_share:
            return


@contextmanager
def counted_syncs(pid: int, log: Path) -> Iterator[None]:
    """Trace the tree's sync calls into `log`: slows it down, so never around a measurement."""
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=fsync,fdatasync,msync,pwritev2"]
    for number in tree(pid):
        command += ["-p", str(number)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
        time.sleep(0.5)
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(10)


def syncs_in(log: Path) -> int:
    """Calls that made something durable."""
    calls = [line for line in log.read_text().splitlines() if "resumed>" not in line]
    return sum("sync(" in line or "DSYNC" in line for line in calls)


def have_strace() -> bool:
    return shutil.which("strace") is not None


def file_system(path: Path) -> str:
    """The type of the file system a path lies on."""
    path = path.resolve()
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, its_kind, *_ = line.split()
        if path.is_relative_to(where) and len(where) >= len(best):
            best, kind = where, its_kind
    return kind


def machine(path: Path) -> dict[str, object]:
    """What a reader must know to compare: never a name or an address."""
    model = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpus": os.cpu_count(),
        "cpu": model[0] if model else platform.machine(),
        "architecture": platform.machine(),
        "kernel": platform.release().split("-")[0],
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "file_system": file_system(path),
        "python": platform.python_version(),
    }
