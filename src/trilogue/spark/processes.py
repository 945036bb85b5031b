"""The processes beneath a session: Java, which starts Python workers and planners of its own.

Some of them notice only seconds later that nobody needs them any more. Whoever says that it has
stopped waits for them here, and ends those that do not go by themselves. Where there is no /proc
nothing is known of them, and nothing done.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LOOK_EVERY_S = 0.02


def _stat(pid: int) -> tuple[int, str] | None:
    """Parent and state; None when it is gone. Both stand behind its name, which may be anything."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0]


def _running(pid: int) -> bool:
    found = _stat(pid)
    return found is not None and found[1] != "Z"


def descendants(pid: int) -> set[int]:
    """Children of a process, their children and so on."""
    with suppress(OSError):
        pids = [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]
        parents = {one: found[0] for one in pids if (found := _stat(one)) is not None}
        below, more = set[int](), {pid}
        while more:
            more = {one for one, parent in parents.items() if parent in more} - below
            below |= more
        return below
    return set()


def end(pids: Iterable[int], patience_s: float = 3.0) -> None:
    """Come back when none of them runs: first they may go, then they are asked, then made to."""
    left = set(pids)
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + patience_s
        while left := {pid for pid in left if _running(pid)}:
            if time.monotonic() > until:
                break
            time.sleep(LOOK_EVERY_S)
