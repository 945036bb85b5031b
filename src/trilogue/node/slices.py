"""Asks the kernel to let this process run soon after it was woken, for short at a time.

A thread that is woken, by a request or by a commit that is done, does not run at once on a busy
machine: Linux lets the one that runs go on for a slice (1.4 ms with two processors), and notices
its end at a tick of the clock, which may be 4 ms long. That is so however nice the other is. Since
6.12 a thread may say which slice it wants, without any privilege: who wants a shorter one goes
first. It gets no more of the processor than before, in smaller pieces. Older kernels take no
notice.

Threads inherit it, and should: one that holds the GIL and has to wait keeps the loop waiting. So do
processes: the helper takes it back.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Final

SHORT_S: Final = 0.0002
USUAL_S: Final = 0.0
SYSCALLS: Final = {"x86_64": 314, "aarch64": 274}  # sched_setattr(2), for which glibc has no name
ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")


def ask_for(slice_s: float) -> bool:
    """Ask for slices of this length, 0.1 to 100 ms, or the usual ones; whether Linux took it.

    Counts for the calling thread and for what it starts from here on.
    """
    number = SYSCALLS.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or os.sched_getscheduler(0) not in {os.SCHED_OTHER, os.SCHED_BATCH}:
        return False  # who gave it a policy of its own knows better
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    policy = os.sched_getscheduler(0)
    wanted = ATTRIBUTES.pack(
        ATTRIBUTES.size, policy, 0, nice, 0, round(slice_s * 1_000_000_000), 0, 0
    )
    return bool(ctypes.CDLL(None, use_errno=True).syscall(number, 0, wanted, 0) == 0)
