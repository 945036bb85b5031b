"""Shared and Key_Shared subscriptions: many members, each entry with one of them.

    log ──position──►  offer  ──► handed to a member ──► acked
                        │  ▲            │ given back, or its member went
                        ▼  │            ▼
                     again: entries behind the position that no consumer has, by offset

What is in `again` goes before anything new. An entry comes there when it was given back, and when
it was offered while its own consumer could not take it: `assigner` names the one consumer of a
key, a key moves to another only when the one before has nothing of it left, and nothing of a
key overtakes what of that key is in `again`. So keys keep their order while members come and go.

Without an assigner any consumer may have any entry, 20 messages at a time, low priorities first;
an entry with a key even so (a chunk of one message) stays with the consumer of the other chunks.

An entry that is due later waits in `delayed`. Everything here is bounded: how far is read ahead,
how much is delayed, how much a member and all together may have unacked.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from trilogue.broker.cursors.position import AckedOffsets
from trilogue.broker.subscriptions.consumer import KEYLESS, PendingAck, SubscriptionConsumer
from trilogue.broker.subscriptions.key_shared import KeyAssigner

NOTHING: Final = -1
SORTED_FROM: Final = 16  # entries that are given back at once
TURN_MESSAGES: Final = 20  # to one member before the next one's turn


class SharedLimits(msgspec.Struct, frozen=True):
    """Bounds of one subscription; 0 unacked messages means no limit."""

    member_unacked: int = 50_000
    unacked: int = 200_000
    look_ahead_per_member: int = 2_000  # entries aside whose members cannot take them
    look_ahead: int = 20_000
    delayed: int = 200_000


class SharedDispatch:
    """The unacked entries of a Shared or Key_Shared subscription, and their consumers."""

    def __init__(
        self, acked: AckedOffsets, limits: SharedLimits, assigner: KeyAssigner | None
    ) -> None:
        self.limits = limits
        self.position = acked.mark  # from here on nothing was offered
        self.unacked = 0  # messages, of all members
        self.blocked = False  # too many of them
        self.acked = acked
        self._assigner = assigner
        self._members: dict[int, SubscriptionConsumer] = {}  # by `joined`
        self._ready: set[int] = set()  # of them, those in a queue of `_turns`
        # Who is ready, in turn: by priority, then by `joined`.
        self._turns: dict[int, OrderedDict[int, SubscriptionConsumer]] = {}
        self._streak = 0
        self._order: list[int] = []  # the base offsets of `_again`, sorted
        self._again: dict[int, PendingAck] = {}
        self._keys_again: dict[int, int] = {}  # how many entries of a key are in `again`
        self._stuck = 0  # as many at the front of `again` cannot be handed out
        self._chosen: SubscriptionConsumer | None = None
        self._owners: dict[int, SubscriptionConsumer] = {}  # of each entry that is handed out
        self._holders: dict[int, list[int]] = {}  # key -> who has entries of it, how many
        self._redelivered: dict[int, int] = {}
        self._claimed: dict[int, PendingAck] = {}  # entries acked by open transactions too
        self._delayed: dict[int, PendingAck] = {}
        self._due: list[tuple[int, int]] = []  # heap of (when, base offset)

    # -- members

    def add(self, member: SubscriptionConsumer) -> None:
        """Let a member take part; raises KeyRangesTaken."""
        if self._assigner is not None:
            self._assigner.add(member)
        self._members[member.joined] = member
        self._stuck = 0
        self.refresh(member)

    def remove(self, member: SubscriptionConsumer) -> None:
        """Let a member go; what it had is handed to others, first of all."""
        if self._assigner is not None:
            self._assigner.remove(member)
        del self._members[member.joined]
        member.waits = True
        self.refresh(member)
        handed, member.handed = member.handed, {}
        for base, entry in handed.items():
            self._let_go(member, base, entry)
        self._put_all(handed)
        self._stuck = 0
        self._check_blocked()
        if not self._members:
            self.rewind()

    def refresh(self, member: SubscriptionConsumer) -> None:
        """Take note that a member became ready for more, or is no longer."""
        turns = self._turns.get(member.priority)
        if member.ready:
            if member.joined in self._ready:
                return
            self._ready.add(member.joined)
            self._stuck = 0
            if turns is None:
                self._turns[member.priority] = OrderedDict({member.joined: member})
                self._turns = dict(sorted(self._turns.items()))
            else:
                turns[member.joined] = member
        elif member.joined in self._ready:
            assert turns is not None, "a consumer that is ready is in a queue"
            self._ready.discard(member.joined)
            if next(iter(turns)) == member.joined:
                self._streak = 0
            del turns[member.joined]
            if not turns:
                del self._turns[member.priority]

    def begin_turn(self) -> None:
        """Begin a round of dispatch with the consumer after the one that was served last."""
        if self._streak and self._turns:
            _end_turn(next(iter(self._turns.values())))
            self._streak = 0

    # -- what to read

    def next_offset(self) -> int:
        """Return the offset of the next entry that a consumer can take; NOTHING without one."""
        self._chosen = None
        if not self._turns or self.blocked:
            return NOTHING
        order = self._order
        while self._stuck < len(order):
            base = order[self._stuck]
            chosen = self._member_for(self._again[base].key)
            if chosen is not None:
                self._chosen = chosen
                return base
            self._stuck += 1
        limits = self.limits
        ahead = min(limits.look_ahead, limits.look_ahead_per_member * len(self._members))
        if len(order) >= ahead or len(self._delayed) >= limits.delayed:
            return NOTHING
        self.position = self.acked.first_missing(self.position)
        return self.position

    def offer(
        self, base: int, end: int, key: int, due_ms: int, now_ms: int
    ) -> SubscriptionConsumer | None:
        """Hand an entry to a member, whom this returns, or keep in mind that it waits.

        It is the one that contains the last result of `next_offset`.
        """
        entry = self._again.get(base)
        chosen = self._chosen
        if chosen is not None and entry is not None:
            assert self._order[self._stuck] == base, "no consumer received this entry"
            self._take(base)
            return self._hand(chosen, base, entry)
        assert end > self.position, "an entry that was offered before"
        self.position = end
        if entry is not None or base in self._owners or base in self._delayed:
            return None  # offered before `reopen`
        entry = PendingAck(end, key, 0)
        if due_ms > now_ms:
            self._delayed[base] = entry
            heapq.heappush(self._due, (due_ms, base))
            return None
        member = None if key in self._keys_again else self._member_for(key)
        if member is None:
            self._put(base, entry)
            return None
        return self._hand(member, base, entry)

    def skip(self, start: int, end: int) -> None:
        """Skip offsets without messages: they are not requested again."""
        self._drop_again(start, end)
        if start <= self.position < end:
            self.position = end

    def end_of_waiting(self, base: int) -> int:
        """Return the end of a waiting entry; -1 if no entry with this base offset waits."""
        entry = self._again.get(base)
        return -1 if entry is None else entry.end

    def redeliveries(self, base: int) -> int:
        """Return how often an entry was given back: by this count clients send dead letters."""
        return self._redelivered.get(base, 0)

    # -- what comes back

    def settle(self, member: SubscriptionConsumer | None, base: int) -> None:
        """Count what was acked of an entry, by its consumer or by another one."""
        holder = self._owners.get(base)
        if holder is None:
            self._settle_waiting(base)
            return
        entry = holder.handed[base]
        left = self._left(base, entry.end)
        done = entry.left - left
        if member is not None:
            member.acked += done
        holder.unacked -= done
        self.unacked -= done
        entry.left = left
        if not left:
            del holder.handed[base]
            del self._owners[base]
            self._forget(base, entry)
            self._release(entry.key)
        self._check_unblocked(holder)
        self._check_blocked()

    def settle_all(self) -> None:
        """Much was acked at once: look at everything."""
        for member in self._members.values():
            for base in list(member.handed):
                self.settle(None, base)
        for base in [*self._order, *self._delayed]:
            self._settle_waiting(base)
        self._settle_claimed()

    def give_back(self, member: SubscriptionConsumer, bases: Iterable[int] | None) -> None:
        """Take entries back from a consumer, all if `bases` is None, to redeliver them."""
        given: dict[int, PendingAck] = {}
        for base in list(member.handed) if bases is None else bases:
            entry = member.handed.pop(base, None)
            if entry is None:
                continue
            member.redelivered += entry.left
            self._redelivered[base] = self._redelivered.get(base, 0) + 1
            self._let_go(member, base, entry)
            given[base] = entry
        self._put_all(given)
        self._check_unblocked(member)
        self._check_blocked()

    def reopen(self, offset: int) -> None:
        """Hand out offsets from this one on again that a transaction gave back.

        It counts as a redelivery, of a batch as a whole, as in Pulsar.
        """
        for member in self._members.values():
            grown = [
                base
                for base, entry in member.handed.items()
                if entry.end > offset and self._left(base, entry.end) > entry.left
            ]
            self.give_back(member, grown)
        self._settle_claimed()
        self.position = min(self.position, offset)

    def rewind(self) -> None:
        """Begin again at the mark: all entries are taken back."""
        self.position = self.acked.mark
        self._order.clear()
        self._again.clear()
        self._keys_again.clear()
        self._owners.clear()
        self._holders.clear()
        self._redelivered.clear()
        self._claimed.clear()
        self._delayed.clear()
        self._due.clear()
        self._stuck = 0
        for member in self._members.values():
            member.handed.clear()
            self.unacked -= member.unacked
            member.unacked = 0
            self._check_unblocked(member)
        self._check_blocked()

    # -- what is due later

    @property
    def delayed(self) -> int:
        """How many entries wait for their time."""
        return len(self._delayed)

    @property
    def next_due_ms(self) -> int | None:
        """When the next of them is due."""
        while self._due and self._due[0][1] not in self._delayed:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def release_due(self, now_ms: int) -> bool:
        """Let those that are due be handed out; whether there were any."""
        found = False
        while self._due and self._due[0][0] <= now_ms:
            _, base = heapq.heappop(self._due)
            entry = self._delayed.pop(base, None)
            if entry is not None:
                self._put(base, entry)
                found = True
        return found

    # -- inside

    def _member_for(self, key: int) -> SubscriptionConsumer | None:
        """Return the consumer that may have an entry of this key now."""
        if self._assigner is None:
            holder = self._holders.get(key) if key != KEYLESS else None
            if holder is None:
                return _first(self._turns) if self._turns else None
            holding = self._members.get(holder[0])
            return holding if holding is not None and holding.ready else None
        member = self._assigner.member_of(key)
        if member is None or not member.ready:
            return None
        if not member.out_of_order:
            holder = self._holders.get(key)
            if holder is not None and holder[0] != member.joined:
                return None
        return member

    def _hand(
        self, member: SubscriptionConsumer, base: int, entry: PendingAck
    ) -> SubscriptionConsumer | None:
        key = entry.key
        left = entry.left = self._left(base, entry.end)
        if not left:  # acked from elsewhere meanwhile
            self._forget(base, entry)
            return None
        member.handed[base] = entry
        self._owners[base] = member
        member.demand -= left
        member.unacked += left
        self.unacked += left
        if key != KEYLESS:
            holder = self._holders.get(key)
            if holder is None:
                self._holders[key] = [member.joined, 1]
            else:
                holder[0] = member.joined
                holder[1] += 1
        limits = self.limits
        if limits.member_unacked and member.unacked >= limits.member_unacked:
            member.blocked = True
        if not member.ready:
            self.refresh(member)
        elif self._assigner is None:
            self._streak += left
            if self._streak >= TURN_MESSAGES:
                _end_turn(self._turns[member.priority])
                self._streak = 0
        if limits.unacked and self.unacked >= limits.unacked:
            self.blocked = True
        return member

    def _forget(self, base: int, entry: PendingAck) -> None:
        """Forget an entry and how often it was given back; not if an abort may bring it back."""
        if self.acked.is_pending(base, entry.end):
            self._claimed[base] = entry
        else:
            self._redelivered.pop(base, None)

    def _settle_claimed(self) -> None:
        """Redeliver the entries whose acks were given back, and forget those that are acked."""
        given: dict[int, PendingAck] = {}
        for base, entry in list(self._claimed.items()):
            if self._left(base, entry.end):
                given[base] = self._claimed.pop(base)
                self._redelivered[base] = self._redelivered.get(base, 0) + 1
            elif not self.acked.is_pending(base, entry.end):
                del self._claimed[base]
                self._redelivered.pop(base, None)
        self._put_all(given)

    def _left(self, base: int, end: int) -> int:
        acked = self.acked
        if not acked.acked_above and base >= acked.mark:
            return end - base
        return sum(stop - start for start, stop in acked.missing(base, end))

    def _let_go(self, member: SubscriptionConsumer, base: int, entry: PendingAck) -> None:
        del self._owners[base]
        member.unacked -= entry.left
        self.unacked -= entry.left
        self._release(entry.key)

    def _release(self, key: int) -> None:
        if key == KEYLESS:
            return
        holder = self._holders.get(key)
        if holder is None:
            return
        holder[1] -= 1
        if not holder[1]:
            del self._holders[key]
            if key in self._keys_again:
                self._stuck = 0

    def _put(self, base: int, entry: PendingAck) -> None:
        """Put an entry into `again`."""
        order, key = self._order, entry.key
        if order and base < order[-1]:
            insort(order, base)
            self._stuck = 0
        else:
            order.append(base)
        self._again[base] = entry
        if key != KEYLESS:
            self._keys_again[key] = self._keys_again.get(key, 0) + 1

    def _put_all(self, entries: Mapping[int, PendingAck]) -> None:
        """Put entries into `again`: at once, where one by one would move much memory often."""
        if len(entries) < SORTED_FROM:
            for base, entry in entries.items():
                self._put(base, entry)
            return
        self._order += entries
        self._order.sort()
        self._stuck = 0
        self._again.update(entries)
        for entry in entries.values():
            if entry.key != KEYLESS:
                self._keys_again[entry.key] = self._keys_again.get(entry.key, 0) + 1

    def _take(self, base: int) -> None:
        """Take an entry out of `again`."""
        at = bisect_left(self._order, base)
        del self._order[at]
        if at < self._stuck:
            self._stuck -= 1
        key = self._again.pop(base).key
        if key != KEYLESS:
            self._keys_again[key] -= 1
            if not self._keys_again[key]:
                del self._keys_again[key]

    def _settle_waiting(self, base: int) -> None:
        """Remove a waiting entry all of whose messages were acked."""
        entry = self._again.get(base)
        if entry is not None:
            if not self._left(base, entry.end):
                self._take(base)
                self._forget(base, entry)
            return
        entry = self._delayed.get(base)
        if entry is not None and not self._left(base, entry.end):
            del self._delayed[base]

    def _drop_again(self, start: int, end: int) -> None:
        order = self._order
        for base in order[bisect_left(order, start) : bisect_left(order, end)]:
            self._take(base)
            self._redelivered.pop(base, None)

    def set_limits(self, limits: SharedLimits) -> None:
        """Obey other limits from here on."""
        self.limits = limits
        for member in self._members.values():
            member.blocked = 0 < limits.member_unacked <= member.unacked
            self.refresh(member)
        self.blocked = 0 < limits.unacked <= self.unacked

    def _check_unblocked(self, member: SubscriptionConsumer) -> None:
        if member.blocked and member.unacked <= self.limits.member_unacked // 2:
            member.blocked = False
        self.refresh(member)

    def _check_blocked(self) -> None:
        if self.blocked and self.unacked <= self.limits.unacked // 2:
            self.blocked = False


def _first(turns: dict[int, OrderedDict[int, SubscriptionConsumer]]) -> SubscriptionConsumer:
    """Return the consumer whose turn it is, of those with the lowest priority."""
    return next(iter(next(iter(turns.values())).values()))


def _end_turn(turns: OrderedDict[int, SubscriptionConsumer]) -> None:
    """Let the next consumer be first."""
    turns.move_to_end(next(iter(turns)))
