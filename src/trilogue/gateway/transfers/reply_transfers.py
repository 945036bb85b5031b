"""Large replies of plain connections are sent by threads, straight to the socket.

A fetch of 16 MiB is a dozen writes of the event loop, each of which copies a mebibyte into the
kernel and leaves nothing of the loop's own memory in the processor's caches. A thread sends it
without the GIL, and waits for the peer as long as that reads quickly. What is left when it does not
is sent by the loop as other replies are, which bounds the memory and the time of slow peers.

The reply keeps its slot at the head of the queue meanwhile: nothing else is written, so the order
stays. The thread has a descriptor of its own, since that of the transport may be closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from trilogue.gateway.transfers.socket_sender import Buffer, send_buffers

STALL_MS: Final = 50
"""A peer that accepts nothing for so long is slow: a thread does not wait for it."""
LIMIT_MS: Final = 1_000
"""Of one transfer; a thread is for all connections."""


class ReplyTransfers:
    """The transfers of all connections of a node; none without threads."""

    def __init__(self) -> None:
        self.running = 0
        self._executor: Executor | None = None
        self._transfers_max = 0

    def open(self, executor: Executor, transfers_max: int) -> None:
        """Run so many transfers at a time in the threads of an executor."""
        self._executor, self._transfers_max = executor, transfers_max

    @property
    def has_room(self) -> bool:
        """Whether a thread is free."""
        return self.running < self._transfers_max

    def start(
        self, connection: socket.socket, buffers: list[Buffer], done: Callable[[int], None]
    ) -> None:
        """Send buffers in a thread, and close its socket.

        `done` is called on the loop with the number of bytes that were sent.
        """
        assert self._executor is not None
        self.running += 1
        loop = asyncio.get_running_loop()

        def ended(sent: int) -> None:
            self.running -= 1
            connection.close()
            done(sent)

        def run() -> None:
            sent = send_buffers(connection.fileno(), buffers, STALL_MS, LIMIT_MS)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended, sent)

        self._executor.submit(run)
