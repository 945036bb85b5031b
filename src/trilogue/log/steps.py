"""Long work in steps: a generator that yields where others may have a turn, and returns its result.

Whoever goes through it decides what happens between two steps: nothing (`to_the_end`), a turn of
the loop (gateway/turns.py), the work of others (broker/consumer_group_steps.py). A step is a
millisecond or so.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def to_the_end(steps: Steps[T]) -> T:
    """Do all of it now and return what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
