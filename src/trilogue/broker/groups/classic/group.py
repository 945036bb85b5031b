"""One classic group of Kafka: its members join and sync, and each change begins a rebalance.

The group only keeps order; its leader, one of the members, makes the assignment, which is opaque
bytes here, so eager and cooperative assignors need nothing different. The table in
`states.py` has everything that may happen in each state.

Only `_fire` changes the state, and only by the table. Public methods first check the member and
its generation (UnknownMember, FencedInstance, IllegalGeneration), then fire one event. Actions may
fire further events of the group itself (JOINED, NONE_LEFT). Answers are collected and given when
the group is at rest, so that a client's reaction to one never meets a half-made change.

Where this keeps to later Kafka than 2.0.0: a heartbeat between join and sync is answered with
success, members who joined and do not sync are let go after the rebalance timeout, and static
members keep their place while they are away. Unlike Kafka, a static member that is away when the
others rebalance is not expected to sync, so only its session ends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from trilogue.broker.errors import (
    BrokerError,
    FencedInstance,
    GroupMaxSize,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from trilogue.broker.groups.classic.initial_delay import InitialDelay, InitialDelays
from trilogue.broker.groups.classic.members import (
    ClassicMember,
    ClassicMembers,
    EventContext,
    GroupMemory,
    GroupSettings,
    JoinRequest,
    JoinResult,
    JoinResultMember,
    MemberHandover,
    ResettableTimer,
    SyncResult,
    Timers,
    new_member_id,
)
from trilogue.broker.groups.classic.states import TRANSITIONS, GroupAction, GroupEvent, GroupState
from trilogue.broker.groups.group import (
    CLASSIC,
    CONSUMER_PROTOCOL,
    DecodeSubscription,
    no_subscription,
)
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise

GENERATION_MASK = 2**31 - 1
REJOIN_WAIT_MIN_MS = 1_000
SYNC_WAIT_MIN_MS = 1_000  # some clients name no rebalance timeout, which is 0 (kafkajs)


class ClassicGroup:
    """A group by its name. See the module for the rules."""

    def __init__(
        self,
        name: str,
        settings: GroupSettings,
        timers: Timers,
        new_member_suffix: Callable[[], str],
        on_emptied: Callable[[ClassicGroup], None],
        *,
        decode_subscription: DecodeSubscription = no_subscription,
        initial_delays: InitialDelays | None = None,
        on_assigned: Callable[[ClassicGroup], None] = lambda _: None,
        on_departed: Callable[[ClassicGroup, str], None] = lambda _group, _member_id: None,
        memory: GroupMemory | None = None,
    ) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.members = ClassicMembers(settings, memory)
        self._settings = settings
        self._decode_subscription = decode_subscription
        self._timers = timers
        self._new_member_suffix = new_member_suffix
        self._on_emptied = on_emptied
        self._on_assigned = on_assigned  # called when a generation has its assignments
        self._on_departed = on_departed  # called with the id of a member that is gone
        self._join_timer = ResettableTimer(timers, self._join_over)
        self._sync_timer = ResettableTimer(timers, self._sync_over)
        self._first = InitialDelay(
            name, settings, initial_delays or InitialDelays(), self._join_timer
        )
        self._unsynced: set[ClassicMember] = set()
        self._occasion = EventContext()
        self._answers: deque[tuple[Promise[Any], object]] = deque()

    # -- state

    @property
    def type(self) -> str:
        """Its members assign among themselves."""
        return CLASSIC

    @property
    def state_name(self) -> str:
        """The state as tools show it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY

    def subscribes_to(self, topic: TopicName) -> bool:
        """Whether some member reads the topic."""
        return self.reading()(topic)

    def reading(self) -> Callable[[TopicName], bool]:
        """Return whether some member reads a topic, as a function that decodes each member once.

        While the members have no common protocol yet, or subscriptions cannot be read, a group
        of readers may read anything. Members of other protocol types (Connect's workers) name no
        topics.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            return lambda _: False
        topics: set[TopicName] = set()
        for member in self.members:
            subscription = (
                self._decode_subscription(member.metadata(self.protocol)) if self.protocol else None
            )
            if subscription is None:
                return lambda _: True
            topics |= subscription.topics
        return topics.__contains__

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow everything: classic members have no epochs."""

    # -- requests of members

    def join(self, request: JoinRequest) -> Promise[JoinResult]:
        """Become or stay a member; kept when the rebalance that this takes part in is over."""
        before = self.members.find_member(request.member_id, request.instance_id)
        self.members.check_join(request, self.protocol_type, before)
        known = self._known(request)
        self._check_place(known)
        member, event = self._admit(request, known)
        promise: Promise[JoinResult] = Promise()
        self._interrupt(member, RebalanceInProgress("the member has joined once more"))
        member.joining = promise
        member.cancel_timer()
        if member.is_new:
            self._arm(member, self._settings.new_member_timeout_ms)
        if len(self.members) == 1:
            self.protocol_type = request.protocol_type
        self._fire(event, member)
        self._rest()
        return promise

    def sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[SyncResult]:
        """Bring (the leader) or get the assignment; kept when the leader has brought it."""
        member = self._present(member_id, generation, instance_id)
        protocols = (protocol_type, self.protocol_type), (protocol, self.protocol)
        if any(a not in {None, b} for a, b in protocols):
            raise InconsistentProtocol(f"the group has settled on {self.protocol!r}")
        assignments = assignments or {}
        self.members.check_assignments(assignments)
        promise: Promise[SyncResult] = Promise()
        self._occasion = EventContext(sync_promise=promise, assignments=assignments)
        try:
            self._fire(GroupEvent.LEAD if self.members.leads(member) else GroupEvent.FOLLOW, member)
        finally:
            self._occasion = EventContext()
        self._rest()
        return promise

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Record a heartbeat; RebalanceInProgress makes the member join again."""
        self._fire(GroupEvent.HEARTBEAT, self._present(member_id, generation, instance_id))

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Go. A static member may be sent away by its instance alone."""
        pending = self.members.pending.pop(member_id, None)
        if pending is not None:
            pending.cancel()
            self._settle_join()
        else:
            static = self.members.static(instance_id)
            if not member_id and static is not None:
                member = static
            else:
                member = self.members.current(member_id, instance_id)
            self._depart(member)
        self._rest()

    def check_commit(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Refuse a commit of positions that does not come from a member of this generation.

        While the group is empty, a client without a generation may commit.
        """
        is_anonymous = not member_id and instance_id is None
        if generation < 0 and (is_anonymous or self.state is GroupState.EMPTY):
            self._fire(GroupEvent.MANUAL, None)
        else:
            self._fire(GroupEvent.COMMIT, self._present(member_id, generation, instance_id))

    def forget(self) -> None:
        """End an empty group."""
        self._fire(GroupEvent.FORGET, None)

    # -- after a restart, and from and to groups of the other kind (consumer/mixed_group.py)

    def resume(
        self,
        generation: int,
        arrivals: Iterable[MemberHandover],
        *,
        rebalance: bool,
        protocol_type: str = CONSUMER_PROTOCOL,
        protocol: str = "",
    ) -> None:
        """Go on with members who had all synced, in a group that is new; `rebalance` at once.

        The first of them leads. Without a protocol they vote.
        """
        self.members.adopt(arrivals)
        self.generation, self.protocol_type = generation, protocol_type
        self.protocol = protocol or self.members.vote()
        self._fire(GroupEvent.RESUME, None)
        self._on_assigned(self)
        if rebalance:
            self._fire(GroupEvent.DEPART, None)
        self._rest()

    def dissolve(self) -> None:
        """End a group whose members go on in another one: pending requests are refused."""
        for member in self.members:
            self._interrupt(member, RebalanceInProgress("the group has changed its kind"))
        self._fire(GroupEvent.DISSOLVE, None)
        self._rest()

    def release(self, error: BrokerError) -> None:
        """End here as it is: another node goes on with its members, from the rows."""
        for member in self.members:
            self._interrupt(member, error)
        self._close(None)
        self.members.release()
        self._rest()

    # -- who speaks

    def _check_place(self, known: ClassicMember | None) -> None:
        if known and self.state is GroupState.PREPARING and not self.members.has_place(known):
            self._send_off(known)
            raise GroupMaxSize("newcomers have taken all places of the group")

    def _known(self, request: JoinRequest) -> ClassicMember | None:
        """Return the member that joins again; None for a new one; or refuse who is neither."""
        if not request.member_id:
            return self.members.static(request.instance_id)
        if request.member_id in self.members.pending and request.instance_id is None:
            return None
        return self.members.current(request.member_id, request.instance_id)

    def _admit(
        self, request: JoinRequest, known: ClassicMember | None
    ) -> tuple[ClassicMember, GroupEvent]:
        members = self.members
        if known is None:
            return self._take_in(request), GroupEvent.JOIN
        if request.member_id:
            if members.update(known, request):
                return known, GroupEvent.REJOIN
            return known, GroupEvent.REPEAT_LEADER if members.leads(known) else GroupEvent.REPEAT
        self._interrupt(known, FencedInstance("another process has taken over this instance"))
        assert members.leader is not None
        self._occasion = EventContext(request.can_skip_assignment, members.leader.member_id)
        members.rename(known, new_member_id(request, self._new_member_suffix()))
        members.update(known, request)
        same = members.vote() == self.protocol
        return known, GroupEvent.REPLACE if same else GroupEvent.REPLACE_CHANGED

    def _take_in(self, request: JoinRequest) -> ClassicMember:
        members = self.members
        member_id = request.member_id
        if member_id:
            members.pending.pop(member_id).cancel()
        else:
            members.check_room(joining=self.state is GroupState.PREPARING)
            self._first.newcomer()
            member_id = new_member_id(request, self._new_member_suffix())
            if request.member_id_required and request.instance_id is None:
                delay = request.session_timeout_ms / 1_000
                expire = self._timers.call_later(delay, lambda: self._pending_over(member_id))
                members.pending[member_id] = expire
                raise MemberIdRequired(member_id)
        return members.add(member_id, request)

    def _present(self, member_id: str, generation: int, instance_id: str | None) -> ClassicMember:
        member = self.members.current(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(f"the group is at generation {self.generation}")
        return member

    # -- the machine

    def _fire(self, event: GroupEvent, member: ClassicMember | None) -> None:
        action, self.state = TRANSITIONS[self.state, event]
        self._ACTIONS[action](self, member)

    def _answer(self, promise: Promise[Any], answer: object) -> None:
        self._answers.append((promise, answer))

    def _rest(self) -> None:
        while self._answers:
            promise, answer = self._answers.popleft()
            if isinstance(answer, BrokerError):
                promise.set_error(answer)
            else:
                promise.set_result(answer)

    def _interrupt(self, member: ClassicMember, error: BrokerError) -> None:
        for promise in (member.joining, member.syncing):
            if promise is not None:
                self._answer(promise, error)
        member.joining = member.syncing = None

    # -- time

    def _arm(self, member: ClassicMember, delay_ms: int) -> None:
        member.cancel_timer()
        member.timer = self._timers.call_later(delay_ms / 1_000, lambda: self._send_off(member))

    def _alive(self, member: ClassicMember) -> None:
        if not member.waits:
            self._arm(member, member.session_timeout_ms)

    def _send_off(self, member: ClassicMember) -> None:
        self._depart(member)
        self._rest()

    def _pending_over(self, member_id: str) -> None:
        del self.members.pending[member_id]
        self._settle_join()
        self._rest()

    def _join_over(self) -> None:
        self._fire(GroupEvent.JOIN_OVER, None)
        self._rest()

    def _sync_over(self) -> None:
        self._fire(GroupEvent.SYNC_OVER, None)
        self._rest()

    def _depart(self, member: ClassicMember) -> None:
        self._interrupt(member, UnknownMember("the member has gone"))
        self.members.remove(member)
        self._unsynced.discard(member)
        self._on_departed(self, member.member_id)
        self._fire(GroupEvent.DEPART, member)

    def _settle_join(self) -> None:
        """See whether a rebalance can go on; called after whatever may have let it."""
        if self.state is not GroupState.PREPARING:
            return
        if not self.members:
            self._fire(GroupEvent.NONE_LEFT, None)
        elif not self._first.is_on and self.members.all_joined:
            self._fire(GroupEvent.JOINED, None)

    # -- actions, in the order in which a rebalance meets them

    def _wait_first(self, _: ClassicMember) -> None:
        self._first.begin()

    def _begin(self, _: ClassicMember | None) -> None:
        self._sync_timer.stop()
        self._unsynced.clear()
        for member in self.members:
            if member.syncing is not None:
                self._answer(member.syncing, RebalanceInProgress("the group rebalances again"))
                member.syncing = None
                self._alive(member)
        self._join_timer.set(self.members.rebalance_timeout_ms)
        self._settle_join()

    def _await_join(self, _: ClassicMember) -> None:
        self._first.record_arrival()
        self._settle_join()

    def _end_join(self, _: None) -> None:
        if self._first.goes_on(pending=bool(self.members.pending)):
            return
        absent = [each for each in self.members if each.joining is None]
        for member in absent:
            if member.instance_id is None:
                self.members.remove(member)
        if self.members.elect():
            self._fire(GroupEvent.JOINED, None)
        elif self.members:  # static ones, all away: until they come or their sessions end
            self._join_timer.set(max(self.members.rebalance_timeout_ms, REJOIN_WAIT_MIN_MS))
        else:
            self._fire(GroupEvent.NONE_LEFT, None)

    def _empty(self, _: None) -> None:
        self._join_timer.stop()
        self._first.end()
        self.generation = (self.generation + 1) & GENERATION_MASK
        self.protocol = ""
        self._on_emptied(self)

    def _complete(self, _: None) -> None:
        self._join_timer.stop()
        leader = self.members.leader
        assert leader is not None, "a rebalance completed without a member"
        assert leader.joining is not None, "a rebalance completed without its leader"
        self.generation = (self.generation + 1) & GENERATION_MASK
        self.protocol = self.members.vote()
        for member in self.members:
            if member.joining is not None:
                self._unsynced.add(member)
                self._answer_join(member)
        self._sync_timer.set(max(self.members.rebalance_timeout_ms, SYNC_WAIT_MIN_MS))

    def _answer_join(self, member: ClassicMember) -> None:
        leader = self.members.leader
        assert leader is not None
        described = self.members.described(self.protocol) if leader is member else ()
        self._joined(member, leader.member_id, described)

    def _answer_replaced(self, member: ClassicMember) -> None:
        """Let a static member that came back go on with the assignment that it had.

        The leader must not assign again. KIP-814 clients get skip_assignment; another one gets
        its former id as the leader's, so it acts as a follower and requests its assignment.
        """
        self._on_assigned(self)
        if not self._occasion.skip:
            self._joined(member, self._occasion.leader_before)
            return
        leader = self.members.leader
        assert leader is not None
        described = self.members.described(self.protocol) if leader is member else ()
        self._joined(member, leader.member_id, described, skip_assignment=leader is member)

    def _joined(
        self,
        member: ClassicMember,
        leader_id: str,
        described: tuple[JoinResultMember, ...] = (),
        *,
        skip_assignment: bool = False,
    ) -> None:
        promise, member.joining = member.joining, None
        assert promise is not None
        joined = JoinResult(
            self.generation,
            self.protocol_type,
            self.protocol,
            leader_id,
            member.member_id,
            described,
            skip_assignment,
        )
        self._answer(promise, joined)
        member.is_new = False
        self._alive(member)

    def _await_assignment(self, member: ClassicMember) -> None:
        if member.syncing is not None:
            self._answer(member.syncing, RebalanceInProgress("the member sent a newer request"))
        member.syncing = self._occasion.sync_promise
        member.cancel_timer()
        self._synced(member)

    def _assign(self, leader: ClassicMember) -> None:
        given = self._occasion.assignments
        for member in self.members:
            self.members.set_assignment(member, given.get(member.member_id, b""))
            if member.syncing is not None:
                self._give(member, member.syncing)
        self._answer_assignment(leader)
        self._on_assigned(self)

    def _answer_assignment(self, member: ClassicMember) -> None:
        assert self._occasion.sync_promise is not None
        self._give(member, self._occasion.sync_promise)
        self._synced(member)

    def _give(self, member: ClassicMember, promise: Promise[SyncResult]) -> None:
        member.syncing = None
        self._answer(promise, SyncResult(self.protocol_type, self.protocol, member.assignment))
        self._alive(member)

    def _synced(self, member: ClassicMember) -> None:
        self._unsynced.discard(member)
        if not self._unsynced:
            self._sync_timer.stop()

    def _drop_unsynced(self, _: None) -> None:
        for member in self._unsynced:
            self.members.remove(member)
        self._begin(None)

    def _allow(self, member: ClassicMember) -> None:
        self._alive(member)

    def _allow_manual(self, _: None) -> None:
        """Allow a commit without a member while the group is empty."""

    def _refuse_manual(self, _: None) -> None:
        raise UnknownMember("the group has members, and only they move its positions")

    def _refuse_rebalance(self, member: ClassicMember) -> None:
        self._alive(member)
        raise RebalanceInProgress("the group rebalances: join again")

    def _close(self, _: None) -> None:
        self._join_timer.stop()
        self._first.end()
        self._sync_timer.stop()
        for handle in self.members.pending.values():
            handle.cancel()
        self.members.pending.clear()
        for member in self.members:
            member.cancel_timer()

    def _await_life(self, _: None) -> None:
        for member in self.members:
            self._alive(member)

    _ACTIONS: ClassVar[Mapping[GroupAction, Callable[[ClassicGroup, Any], None]]] = {
        GroupAction.WAIT_FIRST: _wait_first,
        GroupAction.ALLOW_MANUAL: _allow_manual,
        GroupAction.CLOSE: _close,
        GroupAction.AWAIT_JOIN: _await_join,
        GroupAction.DEPARTED: lambda self, _: self._settle_join(),
        GroupAction.REFUSE_REBALANCE: _refuse_rebalance,
        GroupAction.ALLOW: _allow,
        GroupAction.REFUSE_MANUAL: _refuse_manual,
        GroupAction.END_JOIN: _end_join,
        GroupAction.COMPLETE: _complete,
        GroupAction.EMPTY: _empty,
        GroupAction.BEGIN: _begin,
        GroupAction.ANSWER_JOIN: _answer_join,
        GroupAction.ASSIGN: _assign,
        GroupAction.AWAIT_ASSIGNMENT: _await_assignment,
        GroupAction.DROP_UNSYNCED: _drop_unsynced,
        GroupAction.ANSWER_REPLACED: _answer_replaced,
        GroupAction.ANSWER_ASSIGNMENT: _answer_assignment,
        GroupAction.AWAIT_LIFE: _await_life,
    }
