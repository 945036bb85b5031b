"""One subscription of one partition, while consumers are connected: which entry goes to which one.

It is a state machine without a clock, a log or a socket. Its caller reports events (consumers join,
add demand, ack, redeliver, leave), and one loop outside runs it:

    while (offset := subscription.next_offset()) != NOTHING:
        entry = the one of the log that contains `offset`, or the first one after it
        if there is none yet: wait for the log to grow
        if something is missing before it, or is not visible: subscription.skip(...)
        else: member = subscription.offer(...), and if it is not None send it the entry

Acked offsets are a `Position` (broker/cursors/position.py): the durable cursor, where there is one.
Its owner moves it and then calls `settle` or `settle_all` here.

    kind         consumers   which one gets an entry   state             module
    EXCLUSIVE    one         that one                  a position        single_active_consumer.py
    FAILOVER     many        the active one            a position        single_active_consumer.py
    SHARED       many        any that is ready         unacked entries   shared_dispatch.py
    KEY_SHARED   many        the one with its key      unacked entries   key_shared.py

Consumers of different kinds are never in one subscription together; after the last one has left,
the next one chooses the kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Final

from trilogue.broker.cursors.position import AckedOffsets, Position
from trilogue.broker.errors import SubscriptionBusy
from trilogue.broker.subscriptions.consumer import KEYLESS, NO_EPOCH, SubscriptionConsumer
from trilogue.broker.subscriptions.key_shared import KeyAssigner, make_key_assigner
from trilogue.broker.subscriptions.shared_dispatch import SharedDispatch, SharedLimits
from trilogue.broker.subscriptions.single_active_consumer import SingleActiveConsumer

NOTHING: Final = -1


class SubscriptionType(Enum):
    """How the members of a subscription share its entries."""

    EXCLUSIVE = auto()
    SHARED = auto()
    FAILOVER = auto()
    KEY_SHARED = auto()

    @property
    def is_single(self) -> bool:
        """Whether one member at a time reads."""
        return self in {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}


def check_join(
    members: Collection[SubscriptionConsumer],
    present: SubscriptionType | None,
    member: SubscriptionConsumer,
    kind: SubscriptionType,
) -> None:
    """Refuse a consumer that cannot be beside the present ones: SubscriptionBusy."""
    if not members:
        return
    if kind is not present:
        raise SubscriptionBusy("the subscription has consumers of another type")
    if kind is SubscriptionType.EXCLUSIVE:
        raise SubscriptionBusy("an exclusive consumer is connected")
    if kind is SubscriptionType.KEY_SHARED:
        first = next(iter(members))
        if (member.ranges is None) != (first.ranges is None):
            raise SubscriptionBusy("the subscription has consumers with another key policy")
        if member.out_of_order != first.out_of_order:
            raise SubscriptionBusy("its consumers differ about allowing keys out of order")


class Subscription:
    """The members of one subscription and what they have; see the module."""

    def __init__(
        self,
        acked: Position,
        *,
        partition_index: int = -1,
        limits: SharedLimits | None = None,
        hashing: bool = True,
    ) -> None:
        self.acked = acked
        self.claimed: AckedOffsets = acked  # and what open transactions have acked
        self.kind: SubscriptionType | None = None
        self._members: dict[int, SubscriptionConsumer] = {}  # by `joined`
        self.limits = limits or SharedLimits()
        self._hashing = hashing  # key-shared: a ring, else halves
        self._index = partition_index
        self._joined = 0
        self._single_active: SingleActiveConsumer | None = None
        self._shared_dispatch: SharedDispatch | None = None

    # -- members

    @property
    def members(self) -> Collection[SubscriptionConsumer]:
        """The consumers, in the order in which they joined; a view."""
        return self._members.values()

    @property
    def active(self) -> SubscriptionConsumer | None:
        """The consumer that reads, where one at a time does."""
        return None if self._single_active is None else self._single_active.active

    @property
    def is_single(self) -> bool:
        """Whether one member at a time reads."""
        return self._single_active is not None

    def join(self, member: SubscriptionConsumer, kind: SubscriptionType) -> None:
        """Let a member take part; raises SubscriptionBusy or KeyRangesTaken."""
        check_join(self.members, self.kind, member, kind)
        self._joined += 1
        member.joined = self._joined
        if not self._members:
            self._begin(member, kind)
        mode = self._single_active if self._shared_dispatch is None else self._shared_dispatch
        assert mode is not None, "a kind was chosen"
        mode.add(member)
        self._members[member.joined] = member

    def leave(self, member: SubscriptionConsumer) -> None:
        """Let a member go; what it had and did not ack is for others, in order, before all else."""
        del self._members[member.joined]
        mode = self._single_active if self._shared_dispatch is None else self._shared_dispatch
        assert mode is not None, "a kind was chosen"
        mode.remove(member)

    def _begin(self, member: SubscriptionConsumer, kind: SubscriptionType) -> None:
        self.kind = kind
        self._single_active = self._shared_dispatch = None
        if kind.is_single:
            self._single_active = SingleActiveConsumer(
                self.claimed, self._index if kind is SubscriptionType.FAILOVER else -1
            )
            return
        assigner: KeyAssigner | None = None
        if kind is SubscriptionType.KEY_SHARED:
            assigner = make_key_assigner(member, hashing=self._hashing)
        self._shared_dispatch = SharedDispatch(self.claimed, self.limits, assigner)

    # -- what to do

    def add_demand(self, member: SubscriptionConsumer, count: int) -> None:
        """A member will take so many messages more."""
        member.add_demand(count)
        if self._shared_dispatch is not None:
            self._shared_dispatch.refresh(member)

    def set_waits(self, member: SubscriptionConsumer, waits: bool) -> None:
        """A member can be sent nothing now, or can again."""
        member.waits = waits
        if self._shared_dispatch is not None:
            self._shared_dispatch.refresh(member)

    def begin_turn(self) -> None:
        """The loop outside begins to hand out."""
        if self._shared_dispatch is not None:
            self._shared_dispatch.begin_turn()

    def next_offset(self) -> int:
        """Return the offset of the next entry that a consumer takes; NOTHING if there is none."""
        if self._shared_dispatch is not None:
            return self._shared_dispatch.next_offset()
        return NOTHING if self._single_active is None else self._single_active.next_offset()

    def offer(
        self, base: int, end: int, key: int = KEYLESS, due_ms: int = -1, now_ms: int = 0
    ) -> SubscriptionConsumer | None:
        """Hand out the entry that contains the last result of `next_offset`.

        Returns who is to be sent it; None if it waits for its time or for its own member. `key` is
        what decides who may have it: the hash of its key (key-shared), or one number for all the
        parts of a message (shared).
        """
        if self._shared_dispatch is not None:
            return self._shared_dispatch.offer(base, end, key, due_ms, now_ms)
        assert self._single_active is not None, "no consumer received this entry"
        return self._single_active.offer(base, end)

    def skip(self, start: int, end: int) -> None:
        """Nothing that may be seen stands from `start` to `end`; they are acked by who calls."""
        if self._shared_dispatch is not None:
            self._shared_dispatch.skip(start, end)
        elif self._single_active is not None:
            self._single_active.skip(start, end)

    def end_of_waiting(self, base: int) -> int:
        """Return the end of a waiting entry; -1 if no entry with this base offset waits."""
        return -1 if self._shared_dispatch is None else self._shared_dispatch.end_of_waiting(base)

    def redeliveries(self, base: int) -> int:
        """How often an entry was given back, of shared kinds."""
        return 0 if self._shared_dispatch is None else self._shared_dispatch.redeliveries(base)

    # -- what comes back

    def end_of(self, member: SubscriptionConsumer, offset: int) -> tuple[int, int] | None:
        """Return (base, end) of the entry with an offset, if that is known here."""
        if self._single_active is not None:
            return self._single_active.spans.find_span(offset)
        handed = member.handed.get(offset)
        return None if handed is None else (offset, handed.end)

    def settle(self, member: SubscriptionConsumer | None, base: int) -> None:
        """Messages of the entry at `base` were acked, by this member."""
        if self._shared_dispatch is not None:
            self._shared_dispatch.settle(member, base)
        elif self._single_active is not None:
            self._single_active.settle_all()

    def settle_all(self) -> None:
        """Much was acked, by whomever: up to an offset, or because it is too old."""
        if self._shared_dispatch is not None:
            self._shared_dispatch.settle_all()
        elif self._single_active is not None:
            self._single_active.settle_all()

    def give_back(
        self,
        member: SubscriptionConsumer,
        bases: Iterable[int] | None = None,
        epoch: int = NO_EPOCH,
    ) -> None:
        """Redeliver entries of a consumer: these, or all that it has not acked."""
        if epoch != NO_EPOCH and self._single_active is not None:
            member.epoch = max(member.epoch, epoch)
        if self._shared_dispatch is not None:
            self._shared_dispatch.give_back(member, bases)
        elif self._single_active is not None and self._single_active.active is member:
            self._single_active.rewind()

    def set_claimed(self, claimed: AckedOffsets) -> None:
        """Pass over these offsets from here on."""
        self.claimed = claimed
        if self._shared_dispatch is not None:
            self._shared_dispatch.acked = claimed
        elif self._single_active is not None:
            self._single_active.acked = claimed

    def reopen(self, offset: int) -> None:
        """Offsets from this one on are not claimed any more: hand them out again."""
        if self._shared_dispatch is not None:
            self._shared_dispatch.reopen(offset)
        elif self._single_active is not None:
            self._single_active.reopen(offset)

    def set_limits(self, limits: SharedLimits) -> None:
        """Obey other limits from here on."""
        self.limits = limits
        if self._shared_dispatch is not None:
            self._shared_dispatch.set_limits(limits)

    def reset(self) -> None:
        """Begin again after the mark was moved: all entries are taken back."""
        if self._shared_dispatch is not None:
            self._shared_dispatch.rewind()
        elif self._single_active is not None:
            self._single_active.rewind()
            self._single_active.spans.clear()

    # -- what is due later, and numbers

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is due that waits for its time."""
        return None if self._shared_dispatch is None else self._shared_dispatch.next_due_ms

    def release_due(self, now_ms: int) -> bool:
        """Let messages be handed out whose time has come; whether there were any."""
        return self._shared_dispatch is not None and self._shared_dispatch.release_due(now_ms)

    @property
    def delayed(self) -> int:
        """How many entries wait for their time."""
        return 0 if self._shared_dispatch is None else self._shared_dispatch.delayed

    @property
    def unacked(self) -> int:
        """How many messages members have and have not acked, of shared kinds."""
        return 0 if self._shared_dispatch is None else self._shared_dispatch.unacked

    @property
    def blocked(self) -> bool:
        """Whether they are too many."""
        return self._shared_dispatch is not None and self._shared_dispatch.blocked

    @property
    def position(self) -> int:
        """From here on nothing was handed out."""
        mode = self._single_active if self._shared_dispatch is None else self._shared_dispatch
        return self.acked.mark if mode is None else mode.position
