# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The clock of append times.

Compiled (clock.pxd adds the types), since it is read once per send and once per commit; uncompiled
it is plain Python. See docs/decisions/0188.
"""

from __future__ import annotations

from time import time_ns


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    now_ns = time_ns()
    return now_ns // 1_000_000
