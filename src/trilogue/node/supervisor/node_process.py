"""One node in a process of its own: forked by the supervisor, watched through a pipe.

The node writes a line of JSON when its listeners are open, when it has flushed what it was asked
to, and when it has drained; and an empty line twice a second from its event loop. It ends with its
supervisor: the kernel kills it then, whatever it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from trilogue.node.storage import NodePlace

BEAT_S = 0.5
PR_SET_PDEATHSIG = 1
READ_BYTES = 64 << 10


class NodeLink:
    """The node's end of the pipe."""

    def __init__(self, place: NodePlace, fd: int) -> None:
        self.place = place
        self._fd = fd
        os.set_blocking(fd, False)

    def report_ready(self, addresses: Mapping[str, str]) -> None:
        """Report that all listeners are open."""
        self._write(json.dumps({"doors": dict(addresses)}).encode() + b"\n")

    def report_flushed(self) -> None:
        """Report that what was in the journal is in segments; the node goes on."""
        self._write(b'{"flushed": true}\n')

    def report_drained(self) -> None:
        """Report that everything is in segments, and the node ends."""
        self._write(b'{"drained": true}\n')

    async def beat(self) -> None:
        """Report again and again that the event loop runs."""
        while True:
            with contextlib.suppress(BlockingIOError):  # full: the supervisor is stopped
                self._write(b"\n")
            await asyncio.sleep(BEAT_S)

    def _write(self, line: bytes) -> None:
        os.write(self._fd, line)


class NodeProcess:
    """The supervisor's side of a node."""

    def __init__(self, place: NodePlace, run: Callable[[NodeLink], int]) -> None:
        self.place = place
        self.listeners: dict[str, str] = {}  # listener -> address, when it is ready
        self.flushed = False  # since the request for it
        self.drained = False  # everything is in segments, and nothing follows
        self.pid = 0
        self.pipe = -1
        self.heard = 0.0  # monotonic time of its last sign
        self.began = 0.0
        self._run = run
        self._received = b""

    @property
    def is_ready(self) -> bool:
        """Whether its listeners are open."""
        return bool(self.listeners)

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return bool(self.pid)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the process, so that it does not even start."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] == "T"

    def start(self) -> None:
        """Fork. The caller has no threads."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        sys.stdout.flush()
        sys.stderr.flush()
        parent, pid = os.getpid(), os.fork()
        if not pid:
            os.close(ours)
            self._become_node(parent, theirs)
        os.close(theirs)
        os.set_blocking(ours, False)
        self.pid, self.pipe, self.listeners, self._received = pid, ours, {}, b""
        self.flushed = self.drained = False
        self.heard = self.began = time.monotonic()

    def read(self) -> bool:
        """Read what the node wrote; return False when its process has closed the pipe."""
        try:
            data = os.read(self.pipe, READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.heard = time.monotonic()
        *lines, self._received = (self._received + data).split(b"\n")
        for line in filter(None, lines):
            report: dict[str, Any] = json.loads(line)
            self.listeners = report.get("doors", self.listeners)
            self.flushed = self.flushed or "flushed" in report
            self.drained = self.drained or "drained" in report
        return True

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.pid:
            os.kill(self.pid, number)

    def reap(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        self.pid, self.pipe, self.listeners = 0, -1, {}
        return os.waitstatus_to_exitcode(status)

    def _become_node(self, parent: int, fd: int) -> NoReturn:
        code = 1
        try:
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == parent:  # otherwise it ended before the kernel knew
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is something to flush
                signal.set_wakeup_fd(-1)
                code = self._run(NodeLink(self.place, fd))
        except BaseException:  # it would end with this process, unseen
            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
