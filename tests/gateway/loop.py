"""An asyncio loop whose clock jumps: a test that waits five seconds takes no time at all."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import wraps
from typing import Any

from tests.waiting import VirtualClock


class _Jumping(selectors.DefaultSelector):
    """Never sleeps: when nothing is ready the time until the next timer is simply over."""

    now = 1_000.0

    def select(self, timeout=None):
        events = super().select(0)
        if not events and timeout:
            self.now += timeout
        elif not events and timeout is None:
            raise AssertionError("everybody waits and nothing will ever happen")
        return events


class JumpingLoop(VirtualClock, asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class InlineExecutor(Executor):
    """Runs at once, in the caller: no threads, so a test is the same every time. Counts."""

    def __init__(self) -> None:
        self.runs = 0

    def submit(self, work, /, *args, **kwargs):
        self.runs += 1
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as problem:  # noqa: BLE001 -- as an executor does
            future.set_exception(problem)
        return future


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop whose clock jumps."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
