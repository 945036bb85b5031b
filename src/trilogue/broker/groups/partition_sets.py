"""Sets of partitions by what they belong to: a topic, or the tasks of a subtopology.

A set has a frozenset of numbers per key, and no empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")

NO_NUMBERS: frozenset[int] = frozenset()


def subtract(
    some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """Return what is in the first and not in the second."""
    left = {key: numbers - others.get(key, NO_NUMBERS) for key, numbers in some.items()}
    return {key: numbers for key, numbers in left.items() if numbers}


def intersect(
    some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """Return what is in both."""
    both = {key: numbers & others.get(key, NO_NUMBERS) for key, numbers in some.items()}
    return {key: numbers for key, numbers in both.items() if numbers}


def unite(
    some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """Return what is in either."""
    if not others:
        return some
    found = dict(some)
    for key, numbers in others.items():
        found[key] = found.get(key, NO_NUMBERS) | numbers
    return found
