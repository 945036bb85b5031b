"""Long work on the loop: in steps, between which everybody else has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Go through a piece of work step by step and return what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
