"""What groups have in common whose members walk to a target: consumer and streams groups.

The group has an epoch, one more with every change of what its target depends on. A target is
computed for an epoch, in steps, and members reach it at their own pace (reconciliation.py). A
member is removed when its session ends, or when it does not give up in time what it has to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar
from typing import Protocol as Port

from trilogue.broker.errors import BrokerError, GroupMaxSize, StaleMemberEpoch, UnknownMember
from trilogue.broker.groups.consumer.context import MEMBER_WEIGHT, ConsumerGroupContext
from trilogue.broker.groups.consumer.steps import SteppedTask
from trilogue.broker.groups.consumer.subscribed_topics import SubscribedTopics
from trilogue.broker.groups.group_members import GroupMembers
from trilogue.broker.groups.partition_sets import intersect, subtract, unite
from trilogue.broker.groups.reconciliation import (
    NOTHING,
    MemberState,
    MemberTimer,
    ReconcilingMember,
    reconcile,
)
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

M = TypeVar("M", bound=ReconcilingMember[Any])

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
EPOCH_MAX: Final = 2**31 - 1
RESTS_FROM: Final = 1  # steps: what takes less may be done with every heartbeat
STEPS_PER_S: Final = 100  # a tenth of the loop, since a step takes a millisecond
REST_MAX_S: Final = 10.0


class MemberLimits(Port):
    """The settings that all of these groups have."""

    @property
    def session_timeout_ms(self) -> int:
        """How long a member may be silent."""

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a member sends a heartbeat."""

    @property
    def size_max(self) -> int:
        """How many members a group may have."""


class ReconcilingGroup(ABC, Generic[M]):
    """A group of members that walk to a target."""

    session_key: ClassVar[str]  # names of the settings that a group may override
    heartbeat_key: ClassVar[str]

    def __init__(
        self,
        name: str,
        limits: MemberLimits,
        context: ConsumerGroupContext,
        members: GroupMembers[M],
    ) -> None:
        self.name = name
        self.epoch = 1
        self.target_epoch = 0
        self.target: dict[str, Mapping[Any, frozenset[int]]] = {}
        self.members = members
        self.subscribed = SubscribedTopics(context)
        self.context = context
        self._limits = limits
        self._computation: SteppedTask | None = None  # a target that is not done yet
        self._is_paused = False
        self._reported_size = (0, 0)
        self._reported_target_epoch = 0
        # The value of a setting for this group alone, if it is overridden.
        self.get_override: Callable[[str], int | None] = lambda _: None

    # -- the interface (broker/groups/group.py)

    @property
    def state_name(self) -> str:
        """The state as tools show it."""
        if self.is_empty:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(member.is_stable_at(self.target_epoch) for member in self.members):
            return STABLE
        return RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not len(self.members)

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
        self.stop_computing()
        for member in list(self.members):
            self.members.remove(member)
        self.subscribed.clear()
        self.report_size()

    def check_commit(self, member_id: str, generation: int, _: str | None = None) -> None:
        """Refuse a commit that does not come from a member at its present epoch.

        While the group is empty, a client without an epoch may commit.
        """
        if generation < 0 and self.is_empty:
            return
        self.check_member_epoch(self.require_member(member_id), generation)

    def check_partition_commit(
        self, member_id: str, epoch: int, topic_id: bytes, index: int
    ) -> None:
        """Raise StaleMemberEpoch unless the member has owned the partition since this epoch.

        A commit at an older epoch is safe then: no other member can have read the partition since
        (KIP-1251).
        """
        member = self.require_member(member_id)
        since = self.partition_epoch(member, topic_id, index)
        if since is None or not since <= epoch <= member.epoch:
            raise StaleMemberEpoch(f"the member is at epoch {member.epoch}, not {epoch}")

    def partition_epoch(self, member: M, topic_id: bytes, index: int) -> int | None:
        """Return the epoch since which a member has owned a partition, if it does."""
        return member.assignment_epoch(topic_id, index)

    def has_epoch(self, member_id: str) -> bool:
        """Whether a member commits with its epoch."""
        return self.members.find_member(member_id) is not None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse a member that is behind; a client without member id is allowed."""
        if member_id is None and epoch < 0:
            return
        self.check_member_epoch(self.require_member(member_id or ""), epoch)

    def check_member_epoch(self, member: M, epoch: int) -> None:
        """Refuse an epoch that is not the member's."""
        if epoch != member.epoch:
            raise StaleMemberEpoch(f"the member is at epoch {member.epoch}, not {epoch}")

    # -- members

    def require_member(self, member_id: str) -> M:
        """Return the member of this id; raises UnknownMember."""
        member = self.members.find_member(member_id)
        if member is None:
            raise UnknownMember(f"member {member_id} is not a member of group {self.name}")
        return member

    def check_room(self, member_id: str) -> None:
        """Refuse one more member."""
        if self.members.find_member(member_id) is not None:
            return
        if len(self.members) >= self._limits.size_max:
            raise GroupMaxSize(f"a group has {self._limits.size_max} members at most")
        self.context.load.check_room(MEMBER_WEIGHT)

    @property
    def weight(self) -> int:
        """The memory that this group takes, in names of topics (`GroupLoad`)."""
        return self.subscribed.size + len(self.members) * MEMBER_WEIGHT

    def report_size(self) -> None:
        """Report the memory that this group takes now to `GroupLoad`."""
        size = self.weight, len(self.members)
        before, self._reported_size = self._reported_size, size
        self.context.load.change(size[0] - before[0], size[1] - before[1])

    def next_interval_ms(self, member: M) -> int:
        """Return the interval to a member's next heartbeat: short, while the group changes."""
        if member.heartbeat_epoch != self.epoch:
            member.heartbeat_epoch, member.heartbeats = self.epoch, 0
        usual_ms = self.get_override(self.heartbeat_key) or self._limits.heartbeat_interval_ms
        member.heartbeats += 1
        return self.context.load.interval_ms(
            usual_ms, member.heartbeats - 1, waits=self.is_waiting(member)
        )

    def is_waiting(self, member: M) -> bool:
        """Whether a member waits for something that others or the broker do."""
        return member.state is MemberState.UNRELEASED or member.epoch < self.epoch

    def restore_members(
        self,
        epoch: int,
        members: Iterable[M],
        exclusive: Callable[[M], Mapping[Any, frozenset[int]]],
    ) -> None:
        """Go on with the members that are stored, in a group that is new; the next epoch begins.

        Its target is made of what everyone has. `exclusive` returns what only one member may hold.
        """
        taken: Mapping[Any, frozenset[int]] = NOTHING
        for member in members:
            if intersect(exclusive(member), taken):  # its rows are of two moments
                member.assigned = subtract(member.assigned, taken)
                member.revoking, member.assignment_epochs = NOTHING, []
                member.state = MemberState.STABLE
            taken = unite(taken, exclusive(member))
            self.members.add(member)
            self.target[member.member_id] = member.assigned
            self.start_session_timer(member)
            if member.state is MemberState.UNREVOKED:
                self.wait(member, MemberTimer.REBALANCE, member.rebalance_timeout_ms)
            epoch = max(epoch, member.epoch)
        self.target_epoch = epoch
        self.epoch = epoch + 1
        self.report_size()

    # -- epochs and targets

    def bump(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        assert self.epoch <= EPOCH_MAX

    @property
    def is_computing(self) -> bool:
        """Whether a target is being computed."""
        return self._computation is not None and not self._computation.ended

    def start_computing(self, steps: Steps[None]) -> None:
        """Compute a target; what that takes in steps beyond the first ones goes on later.

        Until then members stay where they are, and a new one has nothing yet.
        """
        if self.is_computing or self._is_paused:
            return
        computation = self.context.turns.start(steps, self._on_target_computed)
        self._computation = computation
        if not computation.ended and not self.target_epoch:
            self.epoch = max(self.epoch, 2)
            self.target_epoch = self.epoch - 1  # epoch 0 means not a member

    def stop_computing(self) -> None:
        """Do not go on with a target: the group is no more, or is empty."""
        if self._computation is not None:
            self._computation.stop()

    def _on_target_computed(self, steps: int) -> None:
        """Let time go by between targets that are much work: a new member waits for it.

        Kafka 4.3 waits a second between any two targets of a group.
        """
        self.report_size()
        if self._reported_target_epoch != self.target_epoch:
            self._reported_target_epoch = self.target_epoch
            self.context.on_target(self.name)
        if steps < RESTS_FROM:
            return

        def end_pause() -> None:
            self._is_paused = False

        self._is_paused = True
        self.context.timers.call_later(min(steps / STEPS_PER_S, REST_MAX_S), end_pause)

    def step(self, member: M, owned: Mapping[Any, frozenset[int]] | None) -> None:
        """Bring a member one step nearer to its target."""
        before = member.state, member.epoch
        target = self.target.get(member.member_id, NOTHING)
        reconcile(member, target, self.target_epoch, self.members.owners, owned)
        self.limit_revocation(member, before)

    def limit_revocation(self, member: M, before: tuple[MemberState, int]) -> None:
        """Limit the time in which a member gives up what it has to; `before` is before its step."""
        if member.state is not MemberState.UNREVOKED:
            member.stop(MemberTimer.REBALANCE)
        elif before != (member.state, member.epoch) or MemberTimer.REBALANCE not in member.waits:
            self.wait(member, MemberTimer.REBALANCE, member.rebalance_timeout_ms)

    # -- time

    def wait(self, member: M, what: MemberTimer, timeout_ms: int) -> None:
        """Remove a member if something does not come in time."""
        timer = self.context.timers.call_later(timeout_ms / 1_000, lambda: self.fence(member))
        member.wait(what, timer)

    def session_timeout_ms(self, _: M) -> int:
        """Return how long a member may be silent."""
        return self.get_override(self.session_key) or self._limits.session_timeout_ms

    def start_session_timer(self, member: M) -> None:
        """Wait for the next heartbeat."""
        self.wait(member, MemberTimer.SESSION, self.session_timeout_ms(member))

    @abstractmethod
    def fence(self, member: M) -> None:
        """Remove a member, by its will or not."""
