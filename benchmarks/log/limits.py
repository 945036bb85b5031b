"""What this disk can do at best: the same bytes with nothing of ours around them.

Two ways. *Plain*: `pwrite`, then `fdatasync`, into a file that grows, which is how one would
begin. *Best*: `pwritev2(RWF_DSYNC)` past the page cache into a file that was filled with zeros
before, which is the fastest one-at-a-time way known here. The log is judged by the better of the
two. Both write from one thread, one write at a time, from the same memory again and again.
"""

from __future__ import annotations

import mmap
import os
import statistics
import time
from pathlib import Path

from benchmarks.log.world import Figures

FILE_BYTES = 64 << 20


def plain(folder: Path, size: int, seconds: float) -> Figures:
    """pwrite + fdatasync into a growing file; started again at 64 MiB, as the journal does."""
    path = folder / "limit-plain"
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]

    def write(at: int) -> None:
        if at == 0:
            os.ftruncate(fd, 0)
        os.pwrite(fd, data, at)
        os.fdatasync(fd)

    try:
        return _measure(write, size, seconds)
    finally:
        os.close(fd)
        path.unlink()


def best(folder: Path, size: int, seconds: float) -> Figures:
    """pwritev2(RWF_DSYNC), O_DIRECT, into blocks that were written before."""
    path = folder / "limit-best"
    if not path.exists():
        with path.open("wb") as made:
            for _ in range(FILE_BYTES >> 20):
                made.write(bytes(1 << 20))
            os.fsync(made.fileno())
    fd = os.open(path, os.O_RDWR | getattr(os, "O_DIRECT", 0))
    whole = -(-size // 4096) * 4096
    data = mmap.mmap(-1, whole)
    data.write(os.urandom(whole))

    def write(at: int) -> None:
        os.pwritev(fd, (data,), at, os.RWF_DSYNC)

    try:
        return _measure(write, whole, seconds)
    finally:
        os.close(fd)


def _measure(write, size: int, seconds: float) -> Figures:
    took, at = [], 0
    cpu = time.process_time()
    began = now = time.perf_counter()
    while now - began < seconds:
        write(at)
        at = at + size if at + 2 * size <= FILE_BYTES else 0
        before, now = now, time.perf_counter()
        took.append(now - before)
    cpu = time.process_time() - cpu
    took.sort()
    return {
        "writes_per_s": len(took) / (now - began),
        "mb_per_s": len(took) * size / (now - began) / 1e6,
        "p50_ms": statistics.median(took) * 1e3,
        "p99_ms": took[int(len(took) * 0.99)] * 1e3,
        "cpu_us_per_write": cpu / len(took) * 1e6,
    }


def read(paths: list[Path], size: int, seconds: float, *, cold: bool) -> Figures:
    """pread from front to back, one after the other; the bytes are not processed."""
    got, cpu = 0, time.process_time()
    spent = 0.0
    while spent < seconds:
        for path in paths:
            if cold:
                forget(path)
            began = time.perf_counter()
            fd = os.open(path, os.O_RDONLY)
            at = 0
            while part := os.pread(fd, size, at):
                at += len(part)
            os.close(fd)
            got += at
            spent += time.perf_counter() - began
            if spent >= seconds:
                break
    return {
        "mb_per_s": got / spent / 1e6,
        "cpu_s_per_gb": (time.process_time() - cpu) / got * 1e9,
    }


def forget(path: Path) -> None:
    """Push a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)  # what is dirty stays otherwise
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
