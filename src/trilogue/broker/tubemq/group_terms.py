"""What the members of a group must agree on, and the error for a member that differs.

The first member sets the terms, and every later one must have the same; a group without members has
none (docs/reference/wire/tubemq.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum

import msgspec

from trilogue.broker.errors import InconsistentMember
from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.even_assignment import TubePartition


class BalanceMode(Enum):
    """Which side assigns the partitions."""

    SERVER = "server"
    BOUND = "bound"  # the server, once all have come, from positions that they bring
    CLIENT = "client"  # the members among themselves


class TermsMismatch(Enum):
    """What a member has other than its group."""

    KIND = "kind"
    TOPICS = "topics"
    FILTERS = "filters"
    SESSION_KEY = "session key"
    SELECT_BIG = "select big"
    SOURCE_COUNT = "source count"
    NODE_ID = "node id"


class GroupTerms(msgspec.Struct, frozen=True):
    """How a member wants to read. `filters` names only topics that are filtered."""

    topics: frozenset[TopicName]
    kind: BalanceMode = BalanceMode.SERVER
    filters: Mapping[TopicName, frozenset[str]] = msgspec.field(default_factory=dict)
    session_key: str = ""
    session_time: int = 0
    select_big: bool = False
    source_count: int = 0  # how many members are expected; with CLIENT 0 is unknown
    node_id: int = -1  # which of them this is, with CLIENT
    offsets: Mapping[TubePartition, int] = msgspec.field(
        default_factory=dict
    )  # where to begin, with BOUND


_ALWAYS = (TermsMismatch.KIND, TermsMismatch.TOPICS, TermsMismatch.FILTERS)
_COMPARED: dict[BalanceMode, tuple[TermsMismatch, ...]] = {
    BalanceMode.SERVER: _ALWAYS,
    BalanceMode.BOUND: (
        *_ALWAYS,
        TermsMismatch.SESSION_KEY,
        TermsMismatch.SELECT_BIG,
        TermsMismatch.SOURCE_COUNT,
    ),
    BalanceMode.CLIENT: _ALWAYS,
}


_VALUES: dict[TermsMismatch, Callable[[GroupTerms], object]] = {
    TermsMismatch.KIND: lambda terms: terms.kind,
    TermsMismatch.TOPICS: lambda terms: terms.topics,
    TermsMismatch.FILTERS: lambda terms: {
        each: some for each, some in terms.filters.items() if some
    },
    TermsMismatch.SESSION_KEY: lambda terms: terms.session_key,
    TermsMismatch.SELECT_BIG: lambda terms: terms.select_big,
    TermsMismatch.SOURCE_COUNT: lambda terms: terms.source_count,
    TermsMismatch.NODE_ID: lambda terms: terms.node_id,
}


def check_agrees(
    member_id: str,
    offered: GroupTerms,
    required: GroupTerms,
    others: Iterable[tuple[str, GroupTerms]],
) -> None:
    """Raise InconsistentMember, with the field that differs, if terms are not the group's."""
    compared = _COMPARED[required.kind]
    counted = required.kind is BalanceMode.CLIENT and required.source_count > 0
    if counted:
        compared = (*compared, TermsMismatch.SOURCE_COUNT)
    for difference in compared:
        ours, theirs = _VALUES[difference](offered), _VALUES[difference](required)
        if ours != theirs:
            raise InconsistentMember(
                difference.value,
                f"{member_id}'s {difference.value} is inconsistency with other consumers in the "
                f"group, required is {_spelled(theirs)}, request is {_spelled(ours)}",
            )
    for other_id, other in others if counted else ():
        if other_id != member_id and other.node_id == offered.node_id:
            raise InconsistentMember(
                TermsMismatch.NODE_ID.value,
                f"{member_id}'s nodeId value({offered.node_id}) is occupied by {other_id}'s nodeId "
                f"value({other.node_id}) in the group!",
            )


SPELLED_MAX = 1_024  # characters of what differs, in a text for people


def _spelled(value: object) -> str:
    if isinstance(value, BalanceMode):
        return value.value
    if isinstance(value, frozenset):
        return _list(str(each) for each in value)
    if isinstance(value, dict):
        return _list(f"{topic}={_list(some)}" for topic, some in value.items())
    return str(value)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(sorted(texts))[:SPELLED_MAX] + "]"


def agreed_offsets(members: Collection[GroupTerms]) -> dict[TubePartition, int]:
    """Return where a bound group begins: the largest, or the smallest, offset of its members."""
    found: dict[TubePartition, int] = {}
    for terms in members:
        choose = max if terms.select_big else min
        for part, offset in terms.offsets.items():
            found[part] = choose(found.get(part, offset), offset)
    return found
