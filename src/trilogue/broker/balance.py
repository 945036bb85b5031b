"""All groups whose members the server balances, or who balance themselves: TubeMQ's consumers.

    balances = Balances(BalanceSettings(), partition_count)
    balances.join("group", "client-1", terms, now_ms)     # InconsistentMember, GroupMaxSize, ...
    pulse = balances.heartbeat("group", "client-1", now_ms, answer=..., report=...)
    pulse.event                                           # what the client shall do, or None

What is here is memory only: after a restart members hear UnknownMember, register again and say what
they have. Whoever keeps the clock calls `tick`; whoever hears that topics came, grew or went calls
`topic_changed` or `topic_gone`. The rules of one group are in `balance_group.py`. Times are
milliseconds of any clock that does not go back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from trilogue.broker.access import ANONYMOUS, Principal
from trilogue.broker.balance_events import Answer, BalanceEvent
from trilogue.broker.balance_group import BalanceGroup, BalanceSettings, Counts, Member, Pulse
from trilogue.broker.balance_shares import Part
from trilogue.broker.balance_terms import Kind, Terms
from trilogue.broker.cursor import NAME_SIZE_MAX
from trilogue.broker.errors import GroupUnavailable, InvalidGroupName, UnknownMember
from trilogue.broker.names import TopicName

log = logging.getLogger(__name__)

Gone = Callable[[str, str], None]  # group, member: what it held is nobody's
Begins = Callable[[str, Mapping[Part, int]], None]  # a bound group, and where its members agreed


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as administrators see it."""

    member_id: str
    host: str
    joined_ms: int
    heard_ms: int
    node_id: int
    parts: tuple[Part, ...]  # that it has, as far as is known
    event: BalanceEvent | None  # that it works on


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as administrators see it."""

    name: str
    terms: Terms
    members: tuple[MemberView, ...]
    parts: frozenset[Part]
    stopped: bool
    counts: Counts


class Balances:
    """The groups' front: every call names its group."""

    def __init__(
        self,
        settings: BalanceSettings,
        partition_count: Callable[[TopicName], int],
        *,
        first_id: int = 0,
    ) -> None:
        """`partition_count` is 0 for a topic that is not there, or that may not be read."""
        self.settings = settings
        self.gone: list[Gone] = []  # who listens; groups that balance themselves are not told of
        self.begins: list[Begins] = []  # called before anybody is told to connect
        self.empty: list[Callable[[str], None]] = []  # the last member of a group has gone
        self._partition_count = partition_count
        self._rebalance_id = first_id
        self._groups: dict[str, BalanceGroup] = {}
        self._by_topic: dict[TopicName, set[str]] = {}
        self._member_count = 0
        self._said = 0  # bytes, by all members

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def member_count(self) -> int:
        """Members of all groups."""
        return self._member_count

    # -- what members ask

    def join(
        self,
        name: str,
        member_id: str,
        terms: Terms,
        now_ms: int,
        *,
        claims: Collection[Part] | None = None,
        allocated: bool = False,
        host: str = "",
        principal: Principal = ANONYMOUS,
        size: int = 0,
    ) -> bool:
        """Take a member into a group, which is made when it is new, or hear from it again.

        `claims`: all that it says to have, None when it says nothing. `allocated`: it has been
        given partitions before. `size`: bytes of all that it says of itself. Returns whether it
        shall believe that nobody has been given any. InconsistentMember, GroupMaxSize,
        GroupUnavailable, InvalidGroupName.
        """
        group = self._groups.get(name)
        known = None if group is None else group.members.get(member_id)
        if known is None and self._member_count >= self.settings.all_members_max:
            raise GroupUnavailable("there are as many consumers as this node takes")
        more = size - (0 if known is None else known.said)
        if self._said + more > self.settings.said_bytes_max:
            raise GroupUnavailable("the consumers of this node say too much of themselves")
        if group is None:
            group = self._make(name, terms)
        member = group.join(
            member_id,
            terms,
            now_ms,
            claims=claims,
            allocated=allocated,
            host=host,
            principal=principal,
        )
        member.said = size
        self._said += more
        self._member_count += known is None
        return group.not_allocated(member)

    def heartbeat(
        self,
        name: str,
        member_id: str,
        now_ms: int,
        *,
        answer: Answer | None = None,
        report: Collection[Part] | None = None,
    ) -> Pulse:
        """Hear from a member, and say what it shall do. UnknownMember: it must register again."""
        group = self._group(name)
        try:
            return group.heartbeat(member_id, now_ms, answer=answer, report=report)
        finally:
            self._tidy(group)

    def leave(self, name: str, member_id: str) -> bool:
        """Let a member go; whether it was there."""
        group = self._groups.get(name)
        if group is None:
            return False
        was_there = group.leave(member_id)
        self._tidy(group)
        return was_there

    def find(self, name: str, member_id: str) -> Member | None:
        """Return a member if there is one."""
        group = self._groups.get(name)
        return None if group is None else group.members.get(member_id)

    def member(self, name: str, member_id: str) -> Member:
        """Return a member, or say that there is none (UnknownMember)."""
        return self._group(name).member(member_id)

    def terms(self, name: str) -> Terms:
        """What the members of a group have agreed on."""
        return self._group(name).terms

    # -- what happens to them

    def tick(self, now_ms: int) -> int:
        """Let go all who were silent for too long; how many."""
        count = 0
        for group in list(self._groups.values()):
            lost = group.expire(now_ms)
            if lost:
                log.info("balance.lost", extra={"group": group.name, "members": lost})
                count += lost
                self._tidy(group)
        return count

    def topic_changed(self, topic: TopicName) -> None:
        """A topic came, grew, or may no longer be read."""
        for name in self._by_topic.get(topic, ()):
            self._groups[name].refresh()

    def topic_gone(self, topic: TopicName) -> None:
        """A topic is deleted."""
        for name in self._by_topic.get(topic, ()):
            self._groups[name].topic_gone(topic)

    def refresh(self) -> None:
        """Any topic may have changed, or who may read it."""
        for group in self._groups.values():
            group.refresh()

    def stop(self, name: str, *, stopped: bool = True) -> None:
        """Move nothing in a group until it may again."""
        self._group(name).stop(stopped=stopped)

    # -- what administrators ask

    def names(self) -> list[str]:
        """The groups that have members, sorted."""
        return sorted(self._groups)

    def groups(self) -> list[GroupView]:
        """Everything there is, by name."""
        return [self.view(name) for name in self.names()]

    def view(self, name: str) -> GroupView:
        """One group. UnknownMember when it has no members."""
        group = self._group(name)
        return GroupView(
            name,
            group.terms,
            tuple(
                MemberView(
                    each.member_id,
                    each.host,
                    each.joined_ms,
                    each.heard_ms,
                    each.terms.node_id,
                    tuple(sorted(each.owned)),
                    each.event,
                )
                for _, each in sorted(group.members.items())
            ),
            group.parts,
            group.stopped,
            group.counts,
        )

    # -- inside

    def _group(self, name: str) -> BalanceGroup:
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember(f"Not found groupName {name} in holder!")
        return group

    def _make(self, name: str, terms: Terms) -> BalanceGroup:
        if not name or len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidGroupName(f"a group name has 1 to {NAME_SIZE_MAX} bytes")
        if len(self._groups) >= self.settings.groups_max:
            raise GroupUnavailable(f"there are {self.settings.groups_max} groups already")
        group = BalanceGroup(
            name,
            terms,
            self.settings,
            partition_count=self._partition_count,
            next_id=self._next_id,
            gone=self._has_gone,
            begins=self._has_begun,
        )
        self._groups[name] = group
        for topic in terms.topics:
            self._by_topic.setdefault(topic, set()).add(name)
        return group

    def _next_id(self) -> int:
        self._rebalance_id += 1
        return self._rebalance_id

    def _has_gone(self, name: str, member: Member) -> None:
        self._member_count -= 1
        self._said -= member.said
        if self._groups[name].terms.kind is not Kind.CLIENT:
            self._tell(name, [partial(each, name, member.member_id) for each in self.gone])

    def _has_begun(self, name: str, starts: Mapping[Part, int]) -> None:
        self._tell(name, [partial(each, name, starts) for each in self.begins])

    def _tell(self, name: str, calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception:  # it is true all the same
                log.exception("balance.listener_failed", extra={"group": name})

    def _tidy(self, group: BalanceGroup) -> None:
        """Forget a group that nobody is in."""
        if group.members:
            return
        if self._groups.get(group.name) is not group:
            return
        del self._groups[group.name]
        self._tell(group.name, [partial(each, group.name) for each in self.empty])
        for topic in group.terms.topics:
            names = self._by_topic.get(topic)
            if names is not None:
                names.discard(group.name)
                if not names:
                    del self._by_topic[topic]
