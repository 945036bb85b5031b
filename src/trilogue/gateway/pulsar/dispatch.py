"""The loop of one subscription: ask who takes what, read it, send it.

    log moved, demand came, an ack made room ──► wake ──► a turn, in the next round of the loop
    turn: next_offset ──► is it read already? else read ──► offer ──► MESSAGE
    cold reads, large conversions: executor, then a turn again

A turn hands out 64 KiB or 100 entries at most, then others have theirs. Who does not read what it
was sent gets nothing more until it does (`Consumer.waits`); the others of the subscription go on.

What nobody may see (markers, aborted transactions, holes) counts as acked when it is passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from trilogue.broker.acks import Acked
from trilogue.broker.errors import NotReady
from trilogue.broker.member import KEYLESS
from trilogue.broker.murmur import key_hash
from trilogue.broker.partition import Partition
from trilogue.broker.spread import SharedLimits
from trilogue.broker.subscription import NOTHING, Kind, Subscription
from trilogue.broker.subscriptions import Cursor
from trilogue.broker.topic import Topic
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar_batch import Flag, read_metadata, sticky_key
from trilogue.gateway.pulsar.consumer import ACTIVE_CHANGE_SINCE, Consumer
from trilogue.gateway.pulsar.positions import section_key
from trilogue.gateway.pulsar.reading import READ_BYTES, Later, Read, Row, read
from trilogue.log.errors import LogError

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.readers import Readers

log = logging.getLogger(__name__)

TURN_BYTES: Final = 64 << 10
TURN_ENTRIES: Final = 100
CHUNK: Final = int(Flag.CHUNK)  # plain numbers: this is a hot path
SPECIAL: Final = CHUNK | int(Flag.DELAYED)
FAILED_WAIT_S: Final = 5.0  # after a read that failed
# Apache's Go client, whatever version it claims: to it REACHED_END_OF_TOPIC is nonsense. It cuts
# the connection, comes again, is told again, many times a second.
KNOWS_NO_END: Final = "Pulsar-Go-"
DUE_WAIT_MAX_S: Final = 3_600.0


class Dispatcher:
    """A subscription that has, or just had, consumers."""

    def __init__(
        self,
        readers: Readers,
        topic: Topic,
        partition: Partition,
        index: int,
        name: str,
        *,
        cursor: Cursor | None,
        acked: Acked,
    ) -> None:
        door = readers.door
        policies = partition.policies
        self.door = door
        self.readers = readers
        self.topic = topic
        self.partition = partition
        self.index = index  # the number in the partition's name; -1: it has none
        self.name = name
        self.cursor = cursor  # None: nothing of it is kept
        self.subscription = Subscription(
            acked,
            partition_index=index,
            limits=SharedLimits(
                member_unacked=policies.max_unacked_per_consumer,
                unacked=policies.max_unacked_per_subscription,
            ),
            hashing=door.settings.key_shared_ring,
        )
        self.closing = False  # it is being moved or deleted: nobody may join
        self.moves = 0  # how often the mark was put somewhere else
        self.held: asyncio.TimerHandle | None = None  # kept for those who were sent off
        self.messages_out = self.bytes_out = 0
        self._active: Consumer | None = None  # whom the consumers were told
        self._read: Read | None = None
        self._started_at = partition.log.start_offset  # when that was read
        self._future: asyncio.Future[Read] | None = None
        self._handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._forget: Callable[[], None] | None = None

    # ---- what it is

    @property
    def acked(self) -> Acked:
        """What has been acked."""
        return self.subscription.acked

    @property
    def consumers(self) -> list[Consumer]:
        """Who is connected."""
        return cast("list[Consumer]", self.subscription.members)

    @property
    def backlog(self) -> int:
        """How many offsets may be read and are not acked."""
        if self.cursor is not None:
            return self.door.broker.subscriptions.backlog(self.cursor)
        plog, acked = self.partition.log, self.acked
        return max(0, plog.high_watermark - max(acked.mark, plog.start_offset) - acked.acked_above)

    # ---- consumers

    def join(self, consumer: Consumer, kind: Kind) -> None:
        """Let a consumer take part; raises SubscriptionBusy, KeyRangesTaken or NotReady."""
        if self.closing:
            raise NotReady("the subscription is being moved or deleted")
        self.subscription.join(consumer, kind)
        if self.held is not None:
            self.held.cancel()
            self.held = None
        consumer.dispatcher = self

    def joined(self, consumer: Consumer) -> None:
        """Tell who has become active, and begin; after the newcomer has its answer."""
        self._active_changed(consumer)
        self.wake()
        self.check_end()

    def leave(self, consumer: Consumer) -> None:
        """Let a consumer go."""
        consumer.closed = True
        if consumer.dispatcher is not self:
            return
        consumer.dispatcher = None
        self.subscription.leave(consumer)
        if not self.subscription.members:
            self.rest()
            self.readers.left(self)
            return
        self._active_changed()
        self.wake()

    def close_all(self) -> None:
        """Send every consumer off; they look up the topic and come again."""
        for consumer in list(self.consumers):
            self.leave(consumer)
            consumer.connection.close_consumer(consumer.consumer_id)

    def _active_changed(self, newcomer: Consumer | None = None) -> None:
        """Tell those whom it concerns: of thousands, three at most."""
        if self.subscription.kind is not Kind.FAILOVER:
            return
        active = cast("Consumer | None", self.subscription.active)
        before, self._active = self._active, active
        for consumer in (newcomer, before, active):
            is_active = consumer is active
            if consumer is None or consumer.dispatcher is not self:
                continue
            if consumer.was_active is is_active:
                continue
            consumer.was_active = is_active
            if consumer.connection.protocol_version >= ACTIVE_CHANGE_SINCE:
                consumer.connection.say(
                    "active_consumer_change",
                    consumer_id=consumer.consumer_id,
                    is_active=is_active,
                )

    def check_end(self) -> None:
        """Tell consumers that nothing will come any more, if that is so.

        Seed 000, "ReachedEndOfTopic": the topic is terminated and everything has been acked.
        """
        if not self.partition.terminated:
            return
        plog = self.partition.log
        if self.acked.mark < plog.high_watermark or plog.high_watermark < plog.end_offset:
            return
        for consumer in self.consumers:
            knows = not consumer.connection.client_version.startswith(KNOWS_NO_END)
            if knows and not consumer.end_told:
                consumer.end_told = True
                consumer.connection.say("reachedEndOfTopic", consumer_id=consumer.consumer_id)

    # ---- acks

    def spare(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Count as acked what nobody here will be sent; told to no journal, as it comes again."""
        for start, end in ranges:
            self.acked.ack(start, end)

    def ack(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Note that offsets are acked; durable when the journal says so."""
        if self.cursor is not None:
            self.door.broker.subscriptions.ack(self.cursor, ranges)
        else:
            for start, end in ranges:
                self.acked.ack(start, end)

    def ack_until(self, end: int) -> None:
        """Note that everything below an offset is acked."""
        if self.cursor is not None:
            self.door.broker.subscriptions.ack_until(self.cursor, end)
        else:
            self.acked.ack_until(min(end, self.partition.log.high_watermark))

    # ---- turns

    def wake(self) -> None:
        """Something has changed: hand out what can be, soon."""
        if self._handle is not None or self._future is not None or self.closing:
            return
        if self.subscription.members:
            self._handle = self.door.loop.call_soon(self._turn)

    def go_on(self, consumer: Consumer) -> None:
        """A consumer that could take nothing can again."""
        self.subscription.set_waits(consumer, waits=False)
        self.wake()

    def rest(self) -> None:
        """Wait for nothing any more."""
        self._read = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._forget is not None:
            self._forget()
            self._forget = None
        self._future = None  # what it brings comes too late

    def reset(self) -> None:
        """The mark was put somewhere else."""
        self.moves += 1
        self._read = None
        self.subscription.reset()

    def _turn(self) -> None:
        self._handle = None
        if not self.subscription.members or self.partition.deleted:
            return
        try:
            self._hand_out()
        except (LogError, EntryError) as problem:
            self._failed(problem)
        except Exception:
            log.exception("dispatch.failed", extra={"subscription": self.name})
            self.close_all()

    def _hand_out(self) -> None:
        subscription = self.subscription
        subscription.release_due(self.door.now_ms())
        subscription.begin_turn()
        if self._started_at != self.partition.log.start_offset:  # what was read may be gone
            self._started_at = self.partition.log.start_offset
            self._read = None
        bytes_left, entries_left = TURN_BYTES, TURN_ENTRIES
        while (offset := subscription.next_offset()) != NOTHING:
            if bytes_left <= 0 or entries_left <= 0:
                self.wake()
                break
            if (self._read is None or not self._read.covers(offset)) and not self._find(offset):
                break
            entries_left -= 1
            row = self._row(offset)
            if row is not None:
                bytes_left -= self._offer(row)
        self._wait_due()
        if self._handle is None and self._future is None:
            self._rest_read()

    def _rest_read(self) -> None:
        """Keep nothing of the tail while this waits: views would keep its memory."""
        if self._read is not None and self._read.end > self.partition.log.flushed_end:
            self._read = None

    def _row(self, offset: int) -> Row | None:
        """What was read at an offset; what nobody may see is passed."""
        known = self._read
        if known is None:  # it began below what there is now
            return None
        at = known.at(offset)
        if at == len(known.rows):
            self._pass(offset, known.end)
            return None
        row = known.rows[at]
        if offset < row.base:
            self._pass(offset, row.base)
        elif row.section is None:
            self._pass(row.base, row.end)
        else:
            return row
        return None

    def _find(self, offset: int) -> bool:
        """Read what stands at an offset; False: it is not there yet."""
        plog = self.partition.log
        if offset >= plog.stable_end:
            self._wait()
            return False
        start = plog.start_offset
        if offset < start:  # what stood there is gone, all of it or its head
            end = self.subscription.end_of_waiting(offset)
            if end <= start:
                self._read = None
                self._pass(offset, start if end < 0 else end)
                return True
        found = read(
            plog,
            max(offset, start),
            self.door.settings.message_bytes_max,
            READ_BYTES,
            self.door.conversions,
        )
        if isinstance(found, Later):
            self._read_later(found)
            return False
        if found.end <= offset:  # nothing but a hole that has no end yet
            self._wait()
            return False
        self._read = found
        return True

    def _offer(self, row: Row) -> int:
        subscription = self.subscription
        base, end = row.base, row.end
        if row.holes:
            self.ack(row.holes)
        key, due_ms, now_ms = KEYLESS, -1, 0
        if subscription.kind is Kind.KEY_SHARED:
            key = key_hash(sticky_key(row.entry) if row.flags >= 0 else section_key(row.section))
        if row.flags > 0 and row.flags & SPECIAL and not subscription.is_single:
            metadata = read_metadata(row.entry)
            if row.flags & CHUNK and key == KEYLESS and metadata.uuid is not None:
                key = key_hash(metadata.uuid.encode())
            if self.partition.policies.delayed_delivery:
                due_ms, now_ms = metadata.deliver_at_time, self.door.now_ms()
        member = subscription.offer(base, end, key, due_ms, now_ms)
        if member is None:
            return 0
        consumer = cast("Consumer", member)
        acked = self.acked
        missing = None
        if acked.acked_above or base < acked.mark:
            missing = acked.missing(base, end)
        size = consumer.send(row, subscription.redeliveries(base), missing)
        self._count(consumer, end - base, size)
        if consumer.connection.write_paused:
            subscription.set_waits(consumer, waits=True)
        return size

    def _count(self, consumer: Consumer, messages: int, size: int) -> None:
        consumer.messages_out += messages
        consumer.entries_out += 1
        consumer.bytes_out += size
        self.messages_out += messages
        self.bytes_out += size
        self.door.messages_out += messages
        self.door.bytes_out += size

    def _pass(self, start: int, end: int) -> None:
        """Nothing that anybody may see stands there: it counts as acked."""
        self.subscription.skip(start, end)  # also of what the mark has passed already
        start = max(start, self.acked.mark)
        if start < end:
            self.ack(((start, end),))
        self.check_end()

    # ---- waiting

    def _wait(self) -> None:
        if self._forget is None:
            self._forget = self.partition.log.wait(self._moved)

    def _moved(self) -> None:
        self._forget = None
        self.wake()

    def _wait_due(self) -> None:
        due_ms = self.subscription.next_due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(0.001, (due_ms - self.door.now_ms()) / 1000)
            self._timer = self.door.loop.call_later(min(delay_s, DUE_WAIT_MAX_S), self._due)

    def _due(self) -> None:
        self._timer = None
        self.wake()

    def _read_later(self, later: Later) -> None:
        door = self.door
        future = door.loop.run_in_executor(door.executor, later.run)
        self._future = future

        def done(future: asyncio.Future[Read]) -> None:
            if self._future is not future:
                if not future.cancelled():
                    future.exception()  # nobody wants to know
                return
            self._future = None
            if future.cancelled():
                return
            problem = future.exception()
            if problem is None:
                self._read = future.result()
                self._turn()
            elif isinstance(problem, Exception):
                self._failed(problem)

        future.add_done_callback(done)

    def _failed(self, problem: Exception) -> None:
        """A read failed: say so, and look again a little later."""
        log.error(
            "dispatch.read_failed",
            extra={
                "partition": self.partition.partition_id,
                "subscription": self.name,
                "problem": str(problem),
            },
        )
        self._read = None
        if self._timer is None:
            self._timer = self.door.loop.call_later(FAILED_WAIT_S, self._due)
