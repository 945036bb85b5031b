"""Results of many partitions, topic by topic, in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Protocol, TypeVar

from trilogue.log.steps import Steps

PARTITIONS_PER_STEP = 500  # 1 ms


class RequestedTopic(Protocol):
    """A topic in a request."""

    @property
    def partitions(self) -> Sized:
        """Its requested partitions."""


A = TypeVar("A", bound=RequestedTopic)
T = TypeVar("T")


def build_topic_results(topics: Iterable[A], build: Callable[[A], Steps[T]]) -> Steps[list[T]]:
    """Build the results of all topics; `build` pauses after PARTITIONS_PER_STEP of one topic."""
    results: list[T] = []
    scanned = 0
    for each in topics:
        results.append((yield from build(each)))
        scanned += 1 + len(each.partitions) % PARTITIONS_PER_STEP
        if scanned >= PARTITIONS_PER_STEP:
            scanned = 0
            yield
    return results
