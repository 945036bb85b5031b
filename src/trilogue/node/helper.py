"""The helper process: `python -m trilogue.node.helper`, started and fed by `jobs.py`.

It reads jobs from stdin and writes results to stdout, one at a time, each a length and a pickle:

    +------------+---------------------------+        +------------+------------------------+
    | int32 size | (function, arguments)     |  --->  | int32 size | (result, error or None)|
    +------------+---------------------------+        +------------+------------------------+

Pickle is safe here because both ends are ours and the pipe is inherited: nobody else can write to
it. The process imports nothing but what its jobs need. It must never outlive the server: it ends at
the end of its stdin, and where it cannot look (in the middle of a job) the kernel ends it, by the
parent-death signal. Signals for the whole process group (Ctrl-C, a service manager's SIGTERM) are
for the server, which drains and then closes the pipe. One signal is for it: the job under way is to
hurry (`HURRY`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from trilogue.log import pace

SIZE = struct.Struct(">I")
NICENESS = 5
HURRY = signal.SIGURG  # harmless to a process that does not know it yet
PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20


class JobFailedError(Exception):
    """A job ended by an exception that cannot travel; holds its traceback as text."""


def main(parent: int, niceness: int = NICENESS) -> None:
    """Do jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(HURRY, lambda *_: pace.hurry())
    die_with(parent)
    keep_memory()
    give_way(niceness)
    jobs = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not end up between the results
    while (job := read_packet(jobs)) is not None:
        packet = run_job(job)
        results.write(SIZE.pack(len(packet)) + packet)
        results.flush()


def run_job(packet: bytes) -> bytes:
    """Call the function a packet names; an exception is a result too."""
    pace.calm()
    try:
        function: Callable[..., object]
        function, arguments = pickle.loads(packet)  # noqa: S301 -- see the top of the file
        return pickle.dumps((function(*arguments), None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 -- it is handed to who asked
        return _spell_error(error)


def read_packet(stream: BinaryIO) -> bytes | None:
    """Read one packet; None when the other end is gone."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size,) = SIZE.unpack(head)
    packet = stream.read(size)
    return packet if len(packet) == size else None


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started it ends (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel knew
        os._exit(0)


def give_way(niceness: int) -> None:
    """Let others go first, the server above all.

    Where sessions share the processor as groups (Linux's autogroup, outside of control groups), how
    nice a process is counts within its session alone, and the helper has one of its own: what
    counts there is the niceness of the group. Else it would get half of what there is.
    """
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_bytes(b"%d" % niceness)


def keep_memory() -> None:
    """Ask glibc to use freed memory again instead of giving it back (where there is glibc).

    Jobs make and drop blocks of a MiB all the time. Given back, each costs 256 page faults the
    next time: 320,000 of them in six seconds of full load, and 5,000 like this.
    """
    if sys.platform == "linux":
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
            mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def _spell_error(error: Exception) -> bytes:
    try:
        packet = pickle.dumps((None, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(packet)  # noqa: S301 -- an exception with its own __init__ may not come back
    except Exception:  # noqa: BLE001 -- whatever it is, the text travels
        text = "".join(traceback.format_exception(error))
        return pickle.dumps((None, JobFailedError(text)), pickle.HIGHEST_PROTOCOL)
    return packet


if __name__ == "__main__":
    # Under its own name, not as `__main__`: what it pickles must be found by the other end.
    from trilogue.node import helper  # noqa: PLW0406

    helper.main(*map(int, sys.argv[1:]))
