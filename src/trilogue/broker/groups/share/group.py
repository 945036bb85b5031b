"""One share group: its members, the topics that they subscribe to, and which partitions they read.

Members share partitions, so nothing is revoked before another member has it: when the subscriptions
or topics of the group change its epoch grows, the broker computes a new assignment, and each member
gets its part with its next heartbeat. Members go when their session ends or when they leave. What a
member had acquired is the concern of its share sessions and of the locks (partition.py).

The group's epoch and its members are stored (records.py); the epoch also without members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from trilogue.broker.errors import (
    BrokerError,
    GroupMaxSize,
    InvalidRequest,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.classic.initial_delay import InitialDelay
from trilogue.broker.groups.classic.members import ResettableTimer
from trilogue.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionIndexes
from trilogue.broker.groups.consumer.context import MEMBER_WEIGHT, ConsumerGroupContext
from trilogue.broker.groups.consumer.steps import SteppedTask
from trilogue.broker.groups.consumer.subscribed_topics import SubscribedTopics, TopicSubscription
from trilogue.broker.groups.group import SHARE
from trilogue.broker.groups.membership import GROUP
from trilogue.broker.groups.no_classic_members import NoClassicMembers
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, LEAVE_EPOCH
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.groups.share.assignor import assign_partitions
from trilogue.broker.groups.share.members import (
    ShareGroupMember,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from trilogue.broker.groups.share.records import encode_group, encode_member
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

EMPTY, STABLE = "Empty", "Stable"
SESSION_KEY, HEARTBEAT_KEY = "share.session.timeout.ms", "share.heartbeat.interval.ms"


class ShareGroupSettings(msgspec.Struct, frozen=True):
    """Habits and bounds of share groups; Kafka's defaults, but for `topics_max` (there: none)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 200
    topics_max: int = 10_000  # that one member may name
    delivery_count_limit: int = 5
    record_lock_ms: int = 30_000
    record_lock_min_ms: int = 15_000  # that a group may set
    record_locks_max: int = 2_000
    sessions_max: int = 2_000


class ShareGroup(NoClassicMembers):
    """A group by its name. See the module."""

    protocol_type = SHARE
    type = SHARE
    kind = "share group"

    def __init__(
        self,
        name: str,
        settings: ShareGroupSettings,
        groups: GroupRegistry,
        context: ConsumerGroupContext,
        get_override: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.epoch = 0
        self.target_epoch = 0
        self.subscribed = SubscribedTopics(context)
        self._groups = groups
        self._context = context
        self._get_override = get_override
        self._members: dict[str, ShareGroupMember] = {}
        self.target: Mapping[str, PartitionIndexes] = {}
        self._computation: SteppedTask | None = None
        self._reported_size = (0, 0)
        alarm = ResettableTimer(context.timers, self._end_delay)
        self._delay = InitialDelay(name, groups.settings, groups.initial_delays, alarm)

    # -- the interface (broker/groups/group.py)

    @property
    def members(self) -> Collection[ShareGroupMember]:
        """The members; a view, not to be kept."""
        return self._members.values()

    @property
    def state_name(self) -> str:
        """The state as tools show it."""
        return STABLE if self._members else EMPTY

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self._members

    def subscribes_to(self, topic: TopicName) -> bool:
        """Whether some member reads the topic."""
        return self.subscribed.includes(topic)

    def reading(self) -> Callable[[TopicName], bool]:
        """Whether some member reads a topic, for many topics."""
        return self.subscribed.includes

    def forget(self) -> None:
        """End an empty group."""
        assert self.is_empty, "a group with members was forgotten"

    def release(self, error: BrokerError) -> None:  # noqa: ARG002 - no request waits here
        """End here as it is: another node goes on with its members, from the rows."""
        self._stop_assigning()
        for member in self._members.values():
            _stop_timer(member)
        self._members.clear()
        self.subscribed.clear()
        self._report_size()

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Refuse a classic member; an administrator may remove a member of its id."""
        if instance_id is not None or member_id not in self._members:
            raise self.unknown_classic(member_id)
        self.remove(self._members[member_id])

    def check_commit(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Refuse: a share group commits no offsets."""
        del member_id, generation, instance_id
        raise UnknownGroup(f"group {self.name} is a share group, which has no committed offsets")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse: a share group has no committed offsets."""
        self.check_commit(member_id or "", epoch)

    # -- requests of members

    def share_heartbeat(self, heartbeat: ShareHeartbeat) -> ShareHeartbeatResponse:
        """Process a heartbeat and return what the member reads now."""
        if heartbeat.epoch == LEAVE_EPOCH:
            self.remove(self.require_member(heartbeat.member_id))
            return ShareHeartbeatResponse(heartbeat.member_id, LEAVE_EPOCH)
        joins = heartbeat.epoch == JOIN_EPOCH
        member = self._admit_member(heartbeat) if joins else self._find_member(heartbeat)
        had = member.assigned
        self._apply_heartbeat(member, heartbeat)
        self.refresh()
        self._step(member)
        self.start_session_timer(member)
        self._store_member(member)
        return ShareHeartbeatResponse(
            member.member_id,
            member.epoch,
            self._interval_ms(member),
            member.assigned if joins or member.assigned != had else None,
        )

    def require_member(self, member_id: str) -> ShareGroupMember:
        """Return the member of this id; raises UnknownMember."""
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(f"member {member_id} is not a member of group {self.name}")
        return member

    def find_member(self, member_id: str) -> ShareGroupMember | None:
        """Return the member of this id, if there is one."""
        return self._members.get(member_id)

    def remove(self, member: ShareGroupMember) -> None:
        """Let a member go, by its will or not."""
        if self._members.get(member.member_id) is not member:
            return
        del self._members[member.member_id]
        _stop_timer(member)
        self.subscribed.change(_subscription(member.topics), _subscription(frozenset()))
        self.epoch += 1
        self._groups.membership.store(
            self.name, {member.member_id: None, GROUP: encode_group(self.epoch)}
        )
        if self.is_empty:
            self._stop_assigning()
            self.target = {}
            self.subscribed.forget()
            self._groups.on_emptied(self)
            self.store_epoch()
        self._report_size()

    def restore(self, epoch: int, members: Iterable[ShareGroupMember]) -> None:
        """Go on with the members that are stored, in a group that is new."""
        for member in members:
            member.topics = self.subscribed.share(member.topics)
            self._members[member.member_id] = member
            self.subscribed.change(_subscription(frozenset()), _subscription(member.topics))
            self.start_session_timer(member)
            epoch = max(epoch, member.epoch)
        self.target_epoch = epoch
        self.epoch = epoch + 1 if self._members else epoch
        self._report_size()

    def store_epoch(self) -> None:
        """Store the epoch of a group without members."""
        self._groups.membership.store(self.name, {GROUP: encode_group(self.epoch)})

    def start_session_timer(self, member: ShareGroupMember) -> None:
        """Wait for the next heartbeat."""
        _stop_timer(member)
        timeout_ms = self._get_override(SESSION_KEY) or self.settings.session_timeout_ms
        member.timer = self._context.timers.call_later(
            timeout_ms / 1_000, lambda: self.remove(member)
        )

    # -- inside

    def _admit_member(self, heartbeat: ShareHeartbeat) -> ShareGroupMember:
        if heartbeat.topics is not None:
            if len(heartbeat.topics) > self.settings.topics_max:
                raise InvalidRequest(f"a member may name {self.settings.topics_max} topics")
            self.subscribed.check_room(_subscription(heartbeat.topics))
        member = self._members.get(heartbeat.member_id)
        if member is not None:
            return member
        if len(self._members) >= self.settings.size_max:
            raise GroupMaxSize(f"a share group has {self.settings.size_max} members at most")
        self._context.load.check_room(MEMBER_WEIGHT)
        self._delay.newcomer()
        if self._delay.is_on:
            self._delay.record_arrival()
        elif self.is_empty and self._groups.settings.initial_delay_ms:
            self._delay.begin()
        member = self._members[heartbeat.member_id] = ShareGroupMember(heartbeat.member_id)
        self.epoch += 1
        return member

    def _find_member(self, heartbeat: ShareHeartbeat) -> ShareGroupMember:
        member = self.require_member(heartbeat.member_id)
        member.check_epoch(heartbeat.epoch)
        if heartbeat.topics is not None:
            self._admit_member(heartbeat)
        return member

    def _apply_heartbeat(self, member: ShareGroupMember, heartbeat: ShareHeartbeat) -> None:
        if heartbeat.rack is not None:
            member.rack = heartbeat.rack
        member.client_id, member.client_host = heartbeat.client_id, heartbeat.client_host
        if heartbeat.topics is not None and heartbeat.topics != member.topics:
            before, member.topics = member.topics, self.subscribed.share(heartbeat.topics)
            self.subscribed.change(_subscription(before), _subscription(member.topics))
            self.epoch += 1
        self._report_size()

    def refresh(self) -> None:
        """Look whether topics have changed, and compute the assignment of the group's epoch.

        What that takes in steps beyond the first ones goes on later; until then members stay where
        they are.
        """
        if self._delay.is_on or (self._computation is not None and not self._computation.ended):
            return
        if self.subscribed.is_stale() or self.epoch > self.target_epoch:
            self._computation = self._context.turns.start(self._compute_target(), lambda _: None)

    def _end_delay(self) -> None:
        """Wait for further first members, or assign partitions to those that have come."""
        if self._delay.is_on and not self._delay.goes_on(pending=False):
            self.refresh()

    def _stop_assigning(self) -> None:
        self._delay.end()
        if self._computation is not None:
            self._computation.stop()

    def _compute_target(self) -> Steps[None]:
        if self.subscribed.is_stale():
            changed = yield from self.subscribed.refresh_view(lambda _: True)
            if changed and self.epoch == self.target_epoch:
                self.epoch += 1
        if self.epoch == self.target_epoch:
            return
        epoch, wanted = self.epoch, []
        ids: dict[frozenset[TopicName], frozenset[bytes]] = {}
        for member in list(self._members.values()):
            if member.topics not in ids:
                ids[member.topics] = yield from self.subscribed.ids(_subscription(member.topics))
            wanted.append((member.member_id, ids[member.topics]))
        counts = {seen.topic_id: seen.partition_count for seen in self.subscribed.view.values()}
        self.target = yield from assign_partitions(wanted, counts)
        self.target_epoch = epoch
        self._report_size()
        self._context.on_target(self.name)

    def _step(self, member: ShareGroupMember) -> None:
        """Give a member its part of the assignment."""
        if member.member_id in self.target:
            member.assigned = self.target[member.member_id]
            member.set_epoch(self.target_epoch)
        elif member.epoch == JOIN_EPOCH:  # the assignment is being computed
            member.set_epoch(max(1, self.target_epoch))
            member.assigned = NO_PARTITIONS

    def _interval_ms(self, member: ShareGroupMember) -> int:
        """Return the interval to a member's next heartbeat: short, while it waits for its part."""
        usual_ms = self._get_override(HEARTBEAT_KEY) or self.settings.heartbeat_interval_ms
        if member.epoch == self.epoch and not self._delay.is_on:
            return usual_ms
        return self._context.load.interval_ms(usual_ms, 0, waits=True)

    def _store_member(self, member: ShareGroupMember) -> None:
        rows = {GROUP: encode_group(self.epoch), member.member_id: encode_member(member)}
        self._groups.membership.store(self.name, rows)

    def _report_size(self) -> None:
        members = len(self._members)
        weight = self.subscribed.size + members * MEMBER_WEIGHT
        self._context.load.change(weight - self._reported_size[0], members - self._reported_size[1])
        self._reported_size = weight, members


def _subscription(topics: frozenset[TopicName]) -> TopicSubscription:
    return topics, ""


def _stop_timer(member: ShareGroupMember) -> None:
    if member.timer is not None:
        member.timer.cancel()
        member.timer = None
