"""One group whose partitions the server assigns: target, owners and events of its members.

Three things are known of a partition: its target member (`TubeMember.wanted`, computed by `_share`
when members or partitions change), its owner as far as is known (`_owner`, from the moment when
CONNECT is sent until the member reports that it released the partition, or is gone), and a member
that reports to have it although another one owns it (`TubeMember.stray`). Nothing is planned ahead:
a heartbeat compares the three for its member and returns at most one event, first to release what
it is not to have, else to take what is free. So a report that is late, lost or untrue only leads
to the same event in a later round, and a partition that moves has no owner for a while.

Only `_take` and `_let_go` change owners, only `_share` changes targets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from trilogue.broker.access.authorizer import ANONYMOUS, Principal
from trilogue.broker.errors import GroupMaxSize, UnknownMember
from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.even_assignment import TubePartition, assign_evenly
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms, agreed_offsets, check_agrees
from trilogue.broker.tubemq.rebalance_events import (
    CONNECTS,
    DISCONNECTS,
    UNANSWERED,
    EventKind,
    EventResult,
    EventStatus,
    RebalanceEvent,
)

SHARED_AT_ONCE: Final = 2_000  # partitions of a group that are shared out with each change
SHARED_PER_MS: Final = 20  # of larger ones, so that many who come at once take no more of the loop


class BalanceSettings(msgspec.Struct, frozen=True):
    """How long members may be silent, and the bounds of what they may hold."""

    session_ms: int = 30_000  # without a heartbeat, then the member is gone
    event_ms: int = 60_000  # for an event, then it is given again
    tries_max: int = 3  # events in vain, then the member is gone
    groups_max: int = 10_000
    members_max: int = 1_000  # of a group
    all_members_max: int = 50_000
    size_bytes_max: int = 256 << 20  # of names, filters and lists that all members sent
    event_parts_max: int = 5_000  # in one event; the rest comes with the next


class TubeMember(msgspec.Struct):
    """One consumer. Sets hold partitions."""

    member_id: str
    terms: GroupTerms
    joined_ms: int
    last_heartbeat_ms: int
    host: str = ""
    is_tls: bool = False  # its connection is encrypted
    size_bytes: int = 0  # bytes of its names, filters and lists
    principal: Principal = ANONYMOUS
    wanted: frozenset[TubePartition] = frozenset()
    owned: set[TubePartition] = msgspec.field(default_factory=set)
    coming: set[TubePartition] = msgspec.field(
        default_factory=set
    )  # owned, and not yet heard to be so
    stray: set[TubePartition] = msgspec.field(default_factory=set)
    event: RebalanceEvent | None = None
    in_vain: int = 0  # events in a row that led to nothing
    settled: bool = False  # it has had its first partitions
    stop_sent: bool = False
    exchanging: bool = False  # it was sent a DISCONNECT, and a CONNECT follows
    must_report: bool = False


class TubeHeartbeatResponse(NamedTuple):
    """The content of a heartbeat response."""

    event: RebalanceEvent | None
    not_allocated: bool


class BalanceCounts(NamedTuple):
    """What has happened in a group since it is there."""

    rounds: int
    events: int
    late_answers: int
    occupied: int
    lost: int


class BalancedGroup:
    """A group by its name. Its first member creates it; its holder removes it when it is empty."""

    def __init__(
        self,
        name: str,
        terms: GroupTerms,
        settings: BalanceSettings,
        *,
        partition_count: Callable[[TopicName], int],
        next_id: Callable[[], int],
        gone: Callable[[str, TubeMember], None],
        begins: Callable[[str, Mapping[TubePartition, int]], None],
    ) -> None:
        self.name = name
        self.terms = terms
        self.members: dict[str, TubeMember] = {}
        self.stopped = False
        self.allocated = False
        self.starts: Mapping[
            TubePartition, int
        ] = {}  # where the members of a bound group agreed to begin
        self.happened: Counter[str] = Counter()
        self._settings = settings
        self._partition_count = partition_count
        self._next_id = next_id
        self._gone = gone
        self._begins = begins
        self._owner: dict[TubePartition, str] = {}
        self._strays: Counter[TubePartition] = Counter()
        self._parts: dict[
            TubePartition, TubePartition
        ] = {}  # interned: reports are kept as these objects
        self._round = next_id()
        self._dirty = True
        self._shared_ms = 0
        self._complete = (
            terms.kind is not BalanceMode.BOUND
        )  # a bound group has had all its members

    def __iter__(self) -> Iterator[TubeMember]:
        return iter(self.members.values())

    # -- what is so

    @property
    def counts(self) -> BalanceCounts:
        """What has happened so far."""
        return BalanceCounts(*(self.happened[each] for each in BalanceCounts._fields))

    def owner(self, part: TubePartition) -> str | None:
        """Return the member that has a partition, if one is known."""
        return self._owner.get(part)

    @property
    def parts(self) -> frozenset[TubePartition]:
        """All partitions that are shared out."""
        self._share()
        return frozenset(self._parts)

    def not_allocated(self, member: TubeMember) -> bool:
        """Whether the response still reports that no member got any partition.

        Those of a bound group believe it until they have begun themselves: only as long do they
        name the positions that they brought (Java client).
        """
        if self.terms.kind is BalanceMode.BOUND:
            return not member.settled
        return not self.allocated

    # -- members

    def join(
        self,
        member_id: str,
        terms: GroupTerms,
        now_ms: int,
        *,
        claims: Collection[TubePartition] | None = None,
        allocated: bool = False,
        host: str = "",
        is_tls: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> TubeMember:
        """Take a member in, or hear again from one that is there. InconsistentMember, GroupMaxSize.

        `claims` is the full list of partitions that the client reports; None: no list.
        """
        others = ((each.member_id, each.terms) for each in self)
        check_agrees(member_id, terms, self.terms, others)
        member = self.members.get(member_id)
        if member is None:
            if len(self.members) >= self._settings.members_max:
                raise GroupMaxSize(f"a group has {self._settings.members_max} members at most")
            member = TubeMember(member_id, terms, now_ms, now_ms)
            self.members[member_id] = member
            self._dirty = True
        else:
            member.event = None  # it may have missed that: another is computed
        member.terms = replace(terms, topics=self.terms.topics, filters=self.terms.filters)
        member.last_heartbeat_ms = now_ms
        member.host, member.is_tls, member.principal = host, is_tls, principal
        member.settled = member.settled or allocated
        self.allocated = self.allocated or allocated
        if claims is not None:
            self._reconcile(member, claims, now_ms)
        return member

    def heartbeat(
        self,
        member_id: str,
        now_ms: int,
        *,
        answer: EventResult | None = None,
        report: Collection[TubePartition] | None = None,
    ) -> TubeHeartbeatResponse:
        """Process a heartbeat; `report` is the full list of the member's partitions, if sent.

        UnknownMember: it must register again.
        """
        member = self.member(member_id)
        member.last_heartbeat_ms = now_ms
        if answer is not None:
            self._answered(member, answer, report)
        if report is not None:
            self._reconcile(member, report, now_ms)
        if self.terms.kind is BalanceMode.CLIENT:
            return TubeHeartbeatResponse(None, not_allocated=False)
        self._share(now_ms)
        event = self._next_event(member, now_ms, reported=report is not None)
        return TubeHeartbeatResponse(event, self.not_allocated(member))

    def member(self, member_id: str) -> TubeMember:
        """Return a member; raises UnknownMember."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMember(f"Not found client {member_id} in group({self.name})")
        return found

    def leave(self, member_id: str) -> bool:
        """Let a member go, with all it has; whether it was there."""
        member = self.members.pop(member_id, None)
        if member is None:
            return False
        if self.terms.kind is not BalanceMode.CLIENT:
            for part in list(member.owned):
                self._let_go(member, part)
            self._stray(member, set())
        self._dirty = True
        self._gone(self.name, member)
        return True

    def expire(self, now_ms: int) -> int:
        """Let go who was silent for too long; how many."""
        oldest = now_ms - self._settings.session_ms
        silent = [each.member_id for each in self if each.last_heartbeat_ms <= oldest]
        for member_id in silent:
            self._lost(member_id)
        return len(silent)

    def refresh(self) -> None:
        """Partitions came or went: look again at the next heartbeat."""
        self._dirty = True

    def topic_gone(self, topic: TopicName) -> None:
        """A topic is deleted: its partitions are given up, also by who never notices.

        It may exist again before the next heartbeat, without readers: that a member has
        its partitions is true of the old ones only.
        """
        self._dirty = True
        for member in self if self.terms.kind is not BalanceMode.CLIENT else ():
            gone = {part for part in member.owned if part.topic == topic}
            for part in gone:
                self._let_go(member, part)
            member.stray |= gone
            self._strays.update(gone)

    def stop(self, *, stopped: bool) -> None:
        """Announce to members that nothing moves until `stop(stopped=False)`."""
        self.stopped = stopped
        self._dirty = True
        for member in self:
            member.stop_sent = False

    def _lost(self, member_id: str) -> None:
        self.happened["lost"] += 1
        self.leave(member_id)

    # -- targets

    def _share(self, now_ms: int | None = None) -> None:
        """Compute the targets where something changed; for a large group not at each change."""
        if not self._dirty:
            return
        if now_ms is not None:
            rest_ms = max(0, len(self._parts) - SHARED_AT_ONCE) // SHARED_PER_MS
            if self._shared_ms <= now_ms < self._shared_ms + rest_ms:
                return
            self._shared_ms = now_ms
        self._dirty = False
        counts = {topic: self._partition_count(topic) for topic in self.terms.topics}
        parts = [
            TubePartition(topic, number)
            for topic in sorted(counts)
            for number in range(counts[topic])
        ]
        self._parts = {part: part for part in parts}
        if self.terms.kind is BalanceMode.CLIENT or not self._may_begin():
            return
        shares: dict[str, set[TubePartition]] = {each: set() for each in self.members}
        for part, member_id in assign_evenly(
            parts, sorted(shares), self._owner, self._preferences()
        ).items():
            shares[member_id].add(part)
        changed = False
        for member_id, share in shares.items():
            member = self.members[member_id]
            changed = changed or member.wanted != share
            member.wanted = frozenset(share)
        if changed:
            self._new_round()

    def _may_begin(self) -> bool:
        """A bound group waits for all its members, once.

        Where some have begun already they know it from a life of this node before: then they go on
        from their positions, and what they brought when they began is over.
        """
        if self._complete:
            return True
        if len(self.members) < self.terms.source_count:
            return False
        self._complete = True
        if not any(each.settled for each in self):
            self.starts = agreed_offsets([each.terms for each in self])
            self._begins(self.name, self.starts)
        return True

    def _preferences(self) -> Mapping[TubePartition, Collection[str]]:
        """Return the best members by partition: those with the position at which it begins."""
        return {
            part: {each.member_id for each in self if each.terms.offsets.get(part) == offset}
            for part, offset in self.starts.items()
        }

    def _new_round(self) -> None:
        self._round = self._next_id()
        self.happened["rounds"] += 1
        for member in self:
            member.exchanging = False

    # -- who has what

    def _take(self, member: TubeMember, part: TubePartition) -> None:
        assert self._owner.setdefault(part, member.member_id) == member.member_id
        member.owned.add(part)

    def _let_go(self, member: TubeMember, part: TubePartition) -> None:
        assert self._owner.pop(part) == member.member_id
        member.owned.discard(part)
        member.coming.discard(part)

    def _stray(self, member: TubeMember, parts: set[TubePartition]) -> None:
        self._strays.subtract(member.stray)
        self._strays.update(parts)
        self._strays = +self._strays
        member.stray = parts

    def _reconcile(
        self, member: TubeMember, report: Collection[TubePartition], now_ms: int
    ) -> None:
        """Take over the partitions that a member reports, except those that its event is about."""
        self._share(now_ms)
        held = {self._parts[part] for part in report if part in self._parts}
        held.update(member.owned.intersection(report))
        member.must_report = False
        if self.terms.kind is BalanceMode.CLIENT:
            member.owned = held
            return
        moving = set(member.event.parts) if member.event is not None else set()
        for part in member.owned - held - moving:
            self._let_go(member, part)
        member.coming -= held
        stray = set()
        for part in held - member.owned:
            owner = self._owner.get(part)
            if owner is not None and part in self.members[owner].coming:
                self._let_go(self.members[owner], part)  # sent to it, and not taken
            elif owner is not None:
                stray.add(part)
                continue
            self._take(member, part)
        if stray or member.stray:
            self._stray(member, stray)
        if held:
            self.allocated = True

    # -- events

    def _answered(
        self, member: TubeMember, answer: EventResult, report: Collection[TubePartition] | None
    ) -> None:
        event = member.event
        if (
            event is None
            or (event.rebalance_id, event.kind) != (answer.rebalance_id, answer.kind)
            or event.status is not EventStatus.PROCESSING
        ):
            self.happened["late_answers"] += 1
            return
        status = answer.status
        if status in {EventStatus.WAITING, EventStatus.PROCESSING}:
            return
        event.status = status
        member.event = None
        done = status is EventStatus.DONE
        if event.kind in DISCONNECTS:
            kept = set(event.parts) & set(report or ()) if done or report is not None else None
            in_vain = self._disconnected(member, event, kept)
        else:
            in_vain = self._connected(member, event, report, done=done)
        if in_vain:
            self._in_vain(member)
        else:
            member.in_vain = 0
            self.allocated = member.settled = True

    def _disconnected(
        self, member: TubeMember, event: RebalanceEvent, kept: set[TubePartition] | None
    ) -> bool:
        """Free what the member has let go of; whether some is left."""
        if kept is None:
            return True
        freed = set(event.parts) - kept
        for part in freed & member.owned:
            self._let_go(member, part)
        if freed & member.stray:
            self._stray(member, member.stray - freed)
        return bool(kept)

    def _connected(
        self,
        member: TubeMember,
        event: RebalanceEvent,
        report: Collection[TubePartition] | None,
        *,
        done: bool,
    ) -> bool:
        """Free what the member did not get, it was occupied; whether it got nothing at all."""
        got = set(event.parts) & set(report) if report is not None else set(event.parts)
        if report is None and not done:
            got = set()
        for part in set(event.parts) & member.owned:
            if part in got:
                member.coming.discard(part)
            else:
                self._let_go(member, part)
                self.happened["occupied"] += 1
        if len(got) < len(event.parts):
            self._new_round()
        return not done and not got

    def _in_vain(self, member: TubeMember) -> None:
        """Send the event again in another round; remove a member that failed too often."""
        member.in_vain += 1
        if member.in_vain >= self._settings.tries_max:
            self._lost(member.member_id)
            raise UnknownMember(f"client {member.member_id} answers no event: register again")
        self._new_round()

    def _next_event(
        self, member: TubeMember, now_ms: int, *, reported: bool
    ) -> RebalanceEvent | None:
        if member.event is not None:
            if now_ms - member.event.sent_ms < self._settings.event_ms:
                return None
            member.event = None
            self._in_vain(member)
            member.must_report = not reported
        kind, parts = self._due(member)
        if kind is None:
            return None
        event = RebalanceEvent(self._round, kind, parts).send(now_ms)
        self.happened["events"] += 1
        if kind in UNANSWERED:
            return event
        member.event = event
        if kind in CONNECTS:
            for part in parts:
                self._take(member, part)
                member.coming.add(part)
        return event

    def _due(self, member: TubeMember) -> tuple[EventKind | None, tuple[TubePartition, ...]]:
        """Return the next event of a member that has none."""
        if member.must_report:
            member.must_report = False
            return EventKind.REPORT, ()
        if self.stopped:
            was_sent, member.stop_sent = member.stop_sent, True
            return (None if was_sent else EventKind.STOP_REBALANCE), ()
        settled = member.owned == member.wanted and not member.coming and not member.stray
        if settled or not self._complete:
            return None, ()
        losing = self._some((member.owned - member.wanted) | member.stray)
        if losing:
            member.exchanging = not member.wanted <= member.owned
            exchange, alone = EventKind.DISCONNECT, EventKind.ONLY_DISCONNECT
            return (exchange if member.exchanging else alone), losing
        free = {
            part
            for part in member.wanted - member.owned
            if part not in self._owner and part not in self._strays
        }
        gaining = self._some(free | member.coming)
        if gaining:
            return EventKind.CONNECT if member.exchanging else EventKind.ONLY_CONNECT, gaining
        return None, ()

    def _some(self, parts: Collection[TubePartition]) -> tuple[TubePartition, ...]:
        return tuple(sorted(parts)[: self._settings.event_parts_max])
