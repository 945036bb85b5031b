"""Assignors: how the leader of a classic group assigns partitions to its members.

Each returns the partitions of every member. Names and results are those of Java's assignors, so
that a group may have members of several libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from trilogue.client.kafka.model import Partition, group_by_topic


class Assignor(Enum):
    """The assignors, by the names that members vote with."""

    RANGE = "range"
    """Topic by topic, neighbours together: the same numbers of all topics go to one member."""
    ROUND_ROBIN = "roundrobin"
    """All partitions in turn."""
    COOPERATIVE_STICKY = "cooperative-sticky"
    """Evenly, moving as few as can be; members keep reading what they keep (KIP-429)."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join."""
        return self is Assignor.COOPERATIVE_STICKY


class MemberSubscription(NamedTuple):
    """The subscription of a member, as the group leader gets it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    owned: tuple[Partition, ...] = ()
    generation: int = -1
    """In which it owned them."""

    @property
    def sort_key(self) -> tuple[bool, str]:
        """Its sort_key in line: static members first, by their names."""
        return self.instance_id is None, self.instance_id or self.member_id


Assignment = dict[str, list[Partition]]
AssignFunction = Callable[[list[MemberSubscription], Mapping[str, int]], Assignment]


def assign_partitions(
    assignor: Assignor, members: Iterable[MemberSubscription], counts: Mapping[str, int]
) -> Assignment:
    """Share the partitions of topics (name to number of partitions) among members."""
    ordered = sorted(members, key=lambda member: member.sort_key)
    return _ASSIGNORS[assignor](ordered, counts)


def _range(members: list[MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(counts):
        readers = [member.member_id for member in members if topic in member.topics]
        if not readers:
            continue
        each, extra = divmod(counts[topic], len(readers))
        first = 0
        for at, reader in enumerate(readers):
            size = each + (at < extra)
            assignment[reader] += [
                Partition(topic, number) for number in range(first, first + size)
            ]
            first += size
    return assignment


def _round_robin(members: list[MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    assignment: Assignment = {member.member_id: [] for member in members}
    turn = 0
    for topic in sorted(counts):
        if not any(topic in member.topics for member in members):
            continue
        for number in range(counts[topic]):
            while topic not in members[turn % len(members)].topics:
                turn += 1
            assignment[members[turn % len(members)].member_id].append(Partition(topic, number))
            turn += 1
    return assignment


def _cooperative_sticky(members: list[MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    assignment = assign_sticky(members, counts)
    owners = {one: member.member_id for member in members for one in member.owned}
    for member_id, owned in assignment.items():
        # What another member still has comes with the next round, when it was given up.
        owned[:] = [one for one in owned if owners.get(one, member_id) == member_id]
    return assignment


def assign_sticky(members: list[MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    """Share evenly; everybody keeps as much as is even."""
    assignment = _kept(members, counts)
    readers = {
        topic: [member.member_id for member in members if topic in member.topics]
        for topic in counts
    }
    taken = {one for owned in assignment.values() for one in owned}
    free = [
        Partition(topic, number)
        for topic in sorted(counts, key=lambda topic: (len(readers[topic]), topic))
        for number in range(counts[topic])
        if readers[topic] and (topic, number) not in taken
    ]
    for one in free:
        least = min(readers[one.topic], key=lambda member_id: len(assignment[member_id]))
        assignment[least].append(one)
    _even_out(assignment, readers)
    for owned in assignment.values():
        owned.sort()
    return assignment


def _kept(members: list[MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    """The partitions that members keep: of several claims, that of the newest generation wins."""
    owners: dict[Partition, list[MemberSubscription]] = {}
    for member in members:
        for topic, numbers in group_by_topic(member.owned).items():
            if topic in member.topics:
                for number in numbers:
                    if number < counts.get(topic, 0):
                        owners.setdefault(Partition(topic, number), []).append(member)
    assignment: Assignment = {member.member_id: [] for member in members}
    for one, claims in owners.items():
        newest = max(claim.generation for claim in claims)
        last = [claim for claim in claims if claim.generation == newest]
        if len(last) == 1:
            assignment[last[0].member_id].append(one)
    return assignment


def _even_out(assignment: Assignment, readers: Mapping[str, list[str]]) -> None:
    """Move partitions from who has most to who has at least two fewer, as long as there are any.

    It is always the one with the most: a member that gave some away would get others later.
    """
    owned = {member_id: _by_topic(assignment[member_id]) for member_id in assignment}
    sizes = {member_id: len(assignment[member_id]) for member_id in assignment}
    givers = list(assignment)
    while givers:
        most = max(givers, key=sizes.__getitem__)
        for topic, partitions in owned[most].items():
            least = min(readers[topic], key=sizes.__getitem__)
            if partitions and sizes[least] < sizes[most] - 1:
                owned[least].setdefault(topic, []).append(partitions.pop())
                sizes[most] -= 1
                sizes[least] += 1
                givers = list(assignment)
                break
        else:
            givers.remove(most)
    for member_id, topics in owned.items():
        assignment[member_id] = [one for partitions in topics.values() for one in partitions]


def _by_topic(partitions: list[Partition]) -> dict[str, list[Partition]]:
    found: dict[str, list[Partition]] = {}
    for one in sorted(partitions):
        found.setdefault(one.topic, []).append(one)
    return found


_ASSIGNORS: dict[Assignor, AssignFunction] = {
    Assignor.RANGE: _range,
    Assignor.ROUND_ROBIN: _round_robin,
    Assignor.COOPERATIVE_STICKY: _cooperative_sticky,
}
