"""What the log asks of the process around it: a loop, a thread for slow work, someone who commits.

An asyncio loop is a `Scheduler` as it stands; the log never imports asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trilogue.log.files import File


class Scheduler(Protocol):
    """The part of an event loop that the log needs. All of the log but its jobs runs on it."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Run the callback in the next turn of the loop."""

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> object:
        """Run the callback after so many seconds."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object:
        """Do the same, from any thread."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object:
        """Run the callback whenever the descriptor can be read."""

    def remove_reader(self, fd: int, /) -> object:
        """Stop doing so."""


Background = Callable[[Callable[[], None]], object]
"""Runs slow work (zero-filling a file) in another thread, some time. The work never raises."""


class Committer(Protocol):
    """Writes one window after another and makes each durable; never two at a time."""

    def start(self, on_done: Callable[[int], None]) -> None:
        """Begin; `on_done` gets 0 or an errno on the loop for each `submit`, in order."""

    def submit(self, file: File, data: memoryview, offset: int) -> None:
        """Write `data`, which stays as it is until `on_done`, and make it durable."""

    def close(self) -> int | None:
        """End after the write under way; return its result if `on_done` will not be told."""
