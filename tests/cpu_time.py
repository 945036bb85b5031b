"""CPU time of a test's own thread, without the garbage that other tests of the process left."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class CpuTime:
    """What a block of code used; `seconds` is set when the block has ended."""

    seconds: float


@contextmanager
def measure_cpu() -> Iterator[CpuTime]:
    """Measure the CPU time that this thread uses in the block, garbage collections left out.

    The collector would visit objects of thousands of tests, which takes longer than most blocks.
    """
    measured = CpuTime()
    was_enabled = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield measured
    finally:
        measured.seconds = time.thread_time() - began
        if was_enabled:
            gc.enable()
