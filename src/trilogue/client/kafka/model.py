"""Values that all parts of the client share: partitions, nodes, special offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from trilogue.client.kafka.errors import KafkaError

LATEST: Final = -1
"""Behind the last record that may be read."""
EARLIEST: Final = -2
"""The first record that is still there."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp."""
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

Key = TypeVar("Key")
Value = TypeVar("Value")


class Partition(NamedTuple):
    """A partition of a topic; the same as the plain pair."""

    topic: str
    number: int


class PreparedTransaction(NamedTuple):
    """A transaction that its producer leaves open for another process to end."""

    transactional_id: str
    producer_id: int
    epoch: int


class Node(NamedTuple):
    """A node of the cluster and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None


class OffsetAt(NamedTuple):
    """An offset with its timestamp and leader epoch; -1 is no offset."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


def group_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of partitions, topic by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(topic, []).append(number)
    return grouped


def granted(outcomes: Mapping[Key, Value | KafkaError]) -> dict[Key, Value]:
    """The outcomes, when all of them are good; else raises the first that is not."""
    good: dict[Key, Value] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise outcome
        good[key] = outcome
    return good
