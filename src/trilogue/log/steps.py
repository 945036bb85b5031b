"""Long work in steps: a generator that yields between steps, and returns its result.

The caller decides what happens between two steps: nothing (`to_the_end`), a loop iteration
(gateway/steps.py), other work (broker/groups/consumer/steps.py). A step takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def to_the_end(steps: Steps[T]) -> T:
    """Run all steps without a pause and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
