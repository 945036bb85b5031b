"""Scripted servers run: in the test's own loop, or in a thread for clients that block."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

Served = TypeVar("Served", bound=AbstractAsyncContextManager[Any])


def in_one_loop(test: Any, work: Callable[..., Awaitable[None]]) -> Any:
    """A test as pytest wants it: `work` gives it its first two arguments, pytest the others."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(work(**arguments))  # type: ignore[arg-type]

    # Pytest must not look for fixtures called broker and client.
    parameters = list(inspect.signature(test).parameters.values())[2:]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def on_its_own_loop(server: Served) -> Iterator[Served]:
    """A server on a loop of its own, so that a client that blocks can be tested."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with server:
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
