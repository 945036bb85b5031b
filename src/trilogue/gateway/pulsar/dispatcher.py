"""The dispatcher of one subscription: which entry is next, which consumer takes it, send it.

    the log grew, permits came, an ack made room ──► wake ──► a step, in the next loop iteration
    step: next_offset ──► read already? else read ──► offer ──► MESSAGE
    cold reads, large conversions: executor, then a step again

A step sends at most 64 KiB or 100 entries, so that other connections get their share of the loop.
A consumer that does not read gets nothing more until it does (`Consumer.waits`); the other
consumers of the subscription go on.

Hidden entries (control markers, aborted transactions, holes of compaction) count as acked when they
are passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias, cast

from trilogue.broker.cursors.position import Cursor, Position
from trilogue.broker.errors import NotReady
from trilogue.broker.quotas.topic_rates import (
    RATE_CHECK_S,
    PartitionRates,
    SubscriptionLimiter,
)
from trilogue.broker.subscriptions.consumer import KEYLESS
from trilogue.broker.subscriptions.murmur import key_hash
from trilogue.broker.subscriptions.shared_dispatch import SharedLimits
from trilogue.broker.subscriptions.subscription import NOTHING, Subscription, SubscriptionType
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.pending_acks import Release
from trilogue.entry.entry import EntryError, Format
from trilogue.entry.pulsar.pulsar_batch import Flag, read_metadata, sticky_key
from trilogue.gateway.memory_budget import MemoryHolder
from trilogue.gateway.partition_reader import ExecutorRead
from trilogue.gateway.pulsar.consumer import Consumer, send_active_change
from trilogue.gateway.pulsar.entry_reader import (
    READ_BYTES,
    DispatchEntry,
    EntryRange,
    PendingRead,
    read_entries,
)
from trilogue.gateway.pulsar.last_message import LastMessage
from trilogue.gateway.pulsar.message_ids import read_section_key
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.log.errors import LogError, ObjectMissing, SegmentMissing

log = logging.getLogger(__name__)

STEP_BYTES: Final = 64 << 10
STEP_ENTRIES: Final = 100
CHUNK: Final = int(Flag.CHUNK)  # plain numbers: they are compared for each entry
SPECIAL: Final = CHUNK | int(Flag.DELAYED)
FAILED_WAIT_S: Final = 5.0  # after a read that failed
# Apache's Go client does not know REACHED_END_OF_TOPIC, whatever version it claims. It cuts the
# connection, connects again, gets the command again, many times a second.
KNOWS_NO_END: Final = "Pulsar-Go-"
DUE_WAIT_MAX_S: Final = 3_600.0


class ReadMemory(MemoryHolder):
    """What a dispatcher has read of segments, and sends later."""

    __slots__ = ("_dispatcher",)

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher.gateway.cold_reads.memory)
        self._dispatcher = dispatcher

    def reclaim(self) -> None:
        """Release it: it can be read again."""
        self._dispatcher.release_read()


class Dispatcher:
    """A subscription that has, or just had, consumers; it sends them its messages."""

    def __init__(
        self,
        gateway: PulsarServices,
        topic: Topic,
        partition: Partition,
        index: int,
        name: str,
        *,
        cursor: Cursor | None,
        acked: Position,
        on_empty: Callable[[Dispatcher], None],
    ) -> None:
        policies = partition.policies
        self.gateway = gateway
        self.topic = topic
        self.partition = partition
        self.ledger_id = partition.partition_id
        self.index = index  # of the partition in its name; -1: the topic has no numbered partitions
        self.name = name
        self.cursor = cursor  # None: the subscription is not durable
        self.subscription = Subscription(
            acked,
            partition_index=index,
            limits=SharedLimits(
                member_unacked=policies.max_unacked_per_consumer,
                unacked=policies.max_unacked_per_subscription,
            ),
            hashing=gateway.settings.key_shared_ring,
        )
        self.claim_pending()
        self.closing = False  # it is being moved or deleted: no consumer may join
        self.moves = 0  # how often it was moved by a seek
        self.held: asyncio.TimerHandle | None = None  # kept for consumers that were disconnected
        self.messages_out = self.bytes_out = 0
        self.last_message: LastMessage | None = None  # the newest answer about it
        self._on_empty = on_empty
        self._active: PulsarConsumer | None = None  # of the newest ACTIVE_CONSUMER_CHANGE
        self._read: EntryRange | None = None
        self._memory = ReadMemory(self)
        self._started_at = partition.log.start_offset  # of the log, when `_read` was read
        self._future: asyncio.Future[EntryRange] | None = None
        self._is_due = False  # whether a step is scheduled
        self._timer: asyncio.TimerHandle | None = None
        self._limiter = SubscriptionLimiter(name)
        self._rate_timer: asyncio.TimerHandle | None = None  # the dispatch rate is used up
        self._forget: Callable[[], None] | None = None

    # ---- state

    @property
    def acked(self) -> Position:
        """The offsets that are acked."""
        return self.subscription.acked

    @property
    def consumers(self) -> Collection[PulsarConsumer]:
        """The consumers that are connected; a view."""
        return cast("Collection[PulsarConsumer]", self.subscription.members)

    @property
    def backlog(self) -> int:
        """How many offsets below the high watermark are not acked."""
        if self.cursor is not None:
            return self.gateway.broker.subscriptions.backlog(self.cursor)
        plog, acked = self.partition.log, self.acked
        return max(0, plog.high_watermark - max(acked.mark, plog.start_offset) - acked.acked_above)

    # ---- consumers

    def join(self, consumer: PulsarConsumer, kind: SubscriptionType) -> None:
        """Add a consumer; raises SubscriptionBusy, KeyRangesTaken or NotReady."""
        if self.closing:
            raise NotReady("the subscription is being moved or deleted")
        self.subscription.join(consumer, kind)
        if self.held is not None:
            self.held.cancel()
            self.held = None
        consumer.dispatcher = self

    def joined(self, consumer: PulsarConsumer) -> None:
        """Send ACTIVE_CONSUMER_CHANGE and begin, after a new consumer has its SUCCESS."""
        self._active_changed(consumer)
        self.wake()
        self.check_end()

    def leave(self, consumer: PulsarConsumer) -> None:
        """Remove a consumer."""
        consumer.closed = True
        if consumer.dispatcher is not self:
            return
        consumer.dispatcher = None
        self.subscription.leave(consumer)
        if not self.subscription.members:
            self.park()
            self._on_empty(self)
            return
        self._active_changed()
        self.wake()

    def close_all(self) -> None:
        """Disconnect every consumer; clients look the topic up and subscribe again."""
        for consumer in list(self.consumers):
            self.leave(consumer)
            consumer.connection.close_consumer(consumer.consumer_id)

    def _active_changed(self, newcomer: PulsarConsumer | None = None) -> None:
        """Send ACTIVE_CONSUMER_CHANGE to those it concerns: three at most, of thousands."""
        if self.subscription.kind is not SubscriptionType.FAILOVER:
            return
        active = cast("PulsarConsumer | None", self.subscription.active)
        before, self._active = self._active, active
        for consumer in (newcomer, before, active):
            if consumer is not None and consumer.dispatcher is self:
                send_active_change(consumer, is_active=consumer is active)

    def check_end(self) -> None:
        """Send REACHED_END_OF_TOPIC if the topic is terminated and everything is acked."""
        if not self.partition.terminated:
            return
        plog = self.partition.log
        if self.acked.mark < plog.high_watermark or plog.high_watermark < plog.end_offset:
            return
        for consumer in self.consumers:
            knows = not consumer.connection.client_version.startswith(KNOWS_NO_END)
            if knows and not consumer.end_sent:
                consumer.end_sent = True
                consumer.connection.send_command(
                    "reachedEndOfTopic", consumer_id=consumer.consumer_id
                )

    # ---- acks

    def exclude(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Count as acked what compaction removed; not journaled, since each SUBSCRIBE brings it."""
        for start, end in ranges:
            self.acked.ack(start, end)

    def ack(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Ack ranges of offsets; durable with the journal's next commit."""
        if self.cursor is not None:
            self.gateway.broker.subscriptions.ack(self.cursor, ranges)
        else:
            for start, end in ranges:
                self.acked.ack(start, end)

    def ack_until(self, end: int) -> None:
        """Ack everything below an offset."""
        if self.cursor is not None:
            self.gateway.broker.subscriptions.ack_until(self.cursor, end)
        else:
            self.acked.ack_until(min(end, self.partition.log.high_watermark))

    def claim_pending(self) -> None:
        """Pass over what open transactions have acked, if there is anything."""
        if self.cursor is None:
            return
        pending_acks = self.gateway.broker.transactions.table.pending_acks
        self.subscription.set_claimed(pending_acks.claim(self.cursor))

    def release_pending(self, release: Release) -> None:
        """Follow the end of a transaction that had acked messages; send them if it aborted."""
        self.claim_pending()
        if release.committed:
            self.subscription.settle_all()
            self.check_end()
        else:
            self.subscription.reopen(release.first)
        self.wake()

    # ---- steps

    def wake(self) -> None:
        """Schedule a step, in turn with the requests of all connections: something has changed."""
        if self._is_due or self._future is not None or self.closing:
            return
        if self.subscription.members:
            self._is_due = True
            self.gateway.iterations.defer(self._take_turn)

    def resume(self, consumer: PulsarConsumer) -> None:
        """Send to a consumer again whose connection was paused."""
        self.subscription.set_waits(consumer, waits=False)
        self.wake()

    def park(self) -> None:
        """Wait for nothing any more: no consumer is left, or the subscription is moved."""
        self._keep_read(None)
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None
        if self._forget is not None:
            self._forget()
            self._forget = None
        self._future = None  # its result comes too late
        self.gateway.cold_reads.forget(self)

    def reset(self) -> None:
        """Begin again at the mark: it was moved."""
        self.moves += 1
        self._keep_read(None)
        self.subscription.reset()

    def _take_turn(self) -> None:
        if self._is_due:  # it was not parked meanwhile
            self._step()

    def _step(self) -> None:
        self._is_due = False
        if not self.subscription.members or self.partition.deleted:
            return
        try:
            self._dispatch()
        except (LogError, EntryError) as problem:
            self._failed(problem)
        except Exception:
            log.exception("dispatch.failed", extra={"subscription": self.name})
            self.close_all()

    def _dispatch(self) -> None:
        subscription = self.subscription
        subscription.release_due(self.gateway.now_ms())
        subscription.begin_turn()
        if self._started_at != self.partition.log.start_offset:  # what was read may be deleted
            self._started_at = self.partition.log.start_offset
            self._keep_read(None)
        bytes_left, entries_left = STEP_BYTES, STEP_ENTRIES
        rates = self.partition.rates
        while (offset := subscription.next_offset()) != NOTHING:
            if bytes_left <= 0 or entries_left <= 0:
                self.wake()
                break
            if rates is not None and self._waits_for(rates):
                break
            if (self._read is None or not self._read.covers(offset)) and not self._read_from(
                offset
            ):
                break
            entries_left -= 1
            entry = self._find_entry(offset)
            if entry is not None:
                bytes_left -= self._offer(entry)
        self._wait_due()
        if not self._is_due and self._future is None:
            self._release_tail()

    def _release_tail(self) -> None:
        """Keep no views of the tail while the dispatcher waits: they would keep its memory."""
        if self._read is not None and self._read.end > self.partition.log.flushed_end:
            self._keep_read(None)

    def _keep_read(self, read: EntryRange | None, size: int = 0) -> None:
        """Keep what was read until it is sent; `size` bytes of it are of segments."""
        self._read = read
        self._memory.resize(size)

    def release_read(self) -> None:
        """Keep nothing of segments while no step is due: others wait for the memory."""
        if not self._is_due and self._future is None:
            self._keep_read(None)

    def _find_entry(self, offset: int) -> DispatchEntry | None:
        """Return the entry at an offset; None where it is hidden, and then it is passed."""
        known = self._read
        if known is None:  # the offset was below the log's start
            return None
        at = known.index_of(offset)
        if at == len(known.entries):
            self._pass(offset, known.end)
            return None
        entry = known.entries[at]
        if offset < entry.base:
            self._pass(offset, entry.base)
        elif entry.section is None:
            self._pass(entry.base, entry.end)
        else:
            return entry
        return None

    def _read_from(self, offset: int) -> bool:
        """Read from an offset on; False where the caller has to wait for it."""
        plog = self.partition.log
        if offset >= plog.stable_end:
            self._wait()
            return False
        start = plog.start_offset
        if offset < start:  # the entry is deleted, all of it or its head
            end = self.subscription.end_of_waiting(offset)
            if end <= start:
                self._keep_read(None)
                self._pass(offset, start if end < 0 else end)
                return True
        found = read_entries(
            plog,
            max(offset, start),
            self.gateway.settings.message_bytes_max,
            READ_BYTES,
            self.gateway.conversions,
        )
        if isinstance(found, ExecutorRead):
            self._run_read(found)
            return False
        if found.end <= offset:  # only a hole that has no end yet
            self._wait()
            return False
        self._keep_read(found)
        return True

    def _offer(self, entry: DispatchEntry) -> int:
        """Send an entry to the consumer that takes it; return the bytes of its section."""
        subscription = self.subscription
        base, end = entry.base, entry.end
        if entry.holes:
            self.ack(entry.holes)
        key, due_ms, now_ms = KEYLESS, -1, 0
        if not subscription.is_single:
            key, due_ms = self._find_key_and_time(entry)
            if due_ms > 0:
                now_ms = self.gateway.now_ms()
        member = subscription.offer(base, end, key, due_ms, now_ms)
        if member is None:
            return 0
        consumer = cast("PulsarConsumer", member)
        claimed = subscription.claimed
        missing = None
        if claimed.acked_above or base < claimed.mark:
            missing = claimed.missing(base, end)
        size = consumer.send(entry, subscription.redeliveries(base), missing)
        self._count(consumer, end - base, size)
        if self.gateway.tracer is not None:
            topic = str(self.topic.name)
            self.gateway.tracer.record_delivery(
                "pulsar", topic, max(self.index, 0), entry.section, Format.PULSAR, self.name
            )
        if consumer.connection.write_paused:
            subscription.set_waits(consumer, waits=True)
        return size

    def _find_key_and_time(self, entry: DispatchEntry) -> tuple[int, int]:
        """Return the hash of its key and its delivery time, where its consumer depends on them."""
        key, due_ms = KEYLESS, entry.deliver_at_ms
        if self.subscription.kind is SubscriptionType.KEY_SHARED:
            key = key_hash(
                read_section_key(entry.section) if entry.is_converted else sticky_key(entry.stored)
            )
        if entry.flags > 0 and entry.flags & SPECIAL:
            metadata = read_metadata(entry.stored)
            if entry.flags & CHUNK and key == KEYLESS and metadata.uuid is not None:
                key = key_hash(metadata.uuid.encode())
            due_ms = metadata.deliver_at_time
        return key, due_ms if self.partition.policies.delayed_delivery else -1

    def _count(self, consumer: PulsarConsumer, messages: int, size: int) -> None:
        consumer.messages_out += messages
        consumer.entries_out += 1
        consumer.bytes_out += size
        self.messages_out += messages
        self.bytes_out += size
        gateway, connection = self.gateway, consumer.connection
        gateway.messages_out += messages
        gateway.bytes_out += size
        if gateway.quotas.active and not connection.is_gone:
            connection.byte_quotas.count_fetched(connection.principal.name, "", size)
        if self.partition.rates is not None:
            self._limiter.count(self.partition.rates, messages, size, gateway.loop.time())

    def _pass(self, start: int, end: int) -> None:
        """Ack a range that has no visible entry."""
        self.subscription.skip(start, end)  # also what is below the mark already
        start = max(start, self.acked.mark)
        if start < end:
            self.ack(((start, end),))
        self.check_end()

    # ---- waiting

    def _wait(self) -> None:
        if self._forget is None:
            self._forget = self.partition.log.wait(self._log_moved)

    def _log_moved(self) -> None:
        self._forget = None
        self.wake()

    def _wait_due(self) -> None:
        due_ms = self.subscription.next_due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(0.001, (due_ms - self.gateway.now_ms()) / 1000)
            self._timer = self.gateway.loop.call_later(min(delay_s, DUE_WAIT_MAX_S), self._due)

    def _waits_for(self, rates: PartitionRates) -> bool:
        """Whether entries have to wait for the dispatch rate; a step comes when they need not."""
        wait_s = self._limiter.wait_s(rates, self.gateway.loop.time())
        if wait_s and self._rate_timer is None:
            self._rate_timer = self.gateway.loop.call_later(
                min(wait_s, RATE_CHECK_S), self._rate_over
            )
        return wait_s > 0

    def _rate_over(self) -> None:
        self._rate_timer = None
        self.wake()

    def _due(self) -> None:
        self._timer = None
        self.wake()

    def _run_read(self, read: PendingRead) -> None:
        cold_reads = self.gateway.cold_reads
        stream = next(iter(self.consumers)).connection.stream
        address = stream.peer[0]
        future = cold_reads.start(self, read.size_hint, read.run, address)
        if future is None:
            cold_reads.wait(self, read.size_hint, self.wake, connection=stream, address=address)
            return
        self._future = future

        def done(future: asyncio.Future[EntryRange]) -> None:
            if self._future is not future:
                if not future.cancelled():
                    future.exception()  # retrieved, so that asyncio does not log it
                return
            self._future = None
            if future.cancelled():
                return
            problem = future.exception()
            if problem is None:
                found = future.result()
                self._keep_read(found, found.size_bytes)
                self._step()
            elif isinstance(problem, Exception):
                self._failed(problem)

        future.add_done_callback(done)

    def _failed(self, problem: Exception) -> None:
        """Log a read that failed, and try again after `FAILED_WAIT_S`.

        Where messages are lost, consumers are closed: the next SUBSCRIBE there is an error.
        """
        log.error(
            "dispatch.read_failed",
            extra={
                "partition": self.partition.partition_id,
                "subscription": self.name,
                "problem": str(problem),
            },
        )
        self._keep_read(None)
        if isinstance(problem, SegmentMissing | ObjectMissing):
            self.gateway.log.check_segments()
            if self.gateway.log.missing_segments:
                self.close_all()
                return
        if self._timer is None:
            self._timer = self.gateway.loop.call_later(FAILED_WAIT_S, self._due)


PulsarConsumer: TypeAlias = Consumer[Dispatcher]
