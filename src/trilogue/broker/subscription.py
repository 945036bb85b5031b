"""One subscription of one partition, while somebody is connected: who gets which entry.

It is a state machine without a clock, a log or a socket. What happens is told to it (members come,
ask, ack, give back, go), and one loop outside asks it what to do:

    while (offset := subscription.next_offset()) != NOTHING:
        entry = the one of the log that contains `offset`, or the first one after it
        if there is none yet: wait for the log to grow
        if something is missing before it, or nobody may see it: subscription.skip(...)
        else: member = subscription.offer(...), and if it is not None send it the entry

What is acked stands in an `Acked` (acks.py), which belongs to the durable cursor where there is
one. It is moved by whoever keeps that; then `settle` or `settle_all` says so here.

    kind         members   who gets an entry                     what is remembered
    EXCLUSIVE    one       that one                              how far it has come
    FAILOVER     many      the active one (single.py)            how far it has come
    SHARED       many      whoever takes it (spread.py)          each entry that somebody has
    KEY_SHARED   many      whoever has its key (key_shared.py)   each entry that somebody has

Members of different kinds are never in one subscription together; when all have gone, the next one
decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from trilogue.broker.acks import Acked
from trilogue.broker.errors import SubscriptionBusy
from trilogue.broker.key_shared import Assigner, Halves, Ring, Sticky
from trilogue.broker.member import KEYLESS, NO_EPOCH, Member
from trilogue.broker.single import Single
from trilogue.broker.spread import SharedLimits, Spread

NOTHING: Final = -1


class Kind(IntEnum):
    """How the members of a subscription share its entries; the numbers are Pulsar's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def is_single(self) -> bool:
        """Whether one member at a time reads."""
        return self in {Kind.EXCLUSIVE, Kind.FAILOVER}


class Subscription:
    """The members of one subscription and what they have; see the module."""

    def __init__(
        self,
        acked: Acked,
        *,
        partition_index: int = -1,
        limits: SharedLimits | None = None,
        hashing: bool = True,
    ) -> None:
        self.acked = acked
        self.kind: Kind | None = None
        self.members: list[Member] = []
        self.limits = limits or SharedLimits()
        self._hashing = hashing  # key-shared: a ring, else halves
        self._index = partition_index
        self._joined = 0
        self._single: Single | None = None
        self._spread: Spread | None = None

    # -- members

    @property
    def active(self) -> Member | None:
        """Who reads, where one at a time does."""
        return None if self._single is None else self._single.active

    @property
    def is_single(self) -> bool:
        """Whether one member at a time reads."""
        return self._single is not None

    def join(self, member: Member, kind: Kind) -> None:
        """Let a member take part; raises SubscriptionBusy or KeyRangesTaken."""
        self._check(member, kind)
        self._joined += 1
        member.joined = self._joined
        if not self.members:
            self._begin(member, kind)
        mode = self._single if self._spread is None else self._spread
        assert mode is not None, "a kind was chosen"
        mode.add(member)
        self.members.append(member)

    def leave(self, member: Member) -> None:
        """Let a member go; what it had and did not ack is for others, in order, before all else."""
        self.members.remove(member)
        mode = self._single if self._spread is None else self._spread
        assert mode is not None, "a kind was chosen"
        mode.remove(member)

    def _check(self, member: Member, kind: Kind) -> None:
        if not self.members:
            return
        if kind is not self.kind:
            raise SubscriptionBusy("the subscription has consumers of another type")
        if kind is Kind.EXCLUSIVE:
            raise SubscriptionBusy("an exclusive consumer is connected")
        if kind is Kind.KEY_SHARED:
            first = self.members[0]
            if (member.ranges is None) != (first.ranges is None):
                raise SubscriptionBusy("the subscription has consumers with another key policy")
            if member.out_of_order != first.out_of_order:
                raise SubscriptionBusy("its consumers differ about allowing keys out of order")

    def _begin(self, member: Member, kind: Kind) -> None:
        self.kind = kind
        self._single = self._spread = None
        if kind.is_single:
            self._single = Single(self.acked, self._index if kind is Kind.FAILOVER else -1)
            return
        assigner: Assigner | None = None
        if kind is Kind.KEY_SHARED:
            if member.ranges is not None:
                assigner = Sticky()
            else:
                assigner = Ring() if self._hashing else Halves()
        self._spread = Spread(self.acked, self.limits, assigner)

    # -- what to do

    def ask(self, member: Member, count: int) -> None:
        """A member will take so many messages more."""
        member.ask(count)
        if self._spread is not None:
            self._spread.refresh(member)

    def set_waits(self, member: Member, waits: bool) -> None:
        """A member can be sent nothing now, or can again."""
        member.waits = waits
        if self._spread is not None:
            self._spread.refresh(member)

    def begin_turn(self) -> None:
        """The loop outside begins to hand out."""
        if self._spread is not None:
            self._spread.begin_turn()

    def next_offset(self) -> int:
        """Say from where to read the next entry that somebody takes; NOTHING if nobody does."""
        if self._spread is not None:
            return self._spread.next_offset()
        return NOTHING if self._single is None else self._single.next_offset()

    def offer(
        self, base: int, end: int, key: int = KEYLESS, due_ms: int = -1, now_ms: int = 0
    ) -> Member | None:
        """Hand out the entry that contains what `next_offset` has just said.

        Returns who is to be sent it; None if it waits for its time or for its own member. `key` is
        what decides who may have it: the hash of its key (key-shared), or one number for all the
        parts of a message (shared).
        """
        if self._spread is not None:
            return self._spread.offer(base, end, key, due_ms, now_ms)
        assert self._single is not None, "nobody asked for this entry"
        return self._single.offer(base, end)

    def skip(self, start: int, end: int) -> None:
        """Nothing that may be seen stands from `start` to `end`; they are acked by who calls."""
        if self._spread is not None:
            self._spread.skip(start, end)
        elif self._single is not None:
            self._single.skip(start, end)

    def end_of_waiting(self, base: int) -> int:
        """Say where an entry ends that is to be handed out again; -1 if none of this base is."""
        return -1 if self._spread is None else self._spread.end_of_waiting(base)

    def redeliveries(self, base: int) -> int:
        """How often an entry was given back, of shared kinds."""
        return 0 if self._spread is None else self._spread.redeliveries(base)

    # -- what comes back

    def end_of(self, member: Member, offset: int) -> tuple[int, int] | None:
        """Return (base, end) of the entry with an offset, if that is known here."""
        if self._single is not None:
            return self._single.spans.find(offset)
        handed = member.handed.get(offset)
        return None if handed is None else (offset, handed.end)

    def settle(self, member: Member | None, base: int) -> None:
        """Messages of the entry at `base` were acked, by this member."""
        if self._spread is not None:
            self._spread.settle(member, base)
        elif self._single is not None:
            self._single.settle_all()

    def settle_all(self) -> None:
        """Much was acked, by whomever: up to an offset, or because it is too old."""
        if self._spread is not None:
            self._spread.settle_all()
        elif self._single is not None:
            self._single.settle_all()

    def give_back(
        self, member: Member, bases: Iterable[int] | None = None, epoch: int = NO_EPOCH
    ) -> None:
        """A member wants entries handed out anew: these, or all that it has not acked."""
        if epoch != NO_EPOCH and self._single is not None:
            member.epoch = max(member.epoch, epoch)
        if self._spread is not None:
            self._spread.give_back(member, bases)
        elif self._single is not None and self._single.active is member:
            self._single.rewind()

    def set_limits(self, limits: SharedLimits) -> None:
        """Obey other limits from here on."""
        self.limits = limits
        if self._spread is not None:
            self._spread.set_limits(limits)

    def reset(self) -> None:
        """The mark was put somewhere else: begin again there, nobody has anything."""
        if self._spread is not None:
            self._spread.rewind()
        elif self._single is not None:
            self._single.rewind()
            self._single.spans.clear()

    # -- what is due later, and numbers

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is due that waits for its time."""
        return None if self._spread is None else self._spread.next_due_ms

    def release_due(self, now_ms: int) -> bool:
        """Let messages be handed out whose time has come; whether there were any."""
        return self._spread is not None and self._spread.release_due(now_ms)

    @property
    def delayed(self) -> int:
        """How many entries wait for their time."""
        return 0 if self._spread is None else self._spread.delayed

    @property
    def unacked(self) -> int:
        """How many messages members have and have not acked, of shared kinds."""
        return 0 if self._spread is None else self._spread.unacked

    @property
    def blocked(self) -> bool:
        """Whether they are too many."""
        return self._spread is not None and self._spread.blocked

    @property
    def position(self) -> int:
        """From here on nothing was handed out."""
        mode = self._single if self._spread is None else self._spread
        return self.acked.mark if mode is None else mode.position
