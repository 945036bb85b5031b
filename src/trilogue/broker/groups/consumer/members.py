"""A member of a consumer group, and its way from its assignment to its target (KIP-848).

A member moves by heartbeats. Each one brings it one step nearer to the group's target, and the
response contains what it may have at this moment:

                    ┌────────────────────────────────────────────────┐
                    ▼                                                │ all it gave up is gone
      SETTLED ──► (target changed) ──► must give up some? ── yes ──► GIVING_UP
                    │                                                (epoch stays, timer runs)
                    │ no
                    ▼
             some still with others? ── yes ──► AWAITING (has the rest, epoch = target's)
                    │ no                              │ others gave them up
                    ▼                                 ▼
                 SETTLED (has all, epoch = target's) ◄┘

A partition is never given to one member before another has reported its release (or is gone):
`PartitionOwners` knows which member has each.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum, auto, unique
from itertools import count, repeat

import msgspec

from trilogue.broker.errors import FencedMemberEpoch
from trilogue.broker.groups.classic.members import TimerHandle
from trilogue.broker.groups.consumer.assignors import (
    NO_PARTITIONS,
    PartitionIndexes,
    intersect,
    subtract,
    unite,
)
from trilogue.broker.groups.consumer.subscribed_topics import TopicSubscription
from trilogue.broker.names import TopicName

JOIN_EPOCH = 0  # a member's epoch before it has one
LEAVE_EPOCH = -1  # sent by a member that leaves
STATIC_LEAVE_EPOCH = -2  # sent by a static member that will come back; kept as its epoch meanwhile


@unique
class MemberState(Enum):
    """How far a member is."""

    STABLE = auto()  # it has its target, as of its epoch
    UNREVOKED = auto()  # it still has partitions that are not in its target
    UNRELEASED = auto()  # others still have partitions of its target


@unique
class MemberTimer(Enum):
    """What is waited for, for a while; when it does not come, the member goes."""

    SESSION = auto()  # any sign of life
    REBALANCE = auto()  # a revocation; of a classic member: that it joins again
    SYNC = auto()  # of a classic member that has joined


class ClassicMemberMetadata(msgspec.Struct, frozen=True):
    """The JoinGroup fields of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol(self) -> str:
        """The protocol of its responses: its preferred one."""
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        """The metadata of that protocol."""
        return self.protocols[0][1]


class ConsumerGroupMember(msgspec.Struct):
    """One member: who it is, what it wants, what it has."""

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: frozenset[TopicName] = frozenset()
    pattern: str = ""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionIndexes = msgspec.field(default_factory=dict)
    revoking: PartitionIndexes = msgspec.field(default_factory=dict)
    assignment_epochs: list[tuple[int, PartitionIndexes]] = msgspec.field(default_factory=list)

    waits: dict[MemberTimer, TimerHandle] = msgspec.field(default_factory=dict)
    heartbeat_epoch: int = -1  # the group's, when it beat last
    heartbeats: int = 0  # since that epoch began
    stored: tuple[object, ...] = ()  # what its row was made of

    @property
    def subscription(self) -> TopicSubscription:
        """The topics it wants."""
        return self.topics, self.pattern

    @property
    def held(self) -> PartitionIndexes:
        """All partitions that no other member may have."""
        return unite(self.assigned, self.revoking)

    @property
    def stored_fields(self) -> tuple[object, ...]:
        """What its row is made of; quick to compare while nothing has changed."""
        return (
            self.member_id,
            self.instance_id,
            self.rack,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topics,
            self.pattern,
            self.assignor,
            self.classic,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.revoking,
        )

    def is_stable_at(self, target_epoch: int) -> bool:
        """Whether there is nothing to do for it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, topic_id: bytes, index: int) -> int | None:
        """Return the epoch at which the member got a partition that it still owns (KIP-1251)."""
        for epoch, partitions in self.assignment_epochs:
            if index in partitions.get(topic_id, ()):
                return epoch
        return None

    def record_assignment(self, before: PartitionIndexes) -> None:
        """Note the present epoch for the partitions that were not owned before."""
        after = self.held
        if before is after:
            return
        lost, gained = subtract(before, after), subtract(after, before)
        if lost:
            kept = ((epoch, subtract(some, lost)) for epoch, some in self.assignment_epochs)
            self.assignment_epochs = [(epoch, some) for epoch, some in kept if some]
        if gained:
            self.assignment_epochs.append((self.epoch, gained))

    def check_epoch(self, epoch: int, owned: PartitionIndexes | None) -> None:
        """Refuse a member that is ahead, or behind by more than one lost answer."""
        if epoch in {self.epoch, JOIN_EPOCH}:
            return
        known = self.epoch
        if epoch > known:
            raise FencedMemberEpoch(
                f"the request has epoch {epoch}, the member {known}:"
                " it must give up all its partitions and join again"
            )
        if epoch != self.previous_epoch or owned is None or subtract(owned, self.assigned):
            raise FencedMemberEpoch(
                f"the request has epoch {epoch}, the member {known} by now:"
                " it must give up all its partitions and join again"
            )

    def wait(self, what: MemberTimer, timer: TimerHandle) -> None:
        """Wait for something until this timer fires."""
        self.stop(what)
        self.waits[what] = timer

    def stop(self, what: MemberTimer) -> None:
        """Wait no more for something."""
        timer = self.waits.pop(what, None)
        if timer is not None:
            timer.cancel()

    def cancel_timers(self) -> None:
        """Wait for nothing any more."""
        for what in MemberTimer:
            self.stop(what)


class PartitionOwners:
    """Which member has each partition; at most one does.

    Four bytes a partition: there are groups with a hundred thousand, and many groups. Members have
    numbers for that, which are never used again.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next = count(1)
        self._topics: dict[bytes, array[int]] = {}  # topic id -> numbers, by partition; 0 is free
        self._held: Counter[bytes] = Counter()  # topic id -> partitions that are not free

    def free(self, topic_id: bytes, indexes: Iterable[int], member_id: str) -> frozenset[int]:
        """Return the partitions that a member may have: free, or its own."""
        owners = self._topics.get(topic_id, NO_OWNERS)
        mine, end = {0, self._numbers.get(member_id, 0)}, len(owners)
        return frozenset(each for each in indexes if each >= end or owners[each] in mine)

    def update(self, member_id: str, before: PartitionIndexes, after: PartitionIndexes) -> None:
        """Note what a member holds now."""
        if before is after:
            return
        number = self._numbers.get(member_id) or next(self._next)
        for topic_id, indexes in subtract(before, after).items():
            owners = self._topics[topic_id]
            for index in indexes:
                assert owners[index] == number, "the partition belongs to another member"
                owners[index] = 0
            self._held[topic_id] -= len(indexes)
            if not self._held[topic_id]:
                del self._held[topic_id], self._topics[topic_id]
        for topic_id, indexes in subtract(after, before).items():
            owners = self._topics.setdefault(topic_id, array("I"))
            owners.extend(repeat(0, max(indexes) + 1 - len(owners)))
            for index in indexes:
                assert not owners[index], "a partition was given to a second member"
                owners[index] = number
            self._held[topic_id] += len(indexes)
        if after:
            self._numbers[member_id] = number
        else:
            self._numbers.pop(member_id, None)


NO_OWNERS: array[int] = array("I")


def reconcile(
    member: ConsumerGroupMember,
    target: PartitionIndexes,
    target_epoch: int,
    owners: PartitionOwners,
    owned: PartitionIndexes | None,
) -> None:
    """Bring a member as near to its target as the others allow.

    `owned` is the member's own list; None when it sends none, and then it is not taken to have let
    anything go.
    """
    if member.is_stable_at(target_epoch):
        return
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if owned is None or intersect(owned, member.revoking):
            return
        epoch += 1  # an epoch of its own between the one it leaves and the target's
    before = member.held
    keeps = intersect(member.assigned, target)
    revoking = subtract(member.assigned, target)
    if revoking and (owned is None or intersect(owned, revoking)):
        member.state, member.revoking = MemberState.UNREVOKED, revoking
        _set_epoch(member, epoch)
        member.assigned = keeps
    else:
        wanted = subtract(target, keeps)
        free = _free(member, wanted, owners)
        all_free = all(len(free.get(each, ())) == len(wanted[each]) for each in wanted)
        member.state = MemberState.STABLE if all_free else MemberState.UNRELEASED
        member.revoking = NO_PARTITIONS
        _set_epoch(member, target_epoch)
        member.assigned = target if all_free else unite(keeps, free)  # one copy of it, mostly
    member.record_assignment(before)
    owners.update(member.member_id, before, member.held)


def awaits_release(
    member: ConsumerGroupMember, target: PartitionIndexes, owners: PartitionOwners
) -> bool:
    """Whether other members still have a part of a member's target."""
    wanted = subtract(target, member.assigned)
    return wanted != _free(member, wanted, owners)


def _free(
    member: ConsumerGroupMember, wanted: PartitionIndexes, owners: PartitionOwners
) -> PartitionIndexes:
    found = {each: owners.free(each, wanted[each], member.member_id) for each in wanted}
    return {each: indexes for each, indexes in found.items() if indexes}


def _set_epoch(member: ConsumerGroupMember, epoch: int) -> None:
    if epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, epoch


class ConsumerGroupMembers:
    """The members of one group, by id and by instance."""

    def __init__(self) -> None:
        self._by_id: dict[str, ConsumerGroupMember] = {}
        self._static: dict[str, ConsumerGroupMember] = {}
        self.owners = PartitionOwners()

    def __iter__(self) -> Iterator[ConsumerGroupMember]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find_member(self, member_id: str) -> ConsumerGroupMember | None:
        """The member with this id."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """The member that stands for an instance."""
        return None if instance_id is None else self._static.get(instance_id)

    def add(self, member: ConsumerGroupMember) -> None:
        """Take in a member with what it holds."""
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member
        if not member.assignment_epochs:  # it comes with partitions, from a classic group
            member.record_assignment(NO_PARTITIONS)
        self.owners.update(member.member_id, NO_PARTITIONS, member.held)

    def remove(self, member: ConsumerGroupMember) -> None:
        """Let a member go; what it held is free at once."""
        del self._by_id[member.member_id]
        if member.instance_id is not None and self._static.get(member.instance_id) is member:
            del self._static[member.instance_id]
        self.owners.update(member.member_id, member.held, NO_PARTITIONS)
        member.cancel_timers()
