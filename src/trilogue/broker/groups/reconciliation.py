"""A member of a group whose assignment the broker computes, and its way to its target.

Consumer groups (KIP-848) assign partitions of topics, streams groups (KIP-1071) tasks of
subtopologies; both are sets of numbers by a key (partition_sets.py). A member moves by heartbeats.
Each one brings it one step nearer to the group's target, and the response contains what it may have
at this moment:

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

What another member holds is never given before that one has reported its release (or is gone):
`Owners` knows who has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto, unique
from typing import Any, Final, Generic, TypeVar
from typing import Protocol as Port

import msgspec

from trilogue.broker.errors import FencedMemberEpoch
from trilogue.broker.groups.classic.members import TimerHandle
from trilogue.broker.groups.partition_sets import intersect, subtract, unite

K = TypeVar("K")

JOIN_EPOCH: Final = 0  # a member's epoch before it has one
LEAVE_EPOCH: Final = -1  # sent by a member that leaves
STATIC_LEAVE_EPOCH: Final = -2  # sent by a static member that will come back; its epoch meanwhile
NOTHING: Final[Mapping[Any, frozenset[int]]] = {}


@unique
class MemberState(Enum):
    """How far a member is."""

    STABLE = auto()  # it has its target, as of its epoch
    UNREVOKED = auto()  # it still has partitions that are not in its target
    UNRELEASED = auto()  # others still have partitions of its target


STATES: Final = (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)  # on disk


@unique
class MemberTimer(Enum):
    """What is waited for, for a while; when it does not come, the member goes."""

    SESSION = auto()  # any sign of life
    REBALANCE = auto()  # a revocation; of a classic member: that it joins again
    SYNC = auto()  # of a classic member that has joined


class ReconcilingMember(msgspec.Struct, Generic[K], kw_only=True):
    """What the broker knows of any such member; subclasses add what it wants."""

    member_id: str
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Mapping[K, frozenset[int]] = msgspec.field(default_factory=dict)
    revoking: Mapping[K, frozenset[int]] = msgspec.field(default_factory=dict)
    assignment_epochs: list[tuple[int, Mapping[K, frozenset[int]]]] = msgspec.field(
        default_factory=list
    )
    waits: dict[MemberTimer, TimerHandle] = msgspec.field(default_factory=dict)
    heartbeat_epoch: int = -1  # the group's, at its last heartbeat
    heartbeats: int = 0  # since that epoch began
    stored: tuple[object, ...] = ()  # what its row was made of

    @property
    def held(self) -> Mapping[K, frozenset[int]]:
        """Everything that no other member may have."""
        return unite(self.assigned, self.revoking)

    def is_stable_at(self, target_epoch: int) -> bool:
        """Whether there is nothing to do for it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, key: K, number: int) -> int | None:
        """Return the epoch at which the member got what it still owns (KIP-1251)."""
        for epoch, partitions in self.assignment_epochs:
            if number in partitions.get(key, ()):
                return epoch
        return None

    def record_assignment(self, before: Mapping[K, frozenset[int]]) -> None:
        """Note the present epoch for what was not owned before."""
        after = self.held
        if before is after:
            return
        lost, gained = subtract(before, after), subtract(after, before)
        if lost:
            kept = ((epoch, subtract(some, lost)) for epoch, some in self.assignment_epochs)
            self.assignment_epochs = [(epoch, some) for epoch, some in kept if some]
        if gained:
            self.assignment_epochs.append((self.epoch, gained))

    def restore_assigned(self) -> None:
        """Derive what is assigned from what is owned since some epoch, as rows have it."""
        owned: Mapping[K, frozenset[int]] = NOTHING
        for _, some in self.assignment_epochs:
            owned = unite(owned, some)
        self.assigned = subtract(owned, self.revoking)

    def check_epoch(self, epoch: int, owned: Mapping[K, frozenset[int]] | None) -> None:
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


class Owners(Port[K]):
    """Which members of a group hold what."""

    def free(self, key: K, numbers: Iterable[int], member_id: str) -> frozenset[int]:
        """Return the numbers of a key that a member may have."""

    def update(
        self,
        member_id: str,
        before: Mapping[K, frozenset[int]],
        after: Mapping[K, frozenset[int]],
    ) -> None:
        """Note what a member holds now."""


def reconcile(
    member: ReconcilingMember[K],
    target: Mapping[K, frozenset[int]],
    target_epoch: int,
    owners: Owners[K],
    owned: Mapping[K, frozenset[int]] | None,
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
        member.revoking = NOTHING
        _set_epoch(member, target_epoch)
        member.assigned = target if all_free else unite(keeps, free)  # one copy of it, mostly
    member.record_assignment(before)
    owners.update(member.member_id, before, member.held)


def awaits_release(
    member: ReconcilingMember[K], target: Mapping[K, frozenset[int]], owners: Owners[K]
) -> bool:
    """Whether other members still have a part of a member's target."""
    wanted = subtract(target, member.assigned)
    return wanted != _free(member, wanted, owners)


def _free(
    member: ReconcilingMember[K], wanted: Mapping[K, frozenset[int]], owners: Owners[K]
) -> Mapping[K, frozenset[int]]:
    found = {each: owners.free(each, wanted[each], member.member_id) for each in wanted}
    return {each: indexes for each, indexes in found.items() if indexes}


def _set_epoch(member: ReconcilingMember[K], epoch: int) -> None:
    if epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, epoch
