"""The helper process: helper.py starts it and sends it jobs.

It reads jobs from stdin and writes results to stdout, one at a time, each a length and a pickle:

    +------------+---------------------------+        +------------+------------------------+
    | int32 size | (function, arguments)     |  --->  | int32 size | (result, error or None)|
    +------------+---------------------------+        +------------+------------------------+

Pickle is safe here: both ends are this program, and no other process has the inherited pipe. The
process imports only what its jobs need. It must not outlive the server: it ends at the end of its
stdin, and during a job by the kernel's parent-death signal. Signals for the whole process group
(Ctrl-C, a service manager's SIGTERM) are handled by the server, which drains and then closes the
pipe. `HURRY` is the one signal for this process: the running job ignores its pace.
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

from trilogue.log.jobs import pace

SIZE = struct.Struct(">I")
NICENESS = 5
HURRY = signal.SIGURG  # ignored by a process without a handler for it
PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20


class JobFailedError(Exception):
    """A job raised an exception that cannot be pickled; has its traceback as text."""


def main(parent: int, niceness: int = NICENESS) -> None:
    """Run jobs until stdin ends."""
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
    """Call the function that a packet names; return its result or exception."""
    pace.calm()
    try:
        function: Callable[..., object]
        function, arguments = pickle.loads(packet)  # noqa: S301 -- see the top of the file
        return pickle.dumps((function(*arguments), None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 -- it is returned to the caller
        return _spell_error(error)


def read_packet(stream: BinaryIO) -> bytes | None:
    """Read one packet; None at the end of the stream."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size,) = SIZE.unpack(head)
    packet = stream.read(size)
    return packet if len(packet) == size else None


def die_with(parent: int) -> None:
    """Make the kernel kill this process when the thread that started it ends (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the kernel knew
        os._exit(0)


def give_way(niceness: int) -> None:
    """Lower the priority below the server's.

    With Linux's autogroup a process's niceness counts only within its session, and the helper has
    its own: so the niceness of the group is set too. Otherwise it would get half of the CPU.
    """
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_bytes(b"%d" % niceness)


def keep_memory() -> None:
    """Make glibc keep freed memory for reuse, if this is glibc.

    Jobs allocate and free blocks of a MiB all the time. Returned to the kernel, each costs 256 page
    faults the next time: 320,000 in six seconds of full load, against 5,000 with this.
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
    except Exception:  # noqa: BLE001 -- the text can be pickled
        text = "".join(traceback.format_exception(error))
        return pickle.dumps((None, JobFailedError(text)), pickle.HIGHEST_PROTOCOL)
    return packet


if __name__ == "__main__":
    # Under its own name, not as `__main__`: what it pickles must be found by the other end.
    from trilogue.node.background import helper_process as helper  # noqa: PLW0406

    helper.main(*map(int, sys.argv[1:]))
    os._exit(0)  # the results are written: taking modules apart would delay the end of the server
