"""What the log needs of its process: an event loop, a background thread, and a committer.

An asyncio loop is a `Scheduler` as it stands; the log never imports asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trilogue.log.files import File


class Scheduler(Protocol):
    """The part of an event loop that the log needs. All of the log but its jobs runs on it."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Run the callback in the next loop iteration."""

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> object:
        """Run the callback after `delay_s` seconds."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object:
        """Like `call_soon`, from any thread."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object:
        """Run the callback whenever the descriptor is readable."""

    def remove_reader(self, fd: int, /) -> object:
        """Stop watching the descriptor."""


Background = Callable[[Callable[[], None]], object]
"""Runs slow work (such as zero-filling a file) in another thread, eventually. The work never
raises.
"""


class Committer(Protocol):
    """Writes one window after another and makes each durable; never two at a time."""

    def start(self, on_done: Callable[[int], None]) -> None:
        """Start; `on_done` is called on the loop with 0 or an errno for each `submit`, in order."""

    def submit(self, file: File, data: memoryview, offset: int) -> None:
        """Write `data`, which must not change until `on_done`, and make it durable."""

    def close(self) -> int | None:
        """Finish the write under way and stop; return its result if `on_done` will not get it."""

    def write_last(self, file: File, data: memoryview, offset: int) -> int:
        """Make a window durable after `close`, at once; return 0 or an errno."""
