"""A subscription of a non-persistent topic: which of its consumers gets a message.

A message goes to a consumer that has permits and whose connection takes it, at once; otherwise it
is dropped for this subscription, and counted. Nothing waits, so nothing is acked or redelivered.

    kind         the consumer that gets a message
    EXCLUSIVE    the only one
    FAILOVER     the active one
    SHARED       the next one in turn that is ready
    KEY_SHARED   the one with its key
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from trilogue.broker.cursors.position import Position
from trilogue.broker.non_persistent.counters import TrafficCounter
from trilogue.broker.quotas.topic_rates import PartitionRates, SubscriptionLimiter
from trilogue.broker.subscriptions.consumer import KEYLESS, SubscriptionConsumer
from trilogue.broker.subscriptions.key_shared import KeyAssigner, make_key_assigner
from trilogue.broker.subscriptions.single_active_consumer import SingleActiveConsumer
from trilogue.broker.subscriptions.subscription import (
    SubscriptionType,
    check_join,
)


class NonPersistentSubscription:
    """The consumers of one subscription. Gateways derive from it."""

    def __init__(
        self, name: str, *, durable: bool, partition_index: int, hashing: bool, now_s: float
    ) -> None:
        self.name = name
        self.durable = durable  # it stays while its topic is used, also without consumers
        self.kind: SubscriptionType | None = None
        self.members: list[SubscriptionConsumer] = []
        self.sent = TrafficCounter(now_s)
        self.dropped = TrafficCounter(now_s)
        self._index = partition_index
        self._hashing = hashing  # key-shared: a ring, else halves
        self._limiter = SubscriptionLimiter()
        self._joined = 0
        self._next = 0  # the place in the list of members, of SHARED
        self._single_active: SingleActiveConsumer | None = None
        self._assigner: KeyAssigner | None = None

    # -- members

    @property
    def active(self) -> SubscriptionConsumer | None:
        """The consumer that gets messages, where one at a time does."""
        return None if self._single_active is None else self._single_active.active

    @property
    def needs_key(self) -> bool:
        """Whether the key of a message decides."""
        return self._assigner is not None

    def join(self, member: SubscriptionConsumer, kind: SubscriptionType) -> None:
        """Add a consumer; raises SubscriptionBusy or KeyRangesTaken."""
        check_join(self.members, self.kind, member, kind)
        self._joined += 1
        member.joined = self._joined
        if not self.members:
            self._begin(member, kind)
        if self._single_active is not None:
            self._single_active.add(member)
        elif self._assigner is not None:
            self._assigner.add(member)
        self.members.append(member)

    def remove(self, member: SubscriptionConsumer) -> None:
        """Remove a consumer."""
        at = bisect_left(self.members, member.joined, key=lambda each: each.joined)
        assert self.members[at] is member, "a consumer of this subscription"
        del self.members[at]
        if self._single_active is not None:
            self._single_active.remove(member)
        elif self._assigner is not None:
            self._assigner.remove(member)

    def _begin(self, member: SubscriptionConsumer, kind: SubscriptionType) -> None:
        self.kind = kind
        self._single_active = self._assigner = None
        if kind.is_single:
            index = self._index if kind is SubscriptionType.FAILOVER else -1
            self._single_active = SingleActiveConsumer(Position(0), index)
        elif kind is SubscriptionType.KEY_SHARED:
            self._assigner = make_key_assigner(member, hashing=self._hashing)

    # -- messages

    def offer(
        self, messages: int, size: int, key: int, rates: PartitionRates | None, now_s: float
    ) -> SubscriptionConsumer | None:
        """Return the consumer that gets an entry, and take its permits; None: it is dropped.

        `key` is the hash of the key, where `needs_key`.
        """
        member = self._choose(key)
        if member is None or (rates is not None and self._limiter.wait_s(rates, now_s) > 0):
            self.dropped.count(messages, size, now_s)
            return None
        if rates is not None:
            self._limiter.count(rates, messages, size, now_s)
        _hand_out(member, 1, messages, size)
        self.sent.count(messages, size, now_s)
        return member

    def share_out(
        self,
        messages: Sequence[int],
        sizes: Sequence[int],
        keys: Sequence[int],
        rates: PartitionRates | None,
        now_s: float,
    ) -> dict[SubscriptionConsumer, list[int]]:
        """Return which entries of several each consumer gets, as indexes, and take its permits.

        The others are dropped. `keys` are the hashes of keys, where `needs_key`.
        """
        if self._single_active is None or rates is not None:
            shares: dict[SubscriptionConsumer, list[int]] = {}
            for index, (count, size) in enumerate(zip(messages, sizes, strict=True)):
                key = keys[index] if keys else KEYLESS
                found = self.offer(count, size, key, rates, now_s)
                if found is not None:
                    shares.setdefault(found, []).append(index)
            return shares
        member = self._choose(KEYLESS)
        taken = 0 if member is None else _within(messages, member.demand)
        if taken < len(messages):
            self.dropped.count(sum(messages[taken:]), sum(sizes[taken:]), now_s)
        if member is None:
            return {}
        count, size = sum(messages[:taken]), sum(sizes[:taken])
        _hand_out(member, taken, count, size)
        self.sent.count(count, size, now_s)
        return {member: list(range(taken))}

    def _choose(self, key: int) -> SubscriptionConsumer | None:
        if self._single_active is not None:
            member = self._single_active.active
        elif self._assigner is not None:
            member = self._assigner.member_of(key) if self.members else None
        else:
            return self._choose_next()
        return member if member is not None and member.ready else None

    def _choose_next(self) -> SubscriptionConsumer | None:
        """Return the next consumer in turn that is ready, of those with the lowest priority."""
        members, count = self.members, len(self.members)
        found: SubscriptionConsumer | None = None
        place = 0
        for step in range(count):
            at = (self._next + step) % count
            member = members[at]
            if member.ready and (found is None or member.priority < found.priority):
                found, place = member, at
        if found is not None:
            self._next = (place + 1) % count
        return found


def _within(messages: Sequence[int], demand: int) -> int:
    """Return how many entries go out before the demand is used up; an entry is never split."""
    for taken, count in enumerate(messages):
        if demand <= 0:
            return taken
        demand -= count
    return len(messages)


def _hand_out(member: SubscriptionConsumer, entries: int, messages: int, size: int) -> None:
    member.demand -= messages
    member.messages_out += messages
    member.entries_out += entries
    member.bytes_out += size
