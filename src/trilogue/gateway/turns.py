"""Long work on the loop: in steps, between which everybody else has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from trilogue.log.steps import Steps

T = TypeVar("T")


def at_once_or_in_turns(steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
    """What comes of a piece of work that has one step only, as most have; or the work to wait for.

    The first step is taken here and now in both cases.
    """
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return in_turns(steps)


async def in_turns(steps: Steps[T]) -> T:
    """Go through a piece of work step by step and return what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
