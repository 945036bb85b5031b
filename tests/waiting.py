"""Waits of tests: until a condition holds, for the next loop iteration, and for virtual time.

A test waits for an event where one exists. Where none exists (another process, a thread, the other
end of a socket) it polls here, and a wait that is too long fails with the name of what it awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import TypeVar

TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.02

Result = TypeVar("Result")


class VirtualClock:
    """Marks an event loop whose clock moves on by itself as soon as every task waits."""


def wait_until(
    condition: Callable[[], Result],
    what: str | Callable[[], object] = "",
    timeout_s: float = TIMEOUT_S,
    *,
    every: float = LOOK_EVERY_S,
) -> Result:
    """Return the first true result of the condition, looked at `every` so many seconds.

    `what` names what is awaited, or returns it at the end; without it the source of the condition
    does. Fails after `timeout_s` seconds.
    """
    ends = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < ends, _describe(condition, what, timeout_s)
        time.sleep(every)
    return found


async def wait_on_loop(
    condition: Callable[[], Result],
    what: str | Callable[[], object] = "",
    timeout_s: float = TIMEOUT_S,
    *,
    every: float = 0.001,
) -> Result:
    """Do as `wait_until` does while the event loop runs; the seconds are those of its clock."""
    clock = asyncio.get_running_loop().time
    ends = clock() + timeout_s
    while not (found := condition()):
        assert clock() < ends, _describe(condition, what, timeout_s)
        await asyncio.sleep(every)
    return found


async def run_ready_tasks(iterations: int = 1) -> None:
    """Let the event loop run what is ready, for so many iterations; no time passes."""
    for _ in range(iterations):
        await asyncio.sleep(0)


async def pass_time(seconds: float) -> None:
    """Let virtual seconds pass, and run what is due in them; takes no time of the machine."""
    assert isinstance(asyncio.get_running_loop(), VirtualClock), "the clock of this loop is real"
    await asyncio.sleep(seconds)


def _describe(
    condition: Callable[[], object], what: str | Callable[[], object], timeout_s: float
) -> str:
    text = what if isinstance(what, str) else f"{what()}"
    return f"not within {timeout_s:g} s: {text or inspect.getsource(condition).strip():.4000}"
