"""An event loop for coroutines that never have to wait: the node's background work in a test."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

from tests.fakes import FakeLoop


class InstantLoop:
    """As much of an event loop as coroutines need that never have to wait."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop

    def create_future(self) -> Future[Any]:
        return Future(loop=self)  # type: ignore[arg-type]

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Any:
        self.loop.pass_time(delay)
        callback(*arguments)
        return _Handle()

    def run_in_executor(self, _: object, work: Callable[..., object], *arguments: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except OSError as error:
            done.set_exception(error)
        return done

    def get_debug(self) -> bool:
        return False

    def call_soon(self, *_: Any, **__: Any) -> None:
        """Do nothing: no callback is expected."""


class _Handle:
    def cancel(self) -> None:
        """It was called already."""
