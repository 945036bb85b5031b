"""Cursors of durable Pulsar subscriptions: positions that outlive consumers and the process.

Each change is a fact in the journal:

    created, deleted, moved, properties    the caller is answered when the fact is durable
    acked                                  answered at once, unless the client wants a receipt

Memory moves at once, in the order of the facts, because dispatch needs every ack at once; only a
new subscription is visible after its fact is durable. So memory, and a snapshot of it, may include
facts that a crash then takes back. That loses nothing: an ack without a receipt promises nothing,
and a deletion or a move that is taken back was never answered. Replaying facts over a newer
snapshot ends where the facts end: creating and moving begin from nothing, acks only add, and a fact
about a subscription that does not exist concerns one that is deleted later in the journal.

Cursors stay between the partition's start and its durable end. When the start moves up (retention
or DeleteRecords, in meta before any reader sees it), marks below it follow; no fact records that,
since the start is known again after a crash. When a salvaged log ends before a mark, the mark moves
down, which is a fact: otherwise the next messages would count as acked one day.

One call is one fact: a gateway that acks many messages at once passes them in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol as Port

import msgspec

from trilogue.broker.cursors.cursor_facts import (
    NOTHING_BELOW,
    RANGES_IN_FACT,
    Ranges,
    decode_acked,
    decode_created,
    decode_moved,
    decode_properties,
    decode_removal,
    decode_snapshot,
    encode_acked,
    encode_created,
    encode_moved,
    encode_properties,
    encode_removal,
    encode_snapshot,
    snapshot_key,
    subscription_key,
)
from trilogue.broker.cursors.position import Cursor, PositionKey
from trilogue.broker.cursors.position_store import (
    NAME_SIZE_MAX,
    Fact,
    PositionStore,
)
from trilogue.broker.errors import (
    InvalidName,
    MetadataTooLarge,
    TooManyPositions,
    UnknownSubscription,
    UnknownTopic,
)
from trilogue.broker.facts import FactJournal, FactKind, Protocol, SnapshotRow
from trilogue.broker.promise import Promise


class Bounds(Port):
    """What cursors need of a partition's log."""

    start_offset: int

    @property
    def high_watermark(self) -> int:
        """The end of what is durable."""


class SubscriptionLimits(msgspec.Struct, frozen=True):
    """Bounds on what clients may store.

    `ranges_max` bounds the acked ranges of one cursor in memory: an ack that would add another one
    is ignored, and its message is delivered again. `ranges_kept` bounds those in a snapshot, the
    lowest ones: after a restart messages of the others may be delivered again.
    """

    count_max: int = 100_000
    properties_size_max: int = 64 << 10  # bytes of UTF-8, keys and values
    ranges_max: int = 1_000_000
    ranges_kept: int = 100_000


class SubscriptionCursors:
    """All durable subscriptions of this node.

    `partition_exists` answers also before there is a log; `bounds` returns the log of a partition
    that exists, from `attach` on.
    """

    def __init__(
        self,
        partition_exists: Callable[[int], bool],
        bounds: Callable[[int], Bounds | None],
        now_ms: Callable[[], int],
        limits: SubscriptionLimits | None = None,
    ) -> None:
        self.limits = limits or SubscriptionLimits()
        self._store: PositionStore[Cursor] = PositionStore(
            partition_exists,
            row_key=snapshot_key,
            encode_row=lambda _, cursor: encode_snapshot(cursor, self.limits.ranges_kept),
            indexed=Protocol.PULSAR,
        )
        self._bounds = bounds
        self._now_ms = now_ms
        self._creating: dict[PositionKey, Promise[Cursor]] = {}
        self.listeners: list[Callable[[int, str], object]] = []
        """Called with (partition id, name) when a mark is moved by other means than its reader."""

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve: the log has recovered, so cursors can be compared with it."""
        self._store.attach(journal)
        self._fit_all(list(self))

    def adopt(self, partition_ids: Iterable[int]) -> None:
        """Compare the cursors of partitions with their logs, which were opened now."""
        for partition_id in partition_ids:
            self._fit_all(list(self._store.of_partition(partition_id).values()))

    def _fit_all(self, cursors: Iterable[Cursor]) -> None:
        for cursor in cursors:
            log = self._bounds(cursor.partition_id)
            if log is not None:
                self._fit(cursor, log.start_offset, log.high_watermark)

    # -- lookups

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._store)

    def of_partition(self, partition_id: int) -> Mapping[str, Cursor]:
        """Return the cursors of a partition by subscription; a view, not to be kept."""
        self.follow_start(partition_id)
        return self._store.of_partition(partition_id)

    def find_cursor(self, partition_id: int, name: str) -> Cursor | None:
        """Return the cursor of a subscription, if it exists and its creation is durable."""
        cursor = self._store.of_partition(partition_id).get(name)
        log = None if cursor is None else self._bounds(partition_id)
        if cursor is not None and log is not None:
            self._raise_mark(cursor, log.start_offset)
        return cursor

    def partition_ids(self) -> list[int]:
        """Return the ids of the partitions that have subscriptions."""
        return self._store.partition_ids()

    def lowest_mark(self, partition_id: int) -> int | None:
        """Return the lowest mark of a partition's cursors; None where there are none."""
        cursors = self._store.of_partition(partition_id)
        return min((cursor.mark for cursor in cursors.values()), default=None)

    def backlog(self, cursor: Cursor) -> int:
        """Return the number of readable offsets that are not acked.

        Offsets without a message, in compacted or converted entries, count too.
        """
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return 0
        self._raise_mark(cursor, log.start_offset)
        return max(0, log.high_watermark - cursor.mark - cursor.acked_above)

    # -- changes by clients

    def create(
        self, partition_id: int, name: str, mark: int, properties: Mapping[str, str] | None = None
    ) -> Promise[Cursor]:
        """Create a subscription or return the existing one; the promise is kept when durable.

        It begins at `mark`, or at the nearest offset that the partition has. Raises InvalidName,
        MetadataTooLarge, TooManyPositions, UnknownTopic.
        """
        found = self.find_cursor(partition_id, name)
        if found is not None:
            return Promise.resolved(found)
        key = subscription_key(partition_id, name)
        creating = self._creating.get(key)
        if creating is not None:
            return creating
        properties = dict(properties or {})
        self._check_texts(name, properties)
        if len(self) + len(self._creating) >= self.limits.count_max:
            raise TooManyPositions(f"the broker keeps {self.limits.count_max} subscriptions")
        cursor = Cursor(key, self._clamp(partition_id, mark), self._now_ms(), properties)
        fact = Fact(FactKind.SUBSCRIPTION_CREATED, encode_created(cursor))
        written = self._store.write((fact,))
        promise = self._creating[key] = Promise[Cursor]()
        written.then(partial(self._on_created, cursor, promise))
        return promise

    def delete(self, partition_id: int, name: str) -> Promise[None]:
        """Delete a subscription, at once; kept when that is durable. Raises UnknownSubscription."""
        cursor = self.find_cursor(partition_id, name)
        if cursor is None:
            raise UnknownSubscription("there is no such subscription")
        durable = self._write(FactKind.SUBSCRIPTION_DELETED, encode_removal(cursor.key))
        self._remove(cursor.key)
        return durable

    def ack(self, cursor: Cursor, ranges: Ranges) -> bool:
        """Ack half-open ranges of offsets; False if none of them is new.

        It returns at once; a caller that has to answer waits for the journal's `on_commit`.
        Offsets that no reader can have seen yet are ignored.
        """
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return False
        self._raise_mark(cursor, log.start_offset)
        high_watermark = log.high_watermark
        added: list[tuple[int, int]] = []
        for start, last in ranges:
            end = min(last, high_watermark)
            if self._has_room(cursor, start, end) and cursor.ack(start, end):
                added.append((start, end))
        if not added:
            return False
        self._store.mark_dirty(cursor.key)
        for first in range(0, len(added), RANGES_IN_FACT):
            some = added[first : first + RANGES_IN_FACT]
            self._write_ack(encode_acked(cursor.key, NOTHING_BELOW, some))
        return True

    def ack_until(self, cursor: Cursor, end: int) -> bool:
        """Ack everything below `end`, as `ack` does; False if nothing is new."""
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return False
        self._raise_mark(cursor, log.start_offset)
        end = min(end, log.high_watermark)
        if not cursor.ack_until(end):
            return False
        self._store.mark_dirty(cursor.key)
        self._write_ack(encode_acked(cursor.key, end, ()))
        return True

    def ack_when_durable(self, cursor: Cursor, until: int, ranges: Ranges) -> None:
        """Ack everything below `until` and ranges, as `ack` does, but move when that is durable."""
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return
        until = min(until, log.high_watermark)
        facts = []
        for first in range(0, len(ranges) or 1, RANGES_IN_FACT):
            some = ranges[first : first + RANGES_IN_FACT]
            apply = partial(self._apply_ack, cursor, until, some)
            payload = encode_acked(cursor.key, until, some)
            facts.append(Fact(FactKind.SUBSCRIPTION_ACKED, payload, apply))
        self._store.write(facts)

    def _apply_ack(self, cursor: Cursor, until: int, ranges: Ranges) -> None:
        if cursor.gone:
            return
        cursor.ack_until(until)
        for start, end in ranges:
            if self._has_room(cursor, start, end):
                cursor.ack(start, end)
        self._store.mark_dirty(cursor.key)

    def reset(self, cursor: Cursor, mark: int) -> Promise[None]:
        """Move a cursor to `mark`, or to the nearest offset that exists; kept when durable."""
        self._check_exists(cursor)
        mark = self._clamp(cursor.partition_id, mark)
        durable = self._write(FactKind.SUBSCRIPTION_MOVED, encode_moved(cursor.key, mark))
        cursor.reset(mark)
        self._store.mark_dirty(cursor.key)
        return durable

    def set_properties(self, cursor: Cursor, properties: Mapping[str, str]) -> Promise[None]:
        """Replace the properties of a subscription; kept when durable."""
        self._check_exists(cursor)
        properties = dict(properties)
        self._check_texts(cursor.name, properties)
        payload = encode_properties(cursor.key, properties)
        durable = self._write(FactKind.SUBSCRIPTION_PROPERTIES, payload)
        cursor.properties = properties
        self._store.mark_dirty(cursor.key)
        return durable

    # -- partitions whose messages go

    def skip_until(self, partition_id: int, end: int) -> int:
        """Move all marks that are below an offset up to it; return how many there were."""
        moved = 0
        for cursor in list(self.of_partition(partition_id).values()):
            acked = cursor.mark + cursor.acked_above
            if self.ack_until(cursor, end):
                moved += 1
                cursor.expired += cursor.mark + cursor.acked_above - acked
                self._notify(cursor)
        return moved

    def on_starts_moved(self, partition_ids: Iterable[int]) -> None:
        """Let marks follow the starts of partitions, which have moved up."""
        for partition_id in partition_ids:
            for cursor in self.follow_start(partition_id):
                self._notify(cursor)

    def follow_start(self, partition_id: int) -> list[Cursor]:
        """Move marks below the partition's start up to it; return the cursors that moved."""
        cursors = self._store.of_partition(partition_id)
        log = self._bounds(partition_id) if cursors else None
        if log is None:
            return []
        return [each for each in cursors.values() if self._raise_mark(each, log.start_offset)]

    def _notify(self, cursor: Cursor) -> None:
        for listener in self.listeners:
            listener(cursor.partition_id, cursor.name)

    def drop(self, partition_ids: Collection[int]) -> None:
        """Remove the subscriptions of partitions that were deleted."""
        for cursor in self._store.drop(partition_ids):
            cursor.gone = True

    def close(self, partition_ids: Iterable[int]) -> None:
        """Change the cursors of partitions no more; the next snapshot has them as they are."""
        for partition_id in partition_ids:
            for cursor in self._store.of_partition(partition_id).values():
                cursor.gone = True

    def release(self, gives_partition: Callable[[int], bool]) -> None:
        """Remove the cursors of partitions that another node has now."""
        self._store.release(lambda _protocol, _name, each: gives_partition(each))

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        return self._store.snapshot()

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row."""
        cursor = decode_snapshot(payload)
        self._store.load(cursor.key, cursor)

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start."""
        if kind == FactKind.SUBSCRIPTION_CREATED:
            self._put(decode_created(payload))
            return
        if kind == FactKind.SUBSCRIPTION_DELETED:
            self._remove(decode_removal(payload))
            return
        key = self._replay_change(kind, payload)
        if self._store.get(*key) is not None:
            self._store.mark_dirty(key)

    def _replay_change(self, kind: int, payload: bytes) -> PositionKey:
        if kind == FactKind.SUBSCRIPTION_ACKED:
            key, until, ranges = decode_acked(payload)
            cursor = self._store.get(*key)
            if cursor is not None:
                cursor.ack_until(until)
                for start, end in ranges:
                    cursor.ack(start, end)
            return key
        if kind == FactKind.SUBSCRIPTION_MOVED:
            key, mark = decode_moved(payload)
            cursor = self._store.get(*key)
            if cursor is not None:
                cursor.reset(mark)
            return key
        key, properties = decode_properties(payload)
        cursor = self._store.get(*key)
        if cursor is not None:
            cursor.properties = properties
        return key

    # -- inside

    def _put(self, cursor: Cursor) -> None:
        """Add a cursor, or replace the one of this key."""
        self._store.put(Protocol.PULSAR, cursor.name, ((cursor.partition_id, cursor),))

    def _remove(self, key: PositionKey) -> None:
        for cursor in self._store.remove(key.protocol, key.name, (key.partition_id,)):
            cursor.gone = True

    def _on_created(self, cursor: Cursor, promise: Promise[Cursor], written: Promise[None]) -> None:
        """Settle a creation whose fact is durable, or failed."""
        del self._creating[cursor.key]
        if written.error is not None:
            promise.set_error(written.error)
        elif not self._store.partition_exists(cursor.partition_id):
            promise.set_error(UnknownTopic("the topic was deleted meanwhile"))
        else:
            self._put(cursor)
            promise.set_result(cursor)

    def _write(self, kind: FactKind, payload: bytes) -> Promise[None]:
        return self._store.write((Fact(kind, payload),))

    def _write_ack(self, payload: bytes) -> None:
        self._store.add_fact(FactKind.SUBSCRIPTION_ACKED, payload, acks_from_memory=True)

    def _check_texts(self, name: str, properties: Mapping[str, str]) -> None:
        if not name or len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidName(f"a subscription's name has 1 to {NAME_SIZE_MAX} bytes")
        texts: Iterable[str] = (text for each in properties.items() for text in each)
        if sum(len(text.encode()) for text in texts) > self.limits.properties_size_max:
            most = self.limits.properties_size_max
            raise MetadataTooLarge(f"a subscription's properties have {most} bytes at most")

    @staticmethod
    def _check_exists(cursor: Cursor) -> None:
        if cursor.gone:
            raise UnknownSubscription("the subscription was deleted")

    def _clamp(self, partition_id: int, mark: int) -> int:
        log = self._bounds(partition_id)
        if log is None:
            raise UnknownTopic("the topic was deleted")
        return min(max(mark, log.start_offset), log.high_watermark)

    def _has_room(self, cursor: Cursor, start: int, end: int) -> bool:
        if cursor.range_count < self.limits.ranges_max or start <= cursor.mark:
            return True
        return cursor.contains(start - 1) or cursor.contains(end)

    def _raise_mark(self, cursor: Cursor, start_offset: int) -> bool:
        if not cursor.ack_until(start_offset):
            return False
        self._store.mark_dirty(cursor.key)
        return True

    def _fit(self, cursor: Cursor, start_offset: int, end: int) -> None:
        """Move a cursor between the start and the end of what a recovery found."""
        self._raise_mark(cursor, start_offset)
        ranges = cursor.ranges()
        if cursor.mark <= end and (not ranges or ranges[-1][1] <= end):
            return
        self.reset(cursor, cursor.mark)
        self.ack(cursor, ranges)
