"""All groups whose members the server balances, or who balance themselves: TubeMQ's consumers.

    balances = GroupBalancer(BalanceSettings(), partition_count)
    balances.join("group", "client-1", terms, now_ms)     # InconsistentMember, GroupMaxSize, ...
    pulse = balances.heartbeat("group", "client-1", now_ms, answer=..., report=...)
    pulse.event                                           # the next step of the client, or None

All state is in memory: after a restart members get UnknownMember, register again and report what
they have. The owner of the clock calls `tick`; the listener to topic events calls
`topic_changed` or `topic_gone`. The rules of one group are in `balanced_group.py`. Times are
milliseconds of any clock that does not go back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec

from trilogue.broker.access.authorizer import ANONYMOUS, Principal
from trilogue.broker.cursors.position_store import NAME_SIZE_MAX
from trilogue.broker.errors import GroupUnavailable, InvalidGroupName, UnknownMember
from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.balanced_group import (
    BalanceCounts,
    BalancedGroup,
    BalanceSettings,
    TubeHeartbeatResponse,
    TubeMember,
)
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms
from trilogue.broker.tubemq.rebalance_events import EventResult, RebalanceEvent

log = logging.getLogger(__name__)

OnMemberGone = Callable[[str, str], None]  # group, member: what it held is nobody's
OnGroupBegins = Callable[
    [str, Mapping[TubePartition, int]], None
]  # a bound group, and where its members agreed


class TubeMemberView(msgspec.Struct, frozen=True):
    """A member as administrators see it."""

    member_id: str
    host: str
    is_tls: bool
    joined_ms: int
    last_heartbeat_ms: int
    node_id: int
    parts: tuple[TubePartition, ...]  # that it has, as far as is known
    event: RebalanceEvent | None  # that it works on


class TubeGroupView(msgspec.Struct, frozen=True):
    """A group as administrators see it."""

    name: str
    terms: GroupTerms
    members: tuple[TubeMemberView, ...]
    parts: frozenset[TubePartition]
    stopped: bool
    counts: BalanceCounts


class GroupBalancer:
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
        self.gone: list[
            OnMemberGone
        ] = []  # listeners; not called for groups that balance themselves
        self.begins: list[OnGroupBegins] = []  # called before the first CONNECT is sent
        self.empty: list[Callable[[str], None]] = []  # the last member of a group has gone
        self._partition_count = partition_count
        self._rebalance_id = first_id
        self._groups: dict[str, BalancedGroup] = {}
        self._by_topic: dict[TopicName, set[str]] = {}
        self._member_count = 0
        self._size_bytes = 0  # bytes, by all members

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def member_count(self) -> int:
        """Members of all groups."""
        return self._member_count

    # -- requests of members

    def join(
        self,
        name: str,
        member_id: str,
        terms: GroupTerms,
        now_ms: int,
        *,
        claims: Collection[TubePartition] | None = None,
        allocated: bool = False,
        host: str = "",
        is_tls: bool = False,
        principal: Principal = ANONYMOUS,
        size: int = 0,
    ) -> bool:
        """Take a member into a group, which is made when it is new, or hear from it again.

        `claims`: the full list of its partitions, None without a list. `allocated`: it has been
        given partitions before. `size`: bytes of its names, filters and lists. Returns whether the
        response reports that no member has any partition. InconsistentMember, GroupMaxSize,
        GroupUnavailable, InvalidGroupName.
        """
        group = self._groups.get(name)
        known = None if group is None else group.members.get(member_id)
        if known is None and self._member_count >= self.settings.all_members_max:
            raise GroupUnavailable("there are as many consumers as this node takes")
        more = size - (0 if known is None else known.size_bytes)
        if self._size_bytes + more > self.settings.size_bytes_max:
            raise GroupUnavailable("the reports of this node's consumers need too much memory")
        if group is None:
            group = self._make(name, terms)
        member = group.join(
            member_id,
            terms,
            now_ms,
            claims=claims,
            allocated=allocated,
            host=host,
            is_tls=is_tls,
            principal=principal,
        )
        member.size_bytes = size
        self._size_bytes += more
        self._member_count += known is None
        return group.not_allocated(member)

    def heartbeat(
        self,
        name: str,
        member_id: str,
        now_ms: int,
        *,
        answer: EventResult | None = None,
        report: Collection[TubePartition] | None = None,
    ) -> TubeHeartbeatResponse:
        """Process a heartbeat and return the next event. UnknownMember: it must register again."""
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

    def remove_members(self, principal: Principal) -> None:
        """Remove the members that are this principal's from all groups."""
        for group in list(self._groups.values()):
            for member_id, member in list(group.members.items()):
                if member.principal == principal:
                    self.leave(group.name, member_id)

    def clear(self) -> None:
        """Forget all groups: another node balances them, whose members report there."""
        self._groups.clear()
        self._by_topic.clear()
        self._member_count = self._size_bytes = 0

    def find_member(self, name: str, member_id: str) -> TubeMember | None:
        """Return a member if there is one."""
        group = self._groups.get(name)
        return None if group is None else group.members.get(member_id)

    def member(self, name: str, member_id: str) -> TubeMember:
        """Return a member; raises UnknownMember."""
        return self._group(name).member(member_id)

    def terms(self, name: str) -> GroupTerms:
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

    def request_reports(self) -> None:
        """Have all members report their partitions: what they named so far may be void."""
        for group in self._groups.values():
            for member in group:
                member.must_report = True

    def stop(self, name: str, *, stopped: bool = True) -> None:
        """Move nothing in a group until it may again."""
        self._group(name).stop(stopped=stopped)

    # -- requests of administrators

    def names(self) -> list[str]:
        """The groups that have members, sorted."""
        return sorted(self._groups)

    def groups(self) -> list[TubeGroupView]:
        """Everything there is, by name."""
        return [self.view(name) for name in self.names()]

    def view(self, name: str) -> TubeGroupView:
        """One group. UnknownMember when it has no members."""
        group = self._group(name)
        return TubeGroupView(
            name,
            group.terms,
            tuple(
                TubeMemberView(
                    each.member_id,
                    each.host,
                    each.is_tls,
                    each.joined_ms,
                    each.last_heartbeat_ms,
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

    def _group(self, name: str) -> BalancedGroup:
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember(f"Not found groupName {name} in holder!")
        return group

    def _make(self, name: str, terms: GroupTerms) -> BalancedGroup:
        if not name or len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidGroupName(f"a group name has 1 to {NAME_SIZE_MAX} bytes")
        if len(self._groups) >= self.settings.groups_max:
            raise GroupUnavailable(f"there are {self.settings.groups_max} groups already")
        group = BalancedGroup(
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

    def _has_gone(self, name: str, member: TubeMember) -> None:
        self._member_count -= 1
        self._size_bytes -= member.size_bytes
        if self._groups[name].terms.kind is not BalanceMode.CLIENT:
            self._notify(name, [partial(each, name, member.member_id) for each in self.gone])

    def _has_begun(self, name: str, starts: Mapping[TubePartition, int]) -> None:
        self._notify(name, [partial(each, name, starts) for each in self.begins])

    def _notify(self, name: str, calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception:  # it is true all the same
                log.exception("balance.listener_failed", extra={"group": name})

    def _tidy(self, group: BalancedGroup) -> None:
        """Remove a group without members."""
        if group.members:
            return
        if self._groups.get(group.name) is not group:
            return
        del self._groups[group.name]
        self._notify(group.name, [partial(each, group.name) for each in self.empty])
        for topic in group.terms.topics:
            names = self._by_topic.get(topic)
            if names is not None:
                names.discard(group.name)
                if not names:
                    del self._by_topic[topic]
