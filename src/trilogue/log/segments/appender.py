"""A file written once, from its beginning to its end, in large pieces.

It bypasses the page cache where the file system allows it: readers that follow the log have just
read the same data from memory, and copying it into the page cache cost more than the rest of a
flush. Direct writes are whole blocks from aligned memory, so the last one is padded and the file
truncated to its size before it is synced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trilogue.log.files import BLOCK, File
from trilogue.log.memory import HUGE_PAGE, aligned

PIECE: Final = 1 << 20
GENTLE_PIECE: Final = 256 << 10
"""Large writes are the cheapest without a rate; but a commit waits behind the one under way."""


class Appender:
    """Buffers what is added and writes it in large pieces; `finish` makes it durable."""

    def __init__(
        self,
        file: File,
        on_write: Callable[[int], None] = lambda _: None,
        *,
        gently: bool = False,
    ) -> None:
        self._file = file
        self._on_write = on_write
        self._piece = GENTLE_PIECE if gently else PIECE
        self._written = 0
        # In one huge page: a disk request takes some 250 scattered pages, and 1 MiB is 256.
        self._room = aligned(HUGE_PAGE)[: self._piece] if file.direct else None
        self._used = 0
        self._waiting: list[bytes | bytearray | memoryview] = []

    @property
    def size(self) -> int:
        """Bytes added so far."""
        return self._written + self._used

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes; they may be written now or later."""
        if self._room is None:
            self._waiting.append(data)
            self._used += len(data)
            if self._used >= self._piece:
                self._write_waiting()
            return
        view, piece = memoryview(data), self._piece
        while view:
            part = view[: piece - self._used]
            self._room[self._used : self._used + len(part)] = part
            self._used += len(part)
            view = view[len(part) :]
            if self._used == piece:
                self._write_room(piece)

    def finish(self) -> None:
        """Write the rest and return when all of it survives a power cut."""
        if self._room is None:
            self._write_waiting()
        elif self._used:
            size = self.size
            end = -(-self._used // BLOCK) * BLOCK
            self._room[self._used : end] = bytes(end - self._used)
            self._write_room(end)
            self._file.truncate(size)
            self._written = size
        self._file.sync()

    def _write_room(self, size: int) -> None:
        assert self._room is not None
        self._file.pwrite(self._room[:size], self._written)
        self._count(size)

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            joined = waiting[0] if len(waiting) == 1 else b"".join(waiting)
            self._file.pwrite(joined, self._written)
            self._count(len(joined))

    def _count(self, size: int) -> None:
        self._written += size
        self._used = 0
        self._on_write(size)
