"""Answers that tell of many partitions, topic by topic, in steps of some hundred partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Protocol, TypeVar

from trilogue.log.steps import Steps

AT_ONCE = 500  # partitions that are looked at before others have a turn: 1 ms


class Asked(Protocol):
    """What a request says of one topic."""

    @property
    def partitions(self) -> Sized:
        """The partitions it asks for."""


A = TypeVar("A", bound=Asked)
T = TypeVar("T")


def by_topic(topics: Iterable[A], tell: Callable[[A], Steps[T]]) -> Steps[list[T]]:
    """Tell of all topics. `tell` itself pauses after each AT_ONCE partitions of its topic."""
    told: list[T] = []
    seen = 0
    for each in topics:
        told.append((yield from tell(each)))
        seen += 1 + len(each.partitions) % AT_ONCE
        if seen >= AT_ONCE:
            seen = 0
            yield
    return told
