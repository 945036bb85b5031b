"""Long work on the loop: in steps, between which other connections are served."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from trilogue.log.steps import Steps

T = TypeVar("T")


def begin_steps(steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
    """Run the first step; return the result, or a coroutine for the rest of the steps."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return run_steps(steps)


async def run_steps(steps: Steps[T]) -> T:
    """Run all steps, one per loop iteration, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
