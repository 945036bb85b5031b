"""A member of a consumer group, and its way from what it has to what it shall have (KIP-848).

A member moves by heartbeats. Each one brings it one step nearer to the group's target, and the
answer tells it what it may have at this moment:

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

A partition is never given to one member before another has said that it has let it go (or is gone):
`Owners` knows which member has each.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto, unique
from itertools import count, repeat

from trilogue.broker.consumer_group_assignors import (
    NOTHING,
    Parts,
    common,
    minus,
    together,
)
from trilogue.broker.consumer_group_topics import Wants
from trilogue.broker.errors import FencedMemberEpoch
from trilogue.broker.group_members import Handle
from trilogue.broker.names import TopicName

JOINING = 0  # a member's epoch before it has one
LEAVING = -1  # said by a member that goes
AWAY = -2  # said by a static member that will come back; kept as its epoch meanwhile


@unique
class Phase(Enum):
    """How far a member is."""

    SETTLED = auto()  # it has what it shall have, as of its epoch
    GIVING_UP = auto()  # it still has partitions that it shall not have
    AWAITING = auto()  # others still have partitions that it shall have


@unique
class Wait(Enum):
    """What is waited for, for a while; when it does not come, the member goes."""

    BEAT = auto()  # any sign of life
    GIVE_UP = auto()  # what it shall not have; of a classic member: that it joins again
    SYNC = auto()  # of a classic member that has joined


@dataclass(frozen=True, slots=True)
class Classic:
    """What a member that speaks as classic ones do has said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol(self) -> str:
        """The protocol it is told: the one it likes best."""
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        """What it said beside that."""
        return self.protocols[0][1]


@dataclass(slots=True)
class Member:
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
    classic: Classic | None = None

    epoch: int = JOINING
    previous_epoch: int = JOINING
    phase: Phase = Phase.SETTLED
    has: Parts = field(default_factory=dict)
    gives_up: Parts = field(default_factory=dict)

    waits: dict[Wait, Handle] = field(default_factory=dict)
    heard_epoch: int = -1  # the group's, when it beat last
    beats: int = 0  # since that epoch began

    @property
    def wants(self) -> Wants:
        """The topics it wants."""
        return self.topics, self.pattern

    @property
    def holds(self) -> Parts:
        """All that nobody else may have."""
        return together(self.has, self.gives_up)

    def settled_at(self, target_epoch: int) -> bool:
        """Whether there is nothing to do for it."""
        return self.phase is Phase.SETTLED and self.epoch == target_epoch

    def check_epoch(self, epoch: int, owned: Parts | None) -> None:
        """Refuse a member that is ahead, or behind by more than one lost answer."""
        if epoch in {self.epoch, JOINING}:
            return
        known = self.epoch
        if epoch > known:
            raise FencedMemberEpoch(
                f"the member says epoch {epoch}, and it is at {known}:"
                " it must give up all its partitions and join again"
            )
        if epoch != self.previous_epoch or owned is None or minus(owned, self.has):
            raise FencedMemberEpoch(
                f"the member says epoch {epoch}, and it is at {known} by now:"
                " it must give up all its partitions and join again"
            )

    def wait(self, what: Wait, timer: Handle) -> None:
        """Wait for something until this timer fires."""
        self.stop(what)
        self.waits[what] = timer

    def stop(self, what: Wait) -> None:
        """Wait no more for something."""
        timer = self.waits.pop(what, None)
        if timer is not None:
            timer.cancel()

    def cancel_timers(self) -> None:
        """Wait for nothing any more."""
        for what in Wait:
            self.stop(what)


class Owners:
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
        """Those that a member may have, because nobody or only itself has them."""
        owners = self._topics.get(topic_id, NOBODY)
        mine, end = {0, self._numbers.get(member_id, 0)}, len(owners)
        return frozenset(each for each in indexes if each >= end or owners[each] in mine)

    def update(self, member_id: str, before: Parts, after: Parts) -> None:
        """Note what a member holds now."""
        if before is after:
            return
        number = self._numbers.get(member_id) or next(self._next)
        for topic_id, indexes in minus(before, after).items():
            owners = self._topics[topic_id]
            for index in indexes:
                assert owners[index] == number, "somebody else's partition was let go"
                owners[index] = 0
            self._held[topic_id] -= len(indexes)
            if not self._held[topic_id]:
                del self._held[topic_id], self._topics[topic_id]
        for topic_id, indexes in minus(after, before).items():
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


NOBODY: array[int] = array("I")


def advance(
    member: Member, target: Parts, target_epoch: int, owners: Owners, owned: Parts | None
) -> None:
    """Bring a member as near to its target as the others allow.

    `owned` is what it says it has; None when it says nothing, and then it is not taken to have let
    anything go.
    """
    if member.settled_at(target_epoch):
        return
    epoch = member.epoch
    if member.phase is Phase.GIVING_UP:
        if owned is None or common(owned, member.gives_up):
            return
        epoch += 1  # an epoch of its own between the one it leaves and the target's
    before = member.holds
    keeps = common(member.has, target)
    gives_up = minus(member.has, target)
    if gives_up and (owned is None or common(owned, gives_up)):
        member.phase, member.gives_up = Phase.GIVING_UP, gives_up
        _go_to(member, epoch)
        member.has = keeps
    else:
        wanted = minus(target, keeps)
        free = _free(member, wanted, owners)
        all_free = all(len(free.get(each, ())) == len(wanted[each]) for each in wanted)
        member.phase = Phase.SETTLED if all_free else Phase.AWAITING
        member.gives_up = NOTHING
        _go_to(member, target_epoch)
        member.has = target if all_free else together(keeps, free)  # one copy of it, mostly
    owners.update(member.member_id, before, member.holds)


def waits_for_others(member: Member, target: Parts, owners: Owners) -> bool:
    """Whether something that a member shall have is still with others."""
    wanted = minus(target, member.has)
    return wanted != _free(member, wanted, owners)


def _free(member: Member, wanted: Parts, owners: Owners) -> Parts:
    found = {each: owners.free(each, wanted[each], member.member_id) for each in wanted}
    return {each: indexes for each, indexes in found.items() if indexes}


def _go_to(member: Member, epoch: int) -> None:
    if epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, epoch


class ConsumerMembers:
    """The members of one group, by id and by instance."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, Member] = {}
        self.owners = Owners()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, member_id: str) -> Member | None:
        """The member with this id."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> Member | None:
        """The member that stands for an instance."""
        return None if instance_id is None else self._static.get(instance_id)

    def add(self, member: Member) -> None:
        """Take in a member with what it holds."""
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member
        self.owners.update(member.member_id, NOTHING, member.holds)

    def remove(self, member: Member) -> None:
        """Let a member go; what it held is free at once."""
        del self._by_id[member.member_id]
        if member.instance_id is not None and self._static.get(member.instance_id) is member:
            del self._static[member.instance_id]
        self.owners.update(member.member_id, member.holds, NOTHING)
        member.cancel_timers()
