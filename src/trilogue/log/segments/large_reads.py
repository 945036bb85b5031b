"""Large reads of files into reusable memory, past the page cache where that is better.

Segments are written past the page cache (docs/decisions/0018), so the first reader finds nothing
there. To fill the cache for one reader costs fresh pages and a copy, and the kernel reads in
smaller pieces than the disk could deliver; a direct read into huge pages costs next to nothing
(docs/decisions/0055), less than a copy out of the page cache. Repeated reads belong there only
where the disk is slow (docs/decisions/0119): `SegmentReader` decides between the two.

Any thread may read. The memory becomes free with the last view of the data that was read.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from sys import maxsize
from typing import Final

from trilogue.log.files import BLOCK, File, FileSystem
from trilogue.log.memory import HUGE_PAGE
from trilogue.log.tail.chunks import Budget

LARGE_FROM: Final = HUGE_PAGE // 4
"""Bytes: what is less is read as Python does it, with what the kernel reads ahead. A slow reader
may hold four times what it looks at: what is lent is a part of a huge page."""
CANNOT: Final = (errno.EINVAL, errno.EOPNOTSUPP)
FAST_BYTES_PER_S: Final = 250e6
"""Of a direct read; with some of them at a time a disk delivers more. A slower one needs the page
cache."""
RATE_KEPT: Final = 0.995
"""How much of the best rate the next read keeps: one that other work delayed says little."""
IDLE_TRIMS: Final = 30
"""Calls of `trim` without a read before memory is freed: where the host of a virtual machine has to
provide them again, huge pages cost more than all else in a read."""


class LargeReads:
    """Reads ranges of files of one file system."""

    def __init__(self, files: FileSystem, clock: Callable[[], float] = time.perf_counter) -> None:
        self._files = files
        self._clock = clock
        self._bytes_per_s = 0.0  # the best of the last direct reads
        self._idle_trims = 0
        self._can_direct = True
        self._memory = Budget(maxsize, _ignore_release, slab_bytes=HUGE_PAGE, huge=True)
        self._lock = threading.Lock()  # for the memory, which is assigned to one reader at a time

    @property
    def used_bytes(self) -> int:
        """Bytes of memory that readers still hold views of."""
        return self._memory.used

    @property
    def pooled_bytes(self) -> int:
        """Bytes of memory that wait for the next read."""
        return self._memory.pooled

    @property
    def is_disk_fast(self) -> bool:
        """Whether direct reads are so fast that the page cache is not worth its copies."""
        return self._bytes_per_s >= FAST_BYTES_PER_S

    def read(self, file: File, start: int, stop: int, *, direct: bool) -> memoryview:
        """Read bytes [start, stop) of an open file, less where it ends. Raises `OSError`.

        `direct` requests I/O past the page cache; it is used where the file system has it.
        """
        found = self._read_direct(file, start, stop) if direct and self._can_direct else None
        if found is None:
            room = self._room(stop - start)
            found = room[: file.read_into(room, start)]
        return found.toreadonly()

    def _read_direct(self, file: File, start: int, stop: int) -> memoryview | None:
        """Read whole blocks through a descriptor of its own; None if that is not possible."""
        try:
            other = self._files.open_read(file.path, direct=True)
        except OSError:  # the name is gone, or no descriptor is left: use the open one
            return None
        try:
            if not other.direct:
                self._can_direct = False
                return None
            origin = start - start % BLOCK
            room = self._room(-(-(stop - origin) // BLOCK) * BLOCK)
            began_s = self._clock()
            end = origin + other.read_into(room, origin)
            self._note_rate(end - origin, self._clock() - began_s)
        except OSError as error:
            if error.errno not in CANNOT:
                raise
            self._can_direct = False
            return None
        finally:
            other.close()
        return room[start - origin : min(end, stop) - origin]

    def _note_rate(self, size: int, duration_s: float) -> None:
        rate = size / max(duration_s, 1e-6)
        self._bytes_per_s = max(rate, RATE_KEPT * self._bytes_per_s)

    def _room(self, size: int) -> memoryview:
        """Return memory of this size, in whole huge pages where it is large."""
        wanted = max(size, LARGE_FROM)
        if wanted > HUGE_PAGE // 2:
            wanted = -(-wanted // HUGE_PAGE) * HUGE_PAGE
        self._idle_trims = 0
        with self._lock:
            return self._memory.chunk(wanted)[:size]

    def trim(self) -> None:
        """Free memory that no read has used for some calls."""
        self._idle_trims += 1
        if self._idle_trims > IDLE_TRIMS:
            with self._lock:
                self._memory.trim()


def _ignore_release() -> None:
    """Do nothing: no reader waits for memory."""
