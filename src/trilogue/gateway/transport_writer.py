# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Writes replies to the transport of one connection, as long as it has one.

Receipts of producers wait for the journal before, in groups (docs/decisions/0035, 0187).

Compiled (transport_writer.pxd adds the types), since it runs once per reply; uncompiled it is plain
Python. See docs/decisions/0061.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import cython

if not cython.compiled:  # transport_writer.pxd has the compiled version
    from trilogue.gateway.transfers.socket_sender import send_now

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from trilogue.gateway.telemetry.request_latency import RequestTimer
    from trilogue.log.journal.window import CommitCallback

SENDS: Final = "sends"  # the key of their latency, from the end of a step to its receipts


class TransportWriter:
    """The transport, and whether its buffer is full.

    A reply goes to the socket at once where the transport has nothing to send before it: that is
    what the transport would do, and its own way there costs as much as the append.
    """

    __slots__ = ("is_paused", "socket_number", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None  # while connected
        self.socket_number = -1  # its descriptor, where bytes go there as they are
        self.is_paused = False  # whether the peer does not read what was written

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write whole replies with one call; they must not be changed afterwards."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def send_one(self, buffer: bytes | bytearray | memoryview) -> None:
        """Write a whole reply in one piece; it must not be changed afterwards."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        number = self.socket_number
        if number >= 0 and not transport.get_write_buffer_size():
            sent = send_now(number, buffer)
            if sent == len(buffer):
                return
            if sent:  # the transport sends the rest, and handles an error
                buffer = memoryview(buffer)[sent:]
        transport.write(buffer)


class ReceiptSession(Protocol):
    """The connection of the receipts."""

    in_step: bool  # whether its frames leave at the end of a step
    gathered: list[bytes | bytearray | memoryview]  # frames that have to leave first

    def replace_receipts(
        self, receipts: list[bytes | bytearray | memoryview], problem: BaseException, /
    ) -> list[bytes | bytearray | memoryview]:
        """Return the frames in place of receipts whose messages are not durable."""

    def send_receipts(self, receipts: list[bytes | bytearray | memoryview], /) -> None:
        """Send them with other frames that wait."""

    def stop_frames(self) -> None:
        """Take no more frames: too much is in flight."""

    def resume_frames(self) -> None:
        """Take frames again, if there is room."""


class ReceiptGroups:
    """The receipts of one connection that wait for commits.

    What was appended in one loop iteration is a group: it has one callback of the journal and one
    write. `receipts` are those of the group that fills, always the same list.
    """

    __slots__ = (
        "_committed",
        "_groups",
        "_in_flight_max",
        "_on_commit",
        "_session",
        "_start_timer",
        "_writer",
        "done",
        "in_flight",
        "is_full",
        "number",
        "receipts",
    )

    def __init__(
        self,
        session: ReceiptSession,
        on_commit: Callable[[CommitCallback], None],
        start_timer: Callable[[str], RequestTimer | None],
        in_flight_max: int,
    ) -> None:
        self.receipts: list[bytes | bytearray | memoryview] = []
        self.number = 1  # of the group that fills
        self.done = 0
        self.in_flight = 0  # receipts of all groups
        self.is_full = False  # whether the session takes no frames until there are fewer
        self._session: ReceiptSession | None = session  # until it is closed
        self._on_commit = on_commit
        self._start_timer = start_timer
        self._in_flight_max = in_flight_max
        self._writer: TransportWriter | None = None  # until there is a stream
        self._groups: deque[tuple[list[bytes | bytearray | memoryview], RequestTimer | None]] = (
            deque()
        )
        self._committed: CommitCallback = self.committed  # bound once

    def open(self, writer: TransportWriter) -> None:
        """Keep what to write to."""
        self._writer = writer

    def close(self) -> None:
        """Drop what would have left, and refer to nothing of the connection: it is closed."""
        self.receipts.clear()
        self._groups.clear()
        self._session = None
        self._committed = _ignore_commit

    def commit(self) -> None:
        """Begin a new group; the next commit of the journal confirms the old one."""
        receipts = self.receipts
        session = self._session
        if not receipts or session is None:
            return
        group = receipts[:]
        receipts.clear()
        self._groups.append((group, self._start_timer(SENDS)))
        self.in_flight += len(group)
        self.number += 1
        self._on_commit(self._committed)
        if self.in_flight >= self._in_flight_max:
            session.stop_frames()

    def committed(self, problem: BaseException | None) -> None:
        """Send the receipts of the oldest group: it is durable, or never will be."""
        session = self._session
        if session is None:
            return
        receipts, timer = self._groups.popleft()
        count = len(receipts)
        self.done += 1
        self.in_flight -= count
        writer = self._writer
        if problem is not None:
            receipts = session.replace_receipts(receipts, problem)
        if writer is None or writer.is_paused or session.in_step or session.gathered:
            session.send_receipts(receipts)
        else:
            writer.send_one(receipts[0] if len(receipts) == 1 else b"".join(receipts))
        if timer is not None:
            timer.stop(count)
        if self.is_full:
            session.resume_frames()


def _ignore_commit(_problem: BaseException | None) -> None:
    """Do nothing: the connection is closed."""
