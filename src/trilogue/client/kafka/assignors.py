"""How the leader of a classic group shares partitions among its members.

Each says which partitions of the topics everybody wants, and has, go to whom. Names and results
are those of Java's assignors, so that a group may have members of several libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from trilogue.client.kafka.shapes import Partition, by_topic


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


class Member(NamedTuple):
    """A member as the leader knows it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    owned: tuple[Partition, ...] = ()
    generation: int = -1
    """In which it owned them."""

    @property
    def place(self) -> tuple[bool, str]:
        """Its place in line: static members first, by their names."""
        return self.instance_id is None, self.instance_id or self.member_id


Shares = dict[str, list[Partition]]
Assign = Callable[[list[Member], Mapping[str, int]], Shares]


def assign(assignor: Assignor, members: Iterable[Member], counts: Mapping[str, int]) -> Shares:
    """Share the partitions of topics (name to number of partitions) among members."""
    ordered = sorted(members, key=lambda member: member.place)
    return _ASSIGNORS[assignor](ordered, counts)


def _range(members: list[Member], counts: Mapping[str, int]) -> Shares:
    shares: Shares = {member.member_id: [] for member in members}
    for topic in sorted(counts):
        readers = [member.member_id for member in members if topic in member.topics]
        if not readers:
            continue
        each, extra = divmod(counts[topic], len(readers))
        first = 0
        for at, reader in enumerate(readers):
            size = each + (at < extra)
            shares[reader] += [Partition(topic, number) for number in range(first, first + size)]
            first += size
    return shares


def _round_robin(members: list[Member], counts: Mapping[str, int]) -> Shares:
    shares: Shares = {member.member_id: [] for member in members}
    turn = 0
    for topic in sorted(counts):
        if not any(topic in member.topics for member in members):
            continue
        for number in range(counts[topic]):
            while topic not in members[turn % len(members)].topics:
                turn += 1
            shares[members[turn % len(members)].member_id].append(Partition(topic, number))
            turn += 1
    return shares


def _cooperative_sticky(members: list[Member], counts: Mapping[str, int]) -> Shares:
    shares = sticky(members, counts)
    owners = {one: member.member_id for member in members for one in member.owned}
    for member_id, share in shares.items():
        # What another member still has comes with the next round, when it was given up.
        share[:] = [one for one in share if owners.get(one, member_id) == member_id]
    return shares


def sticky(members: list[Member], counts: Mapping[str, int]) -> Shares:
    """Share evenly; everybody keeps as much as is even."""
    shares = _kept(members, counts)
    readers = {
        topic: [member.member_id for member in members if topic in member.topics]
        for topic in counts
    }
    taken = {one for share in shares.values() for one in share}
    free = [
        Partition(topic, number)
        for topic in sorted(counts, key=lambda topic: (len(readers[topic]), topic))
        for number in range(counts[topic])
        if readers[topic] and (topic, number) not in taken
    ]
    for one in free:
        least = min(readers[one.topic], key=lambda member_id: len(shares[member_id]))
        shares[least].append(one)
    _even_out(shares, readers)
    for share in shares.values():
        share.sort()
    return shares


def _kept(members: list[Member], counts: Mapping[str, int]) -> Shares:
    """What members have and may keep: of several who say so, the one of the newest generation."""
    owners: dict[Partition, list[Member]] = {}
    for member in members:
        for topic, numbers in by_topic(member.owned).items():
            if topic in member.topics:
                for number in numbers:
                    if number < counts.get(topic, 0):
                        owners.setdefault(Partition(topic, number), []).append(member)
    shares: Shares = {member.member_id: [] for member in members}
    for one, claims in owners.items():
        newest = max(claim.generation for claim in claims)
        last = [claim for claim in claims if claim.generation == newest]
        if len(last) == 1:
            shares[last[0].member_id].append(one)
    return shares


def _even_out(shares: Shares, readers: Mapping[str, list[str]]) -> None:
    """Move partitions from who has more to who has at least two fewer, as long as there are any."""
    moved = True
    while moved:
        moved = False
        for member_id in sorted(shares, key=lambda one: -len(shares[one])):
            share = shares[member_id]
            for one in sorted(share, reverse=True):
                least = min(readers[one.topic], key=lambda other: len(shares[other]))
                if len(shares[least]) < len(share) - 1:
                    share.remove(one)
                    shares[least].append(one)
                    moved = True


_ASSIGNORS: dict[Assignor, Assign] = {
    Assignor.RANGE: _range,
    Assignor.ROUND_ROBIN: _round_robin,
    Assignor.COOPERATIVE_STICKY: _cooperative_sticky,
}
