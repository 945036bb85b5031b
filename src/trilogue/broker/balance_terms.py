"""What the members of a group must agree on, and how they are told that they do not.

The first member sets the terms, everyone who comes later must have the same; when the last has gone
anything goes again. Wire facts, section 6, "group consistency at register".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from trilogue.broker.balance_shares import Part
from trilogue.broker.errors import InconsistentMember
from trilogue.broker.names import TopicName


class Kind(Enum):
    """Who shares out the partitions."""

    SERVER = "server"
    BOUND = "bound"  # the server, once all have come, from positions that they bring
    CLIENT = "client"  # the members among themselves


class Difference(Enum):
    """What a member has other than its group."""

    KIND = "kind"
    TOPICS = "topics"
    FILTERS = "filters"
    SESSION_KEY = "session key"
    SELECT_BIG = "select big"
    SOURCE_COUNT = "source count"
    NODE_ID = "node id"


@dataclass(frozen=True, slots=True)
class Terms:
    """How a member wants to read. `filters` names only topics that are filtered."""

    topics: frozenset[TopicName]
    kind: Kind = Kind.SERVER
    filters: Mapping[TopicName, frozenset[str]] = field(default_factory=dict)
    session_key: str = ""
    session_time: int = 0
    select_big: bool = False
    source_count: int = 0  # how many members there shall be; with CLIENT 0 = nobody knows
    node_id: int = -1  # which of them this is, with CLIENT
    offsets: Mapping[Part, int] = field(default_factory=dict)  # where to begin, with BOUND


_ALWAYS = (Difference.KIND, Difference.TOPICS, Difference.FILTERS)
_COMPARED: dict[Kind, tuple[Difference, ...]] = {
    Kind.SERVER: _ALWAYS,
    Kind.BOUND: (
        *_ALWAYS,
        Difference.SESSION_KEY,
        Difference.SELECT_BIG,
        Difference.SOURCE_COUNT,
    ),
    Kind.CLIENT: _ALWAYS,
}


_VALUES: dict[Difference, Callable[[Terms], object]] = {
    Difference.KIND: lambda terms: terms.kind,
    Difference.TOPICS: lambda terms: terms.topics,
    Difference.FILTERS: lambda terms: {each: some for each, some in terms.filters.items() if some},
    Difference.SESSION_KEY: lambda terms: terms.session_key,
    Difference.SELECT_BIG: lambda terms: terms.select_big,
    Difference.SOURCE_COUNT: lambda terms: terms.source_count,
    Difference.NODE_ID: lambda terms: terms.node_id,
}


def check_agrees(
    member_id: str, asked: Terms, required: Terms, others: Iterable[tuple[str, Terms]]
) -> None:
    """Refuse a member whose terms are not its group's (InconsistentMember says in what)."""
    compared = _COMPARED[required.kind]
    counted = required.kind is Kind.CLIENT and required.source_count > 0
    if counted:
        compared = (*compared, Difference.SOURCE_COUNT)
    for difference in compared:
        ours, theirs = _VALUES[difference](asked), _VALUES[difference](required)
        if ours != theirs:
            raise InconsistentMember(
                difference.value,
                f"{member_id}'s {difference.value} is inconsistency with other consumers in the "
                f"group, required is {_spelled(theirs)}, request is {_spelled(ours)}",
            )
    for other_id, other in others if counted else ():
        if other_id != member_id and other.node_id == asked.node_id:
            raise InconsistentMember(
                Difference.NODE_ID.value,
                f"{member_id}'s nodeId value({asked.node_id}) is occupied by {other_id}'s nodeId "
                f"value({other.node_id}) in the group!",
            )


SPELLED_MAX = 1_024  # characters of what differs, in a text for people


def _spelled(value: object) -> str:
    if isinstance(value, Kind):
        return value.value
    if isinstance(value, frozenset):
        return _list(str(each) for each in value)
    if isinstance(value, dict):
        return _list(f"{topic}={_list(some)}" for topic, some in value.items())
    return str(value)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(sorted(texts))[:SPELLED_MAX] + "]"


def agreed_offsets(members: Collection[Terms]) -> dict[Part, int]:
    """Where a bound group begins: of what its members say the largest, or the smallest."""
    found: dict[Part, int] = {}
    for terms in members:
        choose = max if terms.select_big else min
        for part, offset in terms.offsets.items():
            found[part] = choose(found.get(part, offset), offset)
    return found
