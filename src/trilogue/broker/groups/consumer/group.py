"""One consumer group: members report subscriptions and partitions, the broker assigns.

The group has an epoch, one more with every change of its members, of what they want or of their
topics. For each epoch the assignor computes a target, the final assignment of each member, at the
next heartbeat of any member. Members walk towards it at their own pace, one heartbeat after another
(`members.reconcile`): no member waits for the others, and only what changes hands stops.

States, derived and never stored:

    Empty         no members
    Assigning     the group's epoch is ahead of the target's
    Reconciling   some member is not where the target wants it
    Stable        everyone is

Members go when their session ends (no heartbeat), when they do not revoke partitions in time
(the rebalance timeout), or when they leave. A static member that leaves for a while
keeps what it has until its session ends. Who is a member, at which epoch and with which partitions,
is stored (records.py): after a restart the group goes on with the next epoch, whose target leaves
everyone what it has.

Members may also speak as classic ones do (mixed_group.py). KIP-848; details as Kafka
4.3.1 answers them, measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from trilogue.broker.errors import (
    FencedInstance,
    IllegalGeneration,
    InvalidRequest,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from trilogue.broker.groups.consumer.assignors import (
    ASSIGNORS,
    DEFAULT_ASSIGNOR,
    NO_PARTITIONS,
    MemberSpec,
    PartitionIndexes,
    TargetAssignment,
)
from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.consumer.members import ConsumerGroupMember, ConsumerGroupMembers
from trilogue.broker.groups.consumer.patterns import compile_pattern
from trilogue.broker.groups.consumer.subscribed_topics import (
    NO_TOPICS,
    TopicSubscription,
)
from trilogue.broker.groups.group import CONSUMER, CONSUMER_PROTOCOL
from trilogue.broker.groups.reconciliation import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
    MemberTimer,
)
from trilogue.broker.groups.reconciling_group import ReconcilingGroup
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

SESSION_KEY, HEARTBEAT_KEY = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def all_topics_visible(_: TopicName) -> bool:
    """Allow a member to see every topic."""
    return True


class ConsumerGroupSettings(msgspec.Struct, frozen=True):
    """Habits and bounds of consumer groups; Kafka's defaults, but for the bounds (there: none)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 1_000
    topics_max: int = 10_000  # that one member may name
    total_max: int = 5_000_000  # names, partitions and (20 each) members, of all groups together
    upgrade: bool = True  # a classic group with members may become a consumer group
    downgrade: bool = True  # and the other way round, when only classic members are left


class Heartbeat(msgspec.Struct, frozen=True):
    """A ConsumerGroupHeartbeat request. None: nothing new."""

    group: str
    member_id: str
    epoch: int  # JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, or the member's
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[TopicName] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: PartitionIndexes | None = None
    client_id: str = ""
    client_host: str = ""
    creator: str = ""  # the principal, if it has a name
    may_see: Callable[[TopicName], bool] = all_topics_visible

    @property
    def is_full(self) -> bool:
        """Whether it has all fields that a member can send: then the response has all, too."""
        has_topics = self.topics is not None or self.pattern is not None
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms >= 0 and has_topics and self.owned is not None
        )


class HeartbeatResponse(NamedTuple):
    """The answer. `assigned` is None when it is as it was."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: PartitionIndexes | None = None


class ConsumerGroup(ReconcilingGroup[ConsumerGroupMember]):
    """A group by its name. See the module for the rules."""

    session_key, heartbeat_key = SESSION_KEY, HEARTBEAT_KEY
    members: ConsumerGroupMembers
    target: TargetAssignment

    def __init__(
        self, name: str, settings: ConsumerGroupSettings, context: ConsumerGroupContext
    ) -> None:
        super().__init__(name, settings, context, ConsumerGroupMembers())
        self.protocol_type = CONSUMER_PROTOCOL
        self.settings = settings

    # -- the interface (broker/groups/group.py)

    @property
    def type(self) -> str:
        """The broker assigns."""
        return CONSUMER

    @property
    def assignor(self) -> str:
        """The assignor that most members want, of those who want one."""
        votes = Counter(each.assignor for each in self.members if each.assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    def has_epoch(self, member_id: str) -> bool:
        """Whether a member commits with its epoch; a classic one has a generation."""
        member = self.members.find_member(member_id)
        return member is not None and member.classic is None

    def check_member_epoch(self, member: ConsumerGroupMember, epoch: int) -> None:
        """Refuse an epoch that is not the member's."""
        if member.classic is not None and epoch != member.epoch:
            raise IllegalGeneration(f"the member is at epoch {member.epoch}, not {epoch}")
        super().check_member_epoch(member, epoch)

    # -- requests of members

    def consumer_heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        """Process a heartbeat and return what the member may have now."""
        if heartbeat.epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
            return self._leave(heartbeat)
        member = self._admit_member(heartbeat)
        had = member.assigned
        self.apply_heartbeat(member, heartbeat)
        self.refresh(heartbeat.may_see)
        self.step(member, heartbeat.owned)
        self.start_session_timer(member)
        self.store_member(member)
        return HeartbeatResponse(
            member.member_id,
            member.epoch,
            self.next_interval_ms(member),
            member.assigned if heartbeat.is_full or member.assigned != had else None,
        )

    def static(self, member_id: str, instance_id: str) -> ConsumerGroupMember:
        """Return the member of this instance, if it still goes by this id."""
        member = self.members.static(instance_id)
        if member is None:
            raise UnknownMember(f"no member stands for instance {instance_id}")
        if member.member_id != member_id:
            raise FencedInstance(
                f"member {member_id} of instance {instance_id}"
                f" was fenced by member {member.member_id}"
            )
        return member

    def _admit_member(self, heartbeat: Heartbeat) -> ConsumerGroupMember:
        """Find who beats, take in who joins, or refuse who may not; nothing is changed then."""
        joins = heartbeat.epoch == JOIN_EPOCH
        self.check_room(heartbeat.member_id)
        self.subscribed.check_room((heartbeat.topics or frozenset(), heartbeat.pattern or ""))
        if heartbeat.instance_id is None:
            member = self.members.find_member(heartbeat.member_id)
            if member is None and joins:
                return self.add_member(ConsumerGroupMember(heartbeat.member_id))
            member = self.require_member(heartbeat.member_id)
            member.check_epoch(heartbeat.epoch, heartbeat.owned)
            return member
        former = self.members.static(heartbeat.instance_id)
        if not joins:
            member = self.static(heartbeat.member_id, heartbeat.instance_id)
            member.check_epoch(heartbeat.epoch, heartbeat.owned)
            return member
        if former is None:
            member = self.members.find_member(heartbeat.member_id)
            return member or self.add_member(
                ConsumerGroupMember(heartbeat.member_id, heartbeat.instance_id)
            )
        if former.epoch != STATIC_LEAVE_EPOCH and former.classic is None:
            raise UnreleasedInstance(
                f"instance {heartbeat.instance_id} belongs to member {former.member_id}"
            )
        other = self.members.find_member(heartbeat.member_id)
        if other is not None and other is not former:
            raise InvalidRequest(f"member id {heartbeat.member_id} is another member's")
        return self.replace(former, heartbeat.member_id)

    def add_member(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Let a new member in; it has nothing yet."""
        self.members.add(member)
        self.report_size()
        return member

    def replace(self, former: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Let a static member go on under another id, with all that it had, from epoch 0."""
        target = self.target.pop(former.member_id, NO_PARTITIONS)
        self.members.remove(former)
        self.on_removed(former)
        former.member_id = member_id
        former.epoch = former.previous_epoch = JOIN_EPOCH
        self.members.add(former)
        self.target[member_id] = target
        return former

    def apply_heartbeat(self, member: ConsumerGroupMember, heartbeat: Heartbeat) -> None:
        """Take over a member's fields; the group's epoch grows when its subscription changes."""
        before = member.subscription
        if heartbeat.rack is not None:
            member.rack = heartbeat.rack
        if heartbeat.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = heartbeat.rebalance_timeout_ms
        if heartbeat.assignor is not None:
            member.assignor = heartbeat.assignor
        if heartbeat.topics is not None:
            member.topics = self.subscribed.share(heartbeat.topics)
        if heartbeat.pattern is not None:
            member.pattern = heartbeat.pattern
        member.client_id, member.client_host = heartbeat.client_id, heartbeat.client_host
        if member.classic is not None:
            member.cancel_timers()
            member.classic = None
        self.change_subscription(before, member)

    def change_subscription(self, before: TopicSubscription, member: ConsumerGroupMember) -> None:
        """Count the topics that a member wants now."""
        if before != member.subscription:
            self.subscribed.change(before, member.subscription)
            self.report_size()
            self.bump()

    # -- epochs and targets

    def refresh(self, may_see: Callable[[TopicName], bool] = all_topics_visible) -> None:
        """Look whether topics have changed, and make a target for the group's epoch.

        What that takes in steps beyond the first ones goes on later: until then members stay where
        they are, and who joins has nothing yet.
        """
        if self.subscribed.is_stale() or self.epoch > self.target_epoch:
            self.start_computing(self._compute_target(may_see))

    def _compute_target(self, may_see: Callable[[TopicName], bool]) -> Steps[None]:
        if self.subscribed.is_stale():
            changed = yield from self.subscribed.refresh_view(may_see)
            if changed and self.epoch == self.target_epoch:
                self.bump()
        if self.epoch == self.target_epoch:
            return
        epoch, members, specs = self.epoch, list(self.members), []
        ids: dict[TopicSubscription, frozenset[bytes]] = {}
        for member in members:
            subscription = member.subscription
            if subscription not in ids:
                ids[subscription] = yield from self.subscribed.ids(subscription)
            had = self.target.get(member.member_id, NO_PARTITIONS)
            specs.append(MemberSpec(member.member_id, ids[subscription], member.instance_id, had))
        counts = {seen.topic_id: seen.partition_count for seen in self.subscribed.view.values()}
        made = yield from ASSIGNORS[self.assignor](specs, counts)
        self.target = {
            member.member_id: made[spec.member_id]  # it may go by another id by now
            for member, spec in zip(members, specs, strict=True)
            if self.members.find_member(member.member_id) is member
        }
        self.target_epoch = epoch

    def limit_revocation(
        self, member: ConsumerGroupMember, before: tuple[MemberState, int]
    ) -> None:
        """Limit the time in which a member gives up partitions; a classic one joins again."""
        if member.classic is None:
            super().limit_revocation(member, before)

    # -- going

    def _leave(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        if heartbeat.instance_id is None:
            self.fence(self.require_member(heartbeat.member_id))
            return HeartbeatResponse(heartbeat.member_id, heartbeat.epoch)
        member = self.static(heartbeat.member_id, heartbeat.instance_id)
        if heartbeat.epoch == STATIC_LEAVE_EPOCH:
            self.leave_temporarily(member)
        else:
            self.fence(member)
        return HeartbeatResponse(heartbeat.member_id, heartbeat.epoch)

    def leave_temporarily(self, member: ConsumerGroupMember) -> None:
        """Keep a static member's place; what it was giving up is free."""
        before = member.held
        member.revoking = NO_PARTITIONS
        member.state = MemberState.STABLE
        member.epoch = STATIC_LEAVE_EPOCH
        self.members.owners.update(member.member_id, before, member.held)
        member.stop(MemberTimer.REBALANCE)
        self.store_member(member)

    def fence(self, member: ConsumerGroupMember) -> None:
        """Let a member go, by its will or not."""
        if self.members.find_member(member.member_id) is member:
            self.drop(member)

    def drop(self, member: ConsumerGroupMember) -> None:
        """Let a member go; this group stays."""
        self.members.remove(member)
        self.target.pop(member.member_id, None)
        self.subscribed.change(member.subscription, NO_TOPICS)
        self.bump()
        self.on_removed(member)
        if self.is_empty:
            self.stop_computing()
            self.subscribed.forget()
            self.on_empty()
        self.report_size()

    def on_empty(self) -> None:
        """Hear that the last member has gone."""

    # -- members through restarts

    def store_member(self, member: ConsumerGroupMember) -> None:
        """Store a member that may have changed, and the group's epoch."""

    def on_removed(self, member: ConsumerGroupMember) -> None:
        """Hear that a member has gone, or goes by another id."""

    def restore(self, epoch: int, members: Iterable[ConsumerGroupMember]) -> None:
        """Go on with the members that are stored, in a group that is new."""
        restored = list(members)
        for member in restored:
            member.topics = self.subscribed.share(member.topics)
            self.subscribed.change(NO_TOPICS, member.subscription)
        self.restore_members(epoch, restored, lambda member: member.held)

    def session_timeout_ms(self, member: ConsumerGroupMember) -> int:
        """Return how long a member may be silent; a classic one has its own time."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return super().session_timeout_ms(member)


def check_heartbeat(heartbeat: Heartbeat, settings: ConsumerGroupSettings) -> None:
    """Refuse requests that are invalid in every group."""
    if heartbeat.assignor is not None and heartbeat.assignor not in ASSIGNORS:
        names = ", ".join(ASSIGNORS)
        raise UnsupportedAssignor(
            f"{heartbeat.assignor} is not an assignor here; there are: {names}"
        )
    if heartbeat.pattern:
        compile_pattern(heartbeat.pattern)
    if heartbeat.topics is not None and len(heartbeat.topics) > settings.topics_max:
        raise InvalidRequest(f"a member may name {settings.topics_max} topics")
