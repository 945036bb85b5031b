"""The members of one group by id, and which of them holds what."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, repeat
from typing import Any, Generic, TypeVar

from trilogue.broker.groups.partition_sets import subtract
from trilogue.broker.groups.reconciliation import NOTHING, Owners, ReconcilingMember

K = TypeVar("K")
M = TypeVar("M", bound=ReconcilingMember[Any])


class PartitionOwners(Generic[K]):
    """Which member has each partition; at most one does.

    Four bytes a partition: there are groups with a hundred thousand, and many groups. Members have
    numbers for that, which are never used again.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next = count(1)
        self._owners: dict[K, array[int]] = {}  # key -> numbers, by partition; 0 is free
        self._held: Counter[K] = Counter()  # key -> partitions that are not free

    def free(self, key: K, indexes: Iterable[int], member_id: str) -> frozenset[int]:
        """Return the partitions that a member may have: free, or its own."""
        owners = self._owners.get(key, NO_OWNERS)
        mine, end = {0, self._numbers.get(member_id, 0)}, len(owners)
        return frozenset(each for each in indexes if each >= end or owners[each] in mine)

    def update(
        self,
        member_id: str,
        before: Mapping[K, frozenset[int]],
        after: Mapping[K, frozenset[int]],
    ) -> None:
        """Note what a member holds now."""
        if before is after:
            return
        number = self._numbers.get(member_id) or next(self._next)
        for key, indexes in subtract(before, after).items():
            owners = self._owners[key]
            for index in indexes:
                assert owners[index] == number, "the partition belongs to another member"
                owners[index] = 0
            self._held[key] -= len(indexes)
            if not self._held[key]:
                del self._held[key], self._owners[key]
        for key, indexes in subtract(after, before).items():
            owners = self._owners.setdefault(key, array("I"))
            owners.extend(repeat(0, max(indexes) + 1 - len(owners)))
            for index in indexes:
                assert not owners[index], "a partition was given to a second member"
                owners[index] = number
            self._held[key] += len(indexes)
        if after:
            self._numbers[member_id] = number
        else:
            self._numbers.pop(member_id, None)


NO_OWNERS: array[int] = array("I")


class GroupMembers(Generic[M]):
    """The members of one group."""

    def __init__(self, owners: Owners[Any]) -> None:
        self._by_id: dict[str, M] = {}
        self.owners = owners

    def __iter__(self) -> Iterator[M]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find_member(self, member_id: str) -> M | None:
        """Return the member with this id."""
        return self._by_id.get(member_id)

    def add(self, member: M) -> None:
        """Take in a member with what it holds."""
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if not member.assignment_epochs:  # it comes with partitions, from a classic group
            member.record_assignment(NOTHING)
        self.owners.update(member.member_id, NOTHING, member.held)

    def remove(self, member: M) -> None:
        """Let a member go; what it held is free at once."""
        del self._by_id[member.member_id]
        self.owners.update(member.member_id, member.held, NOTHING)
        member.cancel_timers()
