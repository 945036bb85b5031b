"""What tests of hostile peers share: a client that behaves meanwhile, and the server's memory."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tools.servers.probe import own_time

from tests.brokers import OurServer
from tests.waiting import wait_until

GROWTH_MAX = 200 << 20
ANSWER_WITHIN_S = 30.0  # without the time that other processes had the core


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def cpu_time(pid: int) -> float:
    """CPU seconds that a process has used; 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def dial(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


class Healthy(threading.Thread):
    """A well-behaved client: it sends one request after the other and measures each response time.

    The time that the machine gives to other processes is not counted: see `own_time`. `busiest` is
    the most CPU time that the server used between a request and its response: what the loop did
    first. It does not depend on the load of the machine.

    Of a server that is several processes, the CPU time of all of them counts.
    """

    def __init__(
        self,
        pid: int | Sequence[int],
        request: Callable[[], object],
        close: Callable[[], None],
    ) -> None:
        super().__init__(daemon=True)
        self.pids = (pid,) if isinstance(pid, int) else pid
        self.request, self.close = request, close
        self.stopping = threading.Event()
        self.slowest = self.busiest = 0.0
        self.sent = 0

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            began, used = own_time(*self.pids), self._used()
            self.request()
            self.slowest = max(self.slowest, own_time(*self.pids) - began)
            self.busiest = max(self.busiest, self._used() - used)
            self.sent += 1

    def _used(self) -> float:
        return sum(cpu_time(pid) for pid in self.pids)

    def wait_for(self, more: int, seconds: float = 120.0) -> None:
        """Until it was answered so many times more."""
        wanted = self.sent + more
        wait_until(
            lambda: self.sent >= wanted or not self.is_alive(),
            lambda: f"{self.sent} of {wanted} responses to a well-behaved client",
            seconds,
        )
        assert self.is_alive(), "it was not answered"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join(60)
        self.close()


def check_server(
    server: OurServer, healthy: Healthy, before: int, *, growth: int = GROWTH_MAX
) -> None:
    """Check the server, after it has processed everything that it was sent.

    `before` and `growth` are bytes of its memory: at first, and what may have come to it.
    """
    healthy.wait_for(30)
    assert server.running.alive
    assert "Traceback" not in server.output
    assert healthy.slowest < ANSWER_WITHIN_S
    grown = resident(server.pid) - before
    assert grown < growth, f"{grown >> 20} MiB"


def exchange(address: str, content: bytes) -> None:
    """Send all of it, and read the responses until the server closes the connection."""
    with dial(address) as peer, contextlib.suppress(OSError):
        peer.sendall(content)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65_536):
            pass
