"""Registrations: the consumer of a TubeMQ group on a partition, and its position.

A partition has one registration per group, kept alive by each request, and unregistered or
is removed after a session's time without requests. Its position has two parts:

    committed    confirmed; a committed offset of Protocol.TUBEMQ, durable with its fact
    temporary    how far beyond that messages were handed out and not confirmed yet

Handing out sets the temporary part. A confirm adds it to the committed one, a refusal drops it, so
that the same messages come again. What a read passed without handing out anything is confirmed by
itself.

While there is a reader its committed part in memory is what counts; the fact is on its way to the
disk. The next registration starts from what is on its way, so that no position goes back.
Groups without registrations have only their committed offsets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto, unique
from typing import Final, NamedTuple

import msgspec

from trilogue.broker.access.authorizer import ANONYMOUS, Principal
from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.errors import NotAllowed, TooManyPositions
from trilogue.broker.facts import CursorMove
from trilogue.broker.promise import Promise
from trilogue.broker.topics.partition import Partition
from trilogue.broker.tubemq.flow_control import ReadMeter

NO_OFFSET: Final = -1

_Key = tuple[int, str]  # partition id, group


@unique
class StartFrom(Enum):
    """Where a registration begins to read."""

    FIRST_MESSAGE = auto()  # at the position of the group, else at the first message
    END = auto()  # at the position of the group, else at the end
    ALWAYS_END = auto()  # at the end


class RegistrationLimits(msgspec.Struct, frozen=True):
    """What readers may hold, and how long silence is forgiven."""

    session_ms: int = 30_000
    readers_max: int = 100_000
    filters_max: int = 500  # of one reader
    filter_size_max: int = 256  # characters of one
    text_size_max: int = 32 << 20  # characters of names and filters of all registrations


class TubeConsumer:
    """One client of a group with the partitions that it reads."""

    __slots__ = ("client_id", "group", "has_left", "principal", "readers", "wakes")

    def __init__(self, group: str, client_id: str, principal: Principal = ANONYMOUS) -> None:
        self.group = group
        self.client_id = client_id
        self.principal = principal  # the only one that may act for it
        self.readers: dict[int, Registration] = {}
        self.has_left = False  # its group: it may still confirm and unregister
        self.wakes: object | None = None  # state of the gateway

    def __repr__(self) -> str:
        return f"<Consumer {self.client_id} of {self.group}: {len(self.readers)}>"


class Registration(msgspec.Struct, eq=False):
    """One registration. Offsets are of its partition; `registered_ms` and `seen_ms` by a clock.

    `broker_id` is the node's when it was made. With another one the client names it no more.
    """

    partition: Partition
    consumer: TubeConsumer
    filters: frozenset[str]
    committed: int
    registered_ms: int
    seen_ms: int
    broker_id: int = 0
    temporary: int = 0
    is_gone: bool = False
    text_size: int = 0  # characters of its names and filters
    meter: ReadMeter = msgspec.field(default_factory=ReadMeter)
    get_state: object | None = None  # state of the gateway

    @property
    def key(self) -> _Key:
        """What there is one reader of."""
        return self.partition.partition_id, self.consumer.group

    @property
    def group(self) -> str:
        """The group that it reads for."""
        return self.consumer.group

    @property
    def client_id(self) -> str:
        """The client that reads."""
        return self.consumer.client_id

    @property
    def next_offset(self) -> int:
        """Behind what was handed out last."""
        return self.committed + self.temporary


class _PendingCommit(NamedTuple):
    offset: int
    promise: Promise[None]


class Registrations:
    """All registrations of this node.

    `commit` makes moves durable, `position` looks a cursor up. `on_gone` is called with each reader
    that ends for any reason, `on_moved` when its position was reset.
    """

    def __init__(
        self,
        commit: Callable[[str, Sequence[CursorMove]], Promise[None]],
        position: Callable[[str, int], CommittedOffset | None],
        limits: RegistrationLimits | None = None,
    ) -> None:
        self.limits = limits or RegistrationLimits()
        self.session_ms = self.limits.session_ms  # a gateway may set another one
        self.on_gone: list[Callable[[Registration], None]] = []
        self.on_moved: list[Callable[[Registration], None]] = []
        self._commit = commit
        self._position = position
        self._readers: OrderedDict[_Key, Registration] = OrderedDict()  # who was heard last is last
        self._consumers: dict[tuple[str, str], TubeConsumer] = {}
        self._pending: dict[_Key, _PendingCommit] = {}
        self._starts: dict[_Key, int] = {}
        self._text_size = 0

    def __len__(self) -> int:
        return len(self._readers)

    # ---- who reads

    def find_registration(self, partition_id: int, group: str) -> Registration | None:
        """Return the registration of a group in a partition, if there is one."""
        return self._readers.get((partition_id, group))

    def consumer(self, group: str, client_id: str) -> TubeConsumer | None:
        """A client of a group, if it reads anything."""
        return self._consumers.get((group, client_id))

    def readers(self) -> list[Registration]:
        """All of them."""
        return list(self._readers.values())

    def occupant(
        self, partition_id: int, group: str, client_id: str, now_ms: int, *, broker_id: int = 0
    ) -> str:
        """Return the client that keeps this one from registering, or "".

        A consumer whose session is over, that left the group, or that registered when this broker
        had another id keeps no other one out: its registration is removed.
        """
        reader = self._readers.get((partition_id, group))
        if reader is None or reader.client_id == client_id:
            return ""
        is_over = reader.consumer.has_left or now_ms - reader.seen_ms > self.session_ms
        if is_over or reader.broker_id != broker_id:
            self._remove(reader)
            return ""
        return reader.client_id

    def register(
        self,
        partition: Partition,
        group: str,
        client_id: str,
        *,
        now_ms: int,
        filters: Collection[str] = (),
        offset: int = NO_OFFSET,
        start_from: StartFrom = StartFrom.FIRST_MESSAGE,
        principal: Principal = ANONYMOUS,
        broker_id: int = 0,
    ) -> tuple[Registration, Promise[None] | None]:
        """Let a client read for a group, from the group's position or from `offset`.

        An offset that is given goes before the group's position, and one that `begin_at` set before
        that; both are moved between the first message and the end. The promise is there where the
        position is new: it is kept when that is durable. A client that is registered already begins
        replaced; where another client may be, call `occupant` first. NotAllowed for too many or
        too long filters, TooManyPositions where there is no room.
        """
        key = (partition.partition_id, group)
        there = self._readers.get(key)
        assert there is None or there.client_id == client_id, "another client is registered"
        self._check(filters)
        text_size = len(group) + len(client_id) + sum(map(len, filters))
        if there is not None:
            self._remove(there)
        elif len(self._readers) >= self.limits.readers_max:
            raise TooManyPositions(f"the broker takes {self.limits.readers_max} readers")
        if self._text_size + text_size > self.limits.text_size_max:
            raise TooManyPositions("the descriptions of registered consumers need too much memory")
        known = self.position(key[0], group)
        start = self._first(partition, known, self._starts.pop(key, offset), start_from)
        promise = None
        if start != known:
            promise = self._move(key, start)
        elif key in self._pending:
            promise = self._pending[key].promise
        consumer = self._consumers.get((group, client_id))
        if consumer is None:
            consumer = self._consumers[group, client_id] = TubeConsumer(group, client_id, principal)
        consumer.has_left = False
        reader = Registration(partition, consumer, frozenset(filters), start, now_ms, now_ms)
        reader.meter.filtered = bool(reader.filters)
        reader.text_size = text_size
        reader.broker_id = broker_id
        self._text_size += text_size
        self._readers[key] = consumer.readers[key[0]] = reader
        return reader, promise

    def begin_at(self, partition_id: int, group: str, offset: int) -> None:
        """Where the next one who registers begins: what the members of a bound group agreed on."""
        self._starts[partition_id, group] = offset

    def forget_starts(self, group: str) -> None:
        """Remove the start offsets of a bound group that ended."""
        for key in [key for key in self._starts if key[1] == group]:
            del self._starts[key]

    def touch(self, reader: Registration, now_ms: int) -> None:
        """It shows life."""
        reader.seen_ms = now_ms
        self._readers.move_to_end(reader.key)

    def unregister(self, reader: Registration, *, consumed: bool) -> Promise[None] | None:
        """Let a reader go; what it has last is confirmed with it, or comes again."""
        promise = self.confirm(reader, consumed=consumed)
        self._remove(reader)
        return promise

    def expire(self, now_ms: int) -> list[Registration]:
        """Let go of those who were silent for too long; what they have is not confirmed."""
        before_ms = now_ms - self.session_ms
        expired: list[Registration] = []
        for reader in self._readers.values():
            if reader.seen_ms >= before_ms:
                break
            expired.append(reader)
        for reader in expired:
            self._remove(reader)
        return expired

    def drop(self, partition_ids: Collection[int]) -> None:
        """The partitions are deleted."""
        gone = set(partition_ids)
        for reader in [each for key, each in self._readers.items() if key[0] in gone]:
            self._remove(reader)
        for key in [key for key in self._starts if key[0] in gone]:
            del self._starts[key]

    def remove_readers(self, principal: Principal) -> None:
        """Remove the registrations of a principal's consumers; confirm nothing."""
        for reader in self.readers():
            if reader.consumer.principal == principal:
                self._remove(reader)

    def _remove(self, reader: Registration) -> None:
        consumer = reader.consumer
        reader.is_gone = True
        self._text_size -= reader.text_size
        del self._readers[reader.key]
        del consumer.readers[reader.partition.partition_id]
        if not consumer.readers:
            del self._consumers[consumer.group, consumer.client_id]
        for listener in self.on_gone:
            listener(reader)

    def _check(self, filters: Collection[str]) -> None:
        limits = self.limits
        if len(filters) > limits.filters_max:
            raise NotAllowed(f"a consumer may have {limits.filters_max} filters")
        if any(len(each) > limits.filter_size_max for each in filters):
            raise NotAllowed(f"a filter may have {limits.filter_size_max} characters")

    # ---- where

    def position(self, partition_id: int, group: str) -> int | None:
        """Where a group is, also when that is not durable yet; None: nowhere."""
        coming = self._pending.get((partition_id, group))
        if coming is not None:
            offset = coming.offset
        else:
            position = self._position(group, partition_id)
            if position is None:
                return None
            offset = position.mark
        return offset if offset >= 0 else None

    def begin_read(self, reader: Registration, *, consumed: bool, manual: bool) -> int:
        """Return where a read begins; `consumed`: what was handed out is confirmed.

        With `manual` nothing is confirmed by reading on, and it goes on behind what was handed out.
        Below the first message that is left it begins there: what is gone counts as confirmed.
        """
        if not manual:
            if consumed:
                self.confirm(reader, consumed=True)
            offset = reader.committed
        else:
            offset = reader.next_offset
        plog = reader.partition.log
        low = min(max(offset, plog.start_offset), plog.high_watermark)
        if low != offset:
            if manual:
                reader.temporary = max(0, low - reader.committed)
            else:
                reader.committed, reader.temporary = low, 0
                self._move(reader.key, low)
        return low

    def record_read(
        self, reader: Registration, start: int, end: int, *, manual: bool, is_empty: bool
    ) -> None:
        """A read from `start` was answered, up to `end`; `is_empty`: with no message at all."""
        if end <= start:
            return
        if start != (reader.next_offset if manual else reader.committed):
            return  # its position was moved meanwhile: this was read for nothing
        reader.temporary = max(0, end - reader.committed)
        if is_empty and not manual:
            self.confirm(reader, consumed=True)

    def confirm(self, reader: Registration, *, consumed: bool) -> Promise[None] | None:
        """Confirm what was handed out, or drop it; what is kept when that is durable, if not yet.

        The reader goes on at once.
        """
        size, reader.temporary = reader.temporary, 0
        if consumed and size:
            reader.committed += size
            return self._move(reader.key, reader.committed)
        coming = self._pending.get(reader.key)
        return None if coming is None else coming.promise

    def reset(self, partition: Partition, group: str, offset: int) -> Promise[None]:
        """Move a group to an offset from the first message to the end, with or without a reader."""
        plog = partition.log
        offset = min(max(offset, plog.start_offset), plog.high_watermark)
        key = (partition.partition_id, group)
        self._starts.pop(key, None)
        promise = self._move(key, offset)
        reader = self._readers.get(key)
        if reader is not None:
            reader.committed, reader.temporary = offset, 0
            for listener in self.on_moved:
                listener(reader)
        return promise

    def forget(self, partition: Partition, group: str) -> Promise[None]:
        """Remove the position of a group that has no registration here."""
        key = (partition.partition_id, group)
        assert key not in self._readers, "the partition has a registration"
        self._starts.pop(key, None)
        return self._move(key, NO_OFFSET)

    def _first(
        self, partition: Partition, known: int | None, offset: int, start_from: StartFrom
    ) -> int:
        first, end = partition.log.start_offset, partition.log.stable_end
        if start_from is StartFrom.ALWAYS_END:
            return end
        if offset >= 0:
            return min(max(offset, first), end)
        if known is None:
            return first if start_from is StartFrom.FIRST_MESSAGE else end
        return known

    def _move(self, key: _Key, offset: int) -> Promise[None]:
        partition_id, group = key
        promise = self._commit(group, [CursorMove(partition_id, offset)])
        if promise.done:
            return promise
        coming = self._pending[key] = _PendingCommit(offset, promise)

        def there(_: Promise[None]) -> None:
            if self._pending.get(key) is coming:
                del self._pending[key]

        promise.then(there)
        return promise
