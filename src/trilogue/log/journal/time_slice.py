"""The time slice of the commit thread: a short one, so that it runs soon when processors are busy.

Each acknowledgement waits for this thread, which computes for microseconds and sleeps in the disk.
Linux (since 6.12) lets a thread request a time slice from 0.1 to 100 ms, 2.8 ms by default. With
a shorter one it runs before others that want the processor too, and no share of it is taken from
them. It needs no privilege. Other systems and older kernels ignore the request.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Final

SLICE_NS: Final = 100_000
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}  # sched_setattr, sched_getattr
# size, policy, flags, nice, priority, runtime in ns, deadline, period
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")


def shorten_time_slice(thread_id: int, slice_ns: int = SLICE_NS) -> bool:
    """Request a time slice in ns for a thread of this process; return whether Linux took it.

    Real-time and batch threads, which an administrator has made so, stay as they are.
    """
    calls = _find_calls()
    if calls is None:
        return False
    try:
        policy = os.sched_getscheduler(thread_id)
        nice = os.getpriority(os.PRIO_PROCESS, thread_id)  # it is set together with the slice
    except OSError:
        return False
    if policy != os.SCHED_OTHER:
        return False
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    return _call(calls[0], thread_id, ctypes.create_string_buffer(wanted, len(wanted)), 0)


def read_time_slice(thread_id: int) -> int:
    """Return the time slice of a thread in ns; 0 where the system does not show it."""
    calls = _find_calls()
    found = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if calls is None or not _call(calls[1], thread_id, found, _ATTRIBUTES.size, 0):
        return 0
    runtime_ns: int = _ATTRIBUTES.unpack(found.raw)[5]
    return runtime_ns


def _find_calls() -> tuple[int, int] | None:
    return _CALLS.get(platform.machine()) if sys.platform == "linux" else None


def _call(number: int, *arguments: int | ctypes.Array[ctypes.c_char]) -> bool:
    """Make a system call that the C library has no function for; return whether it succeeded."""
    longs = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    return bool(syscall(ctypes.c_long(number), *longs) == 0)
