"""What tests of hostile peers share: a client that behaves meanwhile, and the server's memory."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

GROWTH_MAX = 200 << 20
ANSWER_WITHIN_S = 1.0


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def dial(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def made_to_wait(task: str) -> float:
    """Seconds for which a thread would have run but for others on its core; 0 where none tells."""
    try:
        return int(Path(f"/proc/{task}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:  # the process ended, or a kernel without
        return 0.0


class Healthy(threading.Thread):
    """A client that asks for one thing after the other and notes how long each answer took.

    For what else the machine does meanwhile neither is to blame: the time does not count in which
    the server's loop, or this thread, was ready to run and another process had the core.
    """

    def __init__(self, pid: int, ask: Callable[[], object], close: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.pid, self.ask, self.close = pid, ask, close
        self.stopping = threading.Event()
        self.slowest = 0.0
        self.sent = 0

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            began = self.own_time()
            self.ask()
            self.slowest = max(self.slowest, self.own_time() - began)
            self.sent += 1

    def own_time(self) -> float:
        waits = made_to_wait(str(self.pid)) + made_to_wait("thread-self")
        return time.monotonic() - waits

    def wait_for(self, more: int, seconds: float = 60.0) -> None:
        """Until it was answered so many times more."""
        wanted, ends = self.sent + more, time.monotonic() + seconds
        while self.sent < wanted:
            assert self.is_alive(), "it was not answered"
            assert time.monotonic() < ends, f"{self.sent} of {wanted} answers"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join(60)
        self.close()
