"""Sends buffers to a socket that does not block, in a thread: waits where the peer is slower.

`os.writev` copies without the GIL; the thread has it only between two of them.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from typing import Final

Buffer = bytes | bytearray | memoryview

BUFFERS_MAX: Final = 1024
"""Of one system call (IOV_MAX)."""


def send_buffers(fd: int, buffers: Sequence[Buffer], stall_ms: int, limit_ms: int) -> int:
    """Send all buffers in order, and return how many bytes were sent.

    Less than all, once the peer accepts nothing for `stall_ms`, after `limit_ms`, or when the
    connection is closed.
    """
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    end_s = time.monotonic() + limit_ms / 1000
    left: list[Buffer] = list(buffers)
    sent = 0
    while left:
        try:
            count = os.writev(fd, left[:BUFFERS_MAX])
        except BlockingIOError:
            left_ms = (end_s - time.monotonic()) * 1000
            if left_ms <= 0 or not poll.poll(min(stall_ms, left_ms)):
                return sent
            continue
        except OSError:  # the connection is closed; its transport reports that
            return sent
        sent += count
        left = drop_bytes(left, count)
    return sent


def send_now(number: int, data: Buffer) -> int:
    """Return how many bytes the socket of this descriptor took: 0 where it is full or has an error.

    transport_writer.pxd has the compiled version.
    """
    try:
        return os.write(number, data)
    except OSError:
        return 0


def drop_bytes(buffers: Sequence[Buffer], count: int) -> list[Buffer]:
    """Return views of what follows the first `count` bytes."""
    rest: list[Buffer] = []
    for buffer in buffers:
        size = len(buffer)
        if count < size:
            rest.append(memoryview(buffer)[count:])
        count = max(0, count - size)
    return rest
