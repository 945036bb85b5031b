"""Large reads of files into memory that is used again, past the page cache where that is better.

Segments are written past the page cache (docs/decisions/0018), so who reads one for the first time
finds nothing there. To fill it for one reader costs fresh pages and a copy, and the kernel reads in
smaller pieces than the disk could take; a direct read into huge pages costs next to nothing
(docs/decisions/0055). What is read again and again belongs in the page cache: whose turn that is,
`SegmentReader` knows.

Any thread may read. The memory is free again when the last view of what was read is gone.
"""

from __future__ import annotations

import errno
import threading
from sys import maxsize
from typing import Final

from trilogue.log.chunks import Budget
from trilogue.log.files import BLOCK, File, FileSystem
from trilogue.log.memory import HUGE_PAGE

LARGE_FROM: Final = HUGE_PAGE // 4
"""Bytes: what is less is read as Python does it, with what the kernel reads ahead. A slow reader
may hold four times what it looks at: what is lent is a part of a huge page."""
CANNOT: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class LargeReads:
    """Reads parts of the files of one file system."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._can_direct = True
        self._memory = Budget(maxsize, _nobody_waits, slab_bytes=HUGE_PAGE, huge=True)
        self._lock = threading.Lock()  # of the memory, which is given out to one at a time

    @property
    def used_bytes(self) -> int:
        """What those reads take that somebody still looks at."""
        return self._memory.used

    def read(self, file: File, start: int, stop: int, *, direct: bool) -> memoryview:
        """Read bytes [start, stop) of an open file, less where it ends. Raises `OSError`.

        `direct` asks to go past the page cache, and is granted where the file system can.
        """
        found = self._read_direct(file, start, stop) if direct and self._can_direct else None
        if found is None:
            room = self._room(stop - start)
            found = room[: file.read_into(room, start)]
        return found.toreadonly()

    def _read_direct(self, file: File, start: int, stop: int) -> memoryview | None:
        """Read whole blocks through a descriptor of its own; None: that cannot be done."""
        try:
            other = self._files.open_read(file.path, direct=True)
        except OSError:  # its name is gone, or no descriptor is left: the open one will do
            return None
        try:
            if not other.direct:
                self._can_direct = False
                return None
            origin = start - start % BLOCK
            room = self._room(-(-(stop - origin) // BLOCK) * BLOCK)
            end = origin + other.read_into(room, origin)
        except OSError as error:
            if error.errno not in CANNOT:
                raise
            self._can_direct = False
            return None
        finally:
            other.close()
        return room[start - origin : min(end, stop) - origin]

    def _room(self, size: int) -> memoryview:
        """Memory of this size, in whole huge pages where it is large."""
        wanted = max(size, LARGE_FROM)
        if wanted > HUGE_PAGE // 2:
            wanted = -(-wanted // HUGE_PAGE) * HUGE_PAGE
        with self._lock:
            return self._memory.chunk(wanted)[:size]

    def trim(self) -> None:
        """Give memory back that nobody asked for since the last call."""
        with self._lock:
            self._memory.trim()


def _nobody_waits() -> None:
    """For memory as it is let go."""
