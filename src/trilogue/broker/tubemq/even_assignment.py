"""Even assignment: partitions divided among the members of a group, with few moves.

Partitions and members are sorted; division with remainder, as in TubeMQ's master, gives how many
each member may have. What a member holds already it keeps, up to that number, so that a change of
members moves no more partitions than it must.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from trilogue.broker.names import TopicName


class TubePartition(NamedTuple):
    """One partition of a topic, as groups share them."""

    topic: TopicName
    number: int


NO_PREFERENCES: Mapping[TubePartition, Collection[str]] = {}


def assign_evenly(
    parts: Sequence[TubePartition],
    members: Sequence[str],
    held: Mapping[TubePartition, str],
    preferred: Mapping[TubePartition, Collection[str]] = NO_PREFERENCES,
) -> dict[TubePartition, str]:
    """Return the member of every partition: no two members differ by more than one.

    `parts` and `members` are sorted. `held` has the present member of a partition, `preferred` the
    preferred ones for a free partition. The same arguments give the same answer, on any node.
    """
    if not members:
        return {}
    room = _room(parts, members, held)
    given: dict[TubePartition, str] = {}

    def assign(part: TubePartition, member: str) -> None:
        given[part] = member
        room[member] -= 1

    for part in sorted(parts, key=lambda each: each.number):  # some of every topic
        holder = held.get(part)
        if holder is not None and room.get(holder, 0) > 0:
            assign(part, holder)
    for part in parts if preferred else ():
        candidates = [each for each in preferred.get(part, ()) if room[each] > 0]
        if candidates and part not in given:
            assign(part, max(sorted(candidates), key=lambda each: room[each]))
    turn = deque(each for each in members if room[each] > 0)
    for part in parts:
        if part not in given:
            member = turn.popleft()
            assign(part, member)
            if room[member] > 0:
                turn.append(member)
    return given


def _room(
    parts: Sequence[TubePartition], members: Sequence[str], held: Mapping[TubePartition, str]
) -> dict[str, int]:
    """How many each may have; what is left over goes to those who have the most already."""
    least, left_over = divmod(len(parts), len(members))
    has = Counter(held[part] for part in parts if part in held)
    ranked = sorted(members, key=lambda each: (-min(has[each], least + 1), each))
    return {each: least + (rank < left_over) for rank, each in enumerate(ranked)}
