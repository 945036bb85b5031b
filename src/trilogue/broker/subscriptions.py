"""Durable subscriptions: named cursors on one partition that outlive their readers and the process.

What a subscription did is told to the journal as facts, each of which says what has changed:

    made, gone, moved, properties    whoever asked is answered when the fact is durable
    acked                            nobody waits, unless somebody asked to be told

Memory moves at once, in the order of the facts, except that a new subscription is there for others
when it is durable. So memory, and a snapshot of it, may know facts that a crash then takes back.
That loses nothing: an ack was said, and only its answer would have promised that it stays; a
deletion or a move was asked for, and nobody was told that it had happened. Replaying facts over a
newer snapshot ends where the facts end: making and moving begin anew, acks only add, and what is
said of a subscription that is not there is said of one that is gone later.

Positions stay between the partition's start and its durable end. When the start moves up (retention
or a deletion, in meta before anybody sees it), marks below it follow; no fact says so, since the
start is known again after a crash. When a salvaged log ends before a mark, the mark moves down, and
that is a fact: else the next messages would count as acked one day.

A door that acks many messages at once should say so at once: one call is one fact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final
from typing import Protocol as Port

from trilogue.broker.acks import Acked
from trilogue.broker.errors import (
    InvalidName,
    MetadataTooLarge,
    StorageFailed,
    TooManyPositions,
    UnknownSubscription,
    UnknownTopic,
    failure,
)
from trilogue.broker.facts import FactKind, SnapshotRow
from trilogue.broker.promise import Promise
from trilogue.broker.subscription_facts import (
    NOTHING_BELOW,
    RANGES_IN_FACT,
    Made,
    Ranges,
    SubscriptionKey,
    decode_acked,
    decode_gone,
    decode_made,
    decode_moved,
    decode_properties,
    decode_state,
    encode_acked,
    encode_gone,
    encode_made,
    encode_moved,
    encode_properties,
    encode_state,
    subscription_key,
)
from trilogue.log.errors import LogError

NAME_SIZE_MAX: Final = 1_024  # bytes of UTF-8


class Journal(Port):
    """What subscriptions need of the journal."""

    def add_fact(self, kind: int, payload: bytes, patient: bool = False, /) -> None:
        """Put a fact into the window that is being filled."""

    def on_commit(self, callback: Callable[[BaseException | None], None], /) -> None:
        """Call back when everything added so far is durable, or never will be."""


class Bounds(Port):
    """What subscriptions need of a partition's log."""

    start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class SubscriptionLimits:
    """Bounds on what clients may leave with us.

    Of one subscription's acked ranges so many are kept in memory: an ack that would make another
    one is forgotten, and its message comes again. So many of them, the lowest, go into a snapshot:
    after a crash or an orderly end, messages of the others may come again.
    """

    count_max: int = 100_000
    properties_size_max: int = 64 << 10  # bytes of UTF-8, keys and values
    ranges_max: int = 1_000_000
    ranges_kept: int = 100_000


class Cursor:
    """One durable subscription: what it has acked, and the texts its owner gave it."""

    __slots__ = ("acked", "gone", "key", "made_ms", "properties")

    def __init__(self, made: Made) -> None:
        self.key, self.acked, self.made_ms, self.properties = made
        self.gone = False  # deleted, perhaps with its partition

    def __repr__(self) -> str:
        return f"Cursor({self.name!r} of {self.partition_id}, {self.acked})"

    @property
    def name(self) -> str:
        """The subscription's name, unique in its partition."""
        return self.key.name

    @property
    def partition_id(self) -> int:
        """Whose offsets these are."""
        return self.key.partition_id

    @property
    def mark(self) -> int:
        """Everything below is acked."""
        return self.acked.mark


_NONE: Mapping[str, Cursor] = MappingProxyType({})


class Subscriptions:
    """All durable subscriptions of this node.

    `known` says whether a partition exists, also before there is a log; `bounds` gives the log of
    one that does, from `attach` on.
    """

    def __init__(
        self,
        known: Callable[[int], bool],
        bounds: Callable[[int], Bounds | None],
        now_ms: Callable[[], int],
        limits: SubscriptionLimits | None = None,
    ) -> None:
        self.limits = limits or SubscriptionLimits()
        self._known = known
        self._bounds = bounds
        self._now_ms = now_ms
        self._journal: Journal | None = None
        self._partitions: dict[int, dict[str, Cursor]] = {}
        self._count = 0
        self._coming: dict[SubscriptionKey, Promise[Cursor]] = {}
        self._dirty: dict[SubscriptionKey, None] = {}
        self.listeners: list[Callable[[int, str], object]] = []
        """Told (partition id, name) when a mark was moved, but not by whoever reads there."""

    def attach(self, journal: Journal) -> None:
        """Begin to serve: the log has recovered, so positions can be compared with it."""
        self._journal = journal
        for cursor in list(self):
            log = self._bounds(cursor.partition_id)
            if log is not None:
                self._fit(cursor, log.start_offset, log.high_watermark)

    # -- what there is

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Cursor]:
        for cursors in self._partitions.values():
            yield from cursors.values()

    def of(self, partition_id: int) -> Mapping[str, Cursor]:
        """Return the subscriptions of a partition by name; a view, not to be kept."""
        self.follow_start(partition_id)
        return self._partitions.get(partition_id, _NONE)

    def find(self, partition_id: int, name: str) -> Cursor | None:
        """Return a subscription if there is one; one that is being made is not there yet."""
        cursor = self._partitions.get(partition_id, _NONE).get(name)
        log = None if cursor is None else self._bounds(partition_id)
        if cursor is not None and log is not None:
            self._raise(cursor, log.start_offset)
        return cursor

    def partition_ids(self) -> list[int]:
        """Return the ids of the partitions that have subscriptions."""
        return list(self._partitions)

    def needed(self, partition_id: int) -> int | None:
        """Return the lowest mark of a partition's subscriptions; None where there are none."""
        cursors = self._partitions.get(partition_id, _NONE)
        return min((cursor.acked.mark for cursor in cursors.values()), default=None)

    def backlog(self, cursor: Cursor) -> int:
        """Count the offsets that may be read and are not acked.

        Offsets that no message has any more, in compacted or converted entries, count too.
        """
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return 0
        self._raise(cursor, log.start_offset)
        return max(0, log.high_watermark - cursor.acked.mark - cursor.acked.acked_above)

    # -- what is asked

    def create(
        self, partition_id: int, name: str, mark: int, properties: Mapping[str, str] | None = None
    ) -> Promise[Cursor]:
        """Make a subscription, or return the one there is; kept when it is durable.

        It begins at `mark`, or as near to that as there are messages.
        """
        found = self.find(partition_id, name)
        if found is not None:
            return Promise.kept(found)
        key = SubscriptionKey(partition_id, name)
        coming = self._coming.get(key)
        if coming is not None:
            return coming
        properties = dict(properties or {})
        self._check(name, properties)
        if self._count + len(self._coming) >= self.limits.count_max:
            raise TooManyPositions(f"the broker keeps {self.limits.count_max} subscriptions")
        mark = self._within(partition_id, mark)
        made = Made(key, Acked(mark), self._now_ms(), properties)
        self._tell(FactKind.SUBSCRIPTION_MADE, encode_made(key, mark, made.made_ms, properties))
        promise: Promise[Cursor] = Promise()
        self._coming[key] = promise
        self._journal_now.on_commit(partial(self._made, made, promise))
        return promise

    def delete(self, partition_id: int, name: str) -> Promise[None]:
        """Forget a subscription; kept when that is durable. From now on it is not there."""
        cursor = self.find(partition_id, name)
        if cursor is None:
            raise UnknownSubscription("there is no such subscription")
        self._tell(FactKind.SUBSCRIPTION_GONE, encode_gone(cursor.key))
        self._forget(cursor)
        return self._durable()

    def ack(self, cursor: Cursor, ranges: Ranges) -> bool:
        """Add offsets to what is acked: half-open ranges; False if none was new.

        True at once; who has to answer waits for the journal's `on_commit`. What cannot have been
        read yet is passed over.
        """
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return False
        self._raise(cursor, log.start_offset)
        high_watermark, acked = log.high_watermark, cursor.acked
        added: list[tuple[int, int]] = []
        for start, asked_end in ranges:
            end = min(asked_end, high_watermark)
            if self._has_room(acked, start, end) and acked.ack(start, end):
                added.append((start, end))
        if not added:
            return False
        self._dirty[cursor.key] = None
        for first in range(0, len(added), RANGES_IN_FACT):
            some = added[first : first + RANGES_IN_FACT]
            payload = encode_acked(cursor.key, NOTHING_BELOW, some)
            self._tell(FactKind.SUBSCRIPTION_ACKED, payload, patient=True)
        return True

    def ack_until(self, cursor: Cursor, end: int) -> bool:
        """Add everything below `end` to what is acked, as `ack` does; False if nothing was new."""
        log = self._bounds(cursor.partition_id)
        if log is None or cursor.gone:
            return False
        self._raise(cursor, log.start_offset)
        end = min(end, log.high_watermark)
        if not cursor.acked.ack_until(end):
            return False
        self._dirty[cursor.key] = None
        payload = encode_acked(cursor.key, end, ())
        self._tell(FactKind.SUBSCRIPTION_ACKED, payload, patient=True)
        return True

    def reset(self, cursor: Cursor, mark: int) -> Promise[None]:
        """Begin again at `mark`, or as near to that as there are messages; kept when durable."""
        self._check_there(cursor)
        mark = self._within(cursor.partition_id, mark)
        self._tell(FactKind.SUBSCRIPTION_MOVED, encode_moved(cursor.key, mark))
        cursor.acked.reset(mark)
        self._dirty[cursor.key] = None
        return self._durable()

    def set_properties(self, cursor: Cursor, properties: Mapping[str, str]) -> Promise[None]:
        """Put other texts in the place of a subscription's own; kept when durable."""
        self._check_there(cursor)
        properties = dict(properties)
        self._check(cursor.name, properties)
        payload = encode_properties(cursor.key, properties)
        self._tell(FactKind.SUBSCRIPTION_PROPERTIES, payload)
        cursor.properties = properties
        self._dirty[cursor.key] = None
        return self._durable()

    # -- partitions whose messages go

    def skip_until(self, partition_id: int, end: int) -> int:
        """Move all marks that are below an offset, on nobody's behalf; how many there were."""
        moved = 0
        for cursor in list(self.of(partition_id).values()):
            if self.ack_until(cursor, end):
                moved += 1
                self._tell_listeners(cursor)
        return moved

    def started_later(self, partition_ids: Iterable[int]) -> None:
        """Let marks follow the starts of partitions, which have moved up."""
        for partition_id in partition_ids:
            for cursor in self.follow_start(partition_id):
                self._tell_listeners(cursor)

    def follow_start(self, partition_id: int) -> list[Cursor]:
        """Move marks up that are below the partition's start, and say whose."""
        cursors = self._partitions.get(partition_id)
        log = self._bounds(partition_id) if cursors else None
        if not cursors or log is None:
            return []
        return [each for each in cursors.values() if self._raise(each, log.start_offset)]

    def _tell_listeners(self, cursor: Cursor) -> None:
        for listener in self.listeners:
            listener(cursor.partition_id, cursor.name)

    def drop(self, partition_ids: Collection[int]) -> None:
        """Forget the subscriptions of partitions that were deleted."""
        for partition_id in partition_ids:
            for cursor in list(self._partitions.get(partition_id, _NONE).values()):
                self._forget(cursor)

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return [SnapshotRow(subscription_key(key), self._value(key)) for key in dirty]

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row; it need not be written to the next snapshot."""
        made = decode_state(payload)
        if self._known(made.key.partition_id):
            self._put(made)
            del self._dirty[made.key]
        else:
            self._dirty[made.key] = None  # the partition was deleted after the last cut

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start."""
        if kind == FactKind.SUBSCRIPTION_MADE:
            made = decode_made(payload)
            if self._known(made.key.partition_id):
                self._put(made)
            return
        if kind == FactKind.SUBSCRIPTION_GONE:
            cursor = self._get(decode_gone(payload))
            if cursor is not None:
                self._forget(cursor)
            return
        key = self._replay_change(kind, payload)
        if self._get(key) is not None:
            self._dirty[key] = None

    def _replay_change(self, kind: int, payload: bytes) -> SubscriptionKey:
        if kind == FactKind.SUBSCRIPTION_ACKED:
            key, until, ranges = decode_acked(payload)
            cursor = self._get(key)
            if cursor is not None:
                cursor.acked.ack_until(until)
                for start, end in ranges:
                    cursor.acked.ack(start, end)
            return key
        if kind == FactKind.SUBSCRIPTION_MOVED:
            key, mark = decode_moved(payload)
            cursor = self._get(key)
            if cursor is not None:
                cursor.acked.reset(mark)
            return key
        key, properties = decode_properties(payload)
        cursor = self._get(key)
        if cursor is not None:
            cursor.properties = properties
        return key

    # -- inside

    @property
    def _journal_now(self) -> Journal:
        assert self._journal is not None, "no log yet"
        return self._journal

    def _get(self, key: SubscriptionKey) -> Cursor | None:
        return self._partitions.get(key.partition_id, _NONE).get(key.name)

    def _put(self, made: Made) -> Cursor:
        """Add a subscription, or begin anew with one that is there."""
        cursors = self._partitions.setdefault(made.key.partition_id, {})
        self._count += made.key.name not in cursors
        cursor = cursors[made.key.name] = Cursor(made)
        self._dirty[made.key] = None
        return cursor

    def _forget(self, cursor: Cursor) -> None:
        cursors = self._partitions[cursor.partition_id]
        del cursors[cursor.name]
        if not cursors:
            del self._partitions[cursor.partition_id]
        self._count -= 1
        cursor.gone = True
        self._dirty[cursor.key] = None

    def _made(self, made: Made, promise: Promise[Cursor], error: BaseException | None) -> None:
        """The fact of a new subscription is durable, or never will be."""
        del self._coming[made.key]
        if error is not None:
            promise.set_error(StorageFailed(str(error)))
        elif not self._known(made.key.partition_id):
            promise.set_error(UnknownTopic("the topic was deleted meanwhile"))
        else:
            promise.set_result(self._put(made))

    def _tell(self, kind: FactKind, payload: bytes, *, patient: bool = False) -> None:
        try:
            self._journal_now.add_fact(kind, payload, patient)
        except LogError as error:
            raise failure(error) from error

    def _durable(self) -> Promise[None]:
        promise: Promise[None] = Promise()

        def settle(error: BaseException | None) -> None:
            if error is None:
                promise.set_result(None)
            else:
                promise.set_error(StorageFailed(str(error)))

        self._journal_now.on_commit(settle)
        return promise

    def _check(self, name: str, properties: Mapping[str, str]) -> None:
        if not name or len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidName(f"a subscription's name has 1 to {NAME_SIZE_MAX} bytes")
        texts: Iterable[str] = (text for each in properties.items() for text in each)
        if sum(len(text.encode()) for text in texts) > self.limits.properties_size_max:
            most = self.limits.properties_size_max
            raise MetadataTooLarge(f"a subscription's properties have {most} bytes at most")

    @staticmethod
    def _check_there(cursor: Cursor) -> None:
        if cursor.gone:
            raise UnknownSubscription("the subscription was deleted")

    def _within(self, partition_id: int, mark: int) -> int:
        log = self._bounds(partition_id)
        if log is None:
            raise UnknownTopic("the topic was deleted")
        return min(max(mark, log.start_offset), log.high_watermark)

    def _has_room(self, acked: Acked, start: int, end: int) -> bool:
        if acked.range_count < self.limits.ranges_max or start <= acked.mark:
            return True
        return acked.contains(start - 1) or acked.contains(end)

    def _raise(self, cursor: Cursor, start_offset: int) -> bool:
        if not cursor.acked.ack_until(start_offset):
            return False
        self._dirty[cursor.key] = None
        return True

    def _fit(self, cursor: Cursor, start_offset: int, end: int) -> None:
        """Move a cursor between the start and the end of what a recovery found."""
        self._raise(cursor, start_offset)
        acked = cursor.acked
        ranges = acked.ranges()
        if acked.mark <= end and (not ranges or ranges[-1][1] <= end):
            return
        self.reset(cursor, acked.mark)
        self.ack(cursor, ranges)

    def _value(self, key: SubscriptionKey) -> bytes | None:
        cursor = self._get(key)
        if cursor is None:
            return None
        state = Made(key, cursor.acked, cursor.made_ms, cursor.properties)
        return encode_state(state, self.limits.ranges_kept)
