"""All subscriptions that have consumers, by partition and name; and what others may ask of them.

A subscription is here as long as somebody is connected to it, no longer. What is durable of it is
the broker's (broker/subscriptions.py). One that is not durable (a reader's) ends here.

For administration (they work whether or not anybody is connected):

    readers.stats(partition)                 what each subscription and consumer is doing
    readers.moved(partition_id, name)        its mark was moved up from elsewhere (skip, expiry)
    await readers.seek(partition, name, mark)    put the mark anywhere; consumers come again
    await readers.delete(partition, name)    forget it, and send its consumers off
    readers.close_all(partition_id)          send all consumers off (unload, deletion)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from trilogue.broker.acks import Acked
from trilogue.broker.cluster import Event
from trilogue.broker.errors import SubscriptionBusy, UnknownSubscription
from trilogue.broker.partition import Partition
from trilogue.broker.promise import Promise
from trilogue.broker.spread import SharedLimits
from trilogue.broker.subscriptions import Cursor
from trilogue.broker.topic import Topic
from trilogue.gateway.pulsar.consumer import Consumer
from trilogue.gateway.pulsar.dispatch import Dispatcher

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.shared import Shared

TYPE_NAMES = ("Exclusive", "Shared", "Failover", "Key_Shared")
HELD_S = 60.0
_NONE: Mapping[str, Dispatcher] = MappingProxyType({})


class ConsumerStats(NamedTuple):
    """One consumer, as administration shows it."""

    name: str
    address: str
    connected_ms: int
    available_permits: int
    unacked_messages: int
    blocked_on_unacked: bool
    messages_out: int
    bytes_out: int
    messages_redelivered: int
    messages_acked: int
    priority: int
    metadata: dict[str, str]


class SubscriptionStats(NamedTuple):
    """One subscription; `type` is "" while nobody is connected."""

    name: str
    type: str
    durable: bool
    backlog: int
    unacked_messages: int
    blocked_on_unacked: bool
    delayed: int
    messages_out: int
    bytes_out: int
    active_consumer: str
    properties: dict[str, str]
    consumers: list[ConsumerStats]


class Readers:
    """What Pulsar consumers of one door read."""

    def __init__(self, door: Shared) -> None:
        self.door = door
        self._open: dict[int, dict[str, Dispatcher]] = {}

    # ---- what there is

    def find(self, partition_id: int, name: str) -> Dispatcher | None:
        """Return a subscription that somebody is connected to."""
        return self._open.get(partition_id, _NONE).get(name)

    def of(self, partition_id: int) -> Mapping[str, Dispatcher]:
        """Return those of a partition by name; a view, not to be kept."""
        return self._open.get(partition_id, _NONE)

    def consumer_count(self, partition_id: int) -> int:
        """How many consumers a partition has."""
        return sum(len(each.consumers) for each in self.of(partition_id).values())

    def open(
        self,
        topic: Topic,
        partition: Partition,
        index: int,
        name: str,
        *,
        cursor: Cursor | None,
        acked: Acked,
    ) -> Dispatcher:
        """Return the subscription to join; whoever does not join it must call `left`."""
        known = self.find(partition.partition_id, name)
        if known is not None:
            return known
        made = Dispatcher(self, topic, partition, index, name, cursor=cursor, acked=acked)
        self._open.setdefault(partition.partition_id, {})[name] = made
        return made

    def left(self, dispatcher: Dispatcher) -> None:
        """Forget a subscription that nobody is connected to."""
        if dispatcher.consumers or dispatcher.closing or dispatcher.held:
            return
        partition_id = dispatcher.partition.partition_id
        there = self._open.get(partition_id, {})
        if there.get(dispatcher.name) is dispatcher:
            del there[dispatcher.name]
            if not there:
                del self._open[partition_id]

    def _hold(self, dispatcher: Dispatcher) -> None:
        """Wait for those who were sent off: nothing but memory knows where they go on."""

        def let_go() -> None:
            dispatcher.held = None
            self.left(dispatcher)

        if dispatcher.held is not None:  # from a move before: their time begins anew
            dispatcher.held.cancel()
        dispatcher.held = self.door.loop.call_later(HELD_S, let_go)

    # ---- what is done to them

    def topic_changed(self, event: Event, topic: Topic) -> None:
        """A topic was deleted, terminated, or has other policies."""
        for partition in topic.partitions:
            if event is Event.DELETED:
                self.close_all(partition.partition_id)
                continue
            for dispatcher in list(self.of(partition.partition_id).values()):
                policies = partition.policies
                dispatcher.subscription.set_limits(
                    SharedLimits(
                        member_unacked=policies.max_unacked_per_consumer,
                        unacked=policies.max_unacked_per_subscription,
                    )
                )
                dispatcher.check_end()
                dispatcher.wake()

    def close_all(self, partition_id: int) -> None:
        """Send off all consumers of a partition; they look it up and come again."""
        for dispatcher in list(self.of(partition_id).values()):
            dispatcher.close_all()

    def moved(self, partition_id: int, name: str) -> None:
        """Somebody moved a mark up: forget what was acked by that."""
        dispatcher = self.find(partition_id, name)
        if dispatcher is not None:
            dispatcher.subscription.settle_all()
            dispatcher.check_end()
            dispatcher.wake()

    async def seek(
        self,
        partition: Partition,
        name: str,
        mark: int,
        ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        """Put the mark of a subscription somewhere, durably; then its consumers are sent off.

        `ranges` above it stay acked. Raises UnknownSubscription, or SubscriptionBusy while another
        move is on its way.
        """
        dispatcher, cursor = self._both(partition, name)
        if dispatcher is not None:
            if dispatcher.closing:
                raise SubscriptionBusy("the subscription is being moved already")
            dispatcher.closing = True
            dispatcher.rest()
        try:
            done = self._reset(partition, dispatcher, cursor, mark, ranges or [])
            if done is not None:
                await self.door.kept(done)
        except BaseException:
            if dispatcher is not None:
                dispatcher.closing = False
                dispatcher.wake()
                self.left(dispatcher)
            raise

    def _both(self, partition: Partition, name: str) -> tuple[Dispatcher | None, Cursor | None]:
        dispatcher = self.find(partition.partition_id, name)
        cursor = self.door.broker.subscriptions.find(partition.partition_id, name)
        if dispatcher is None and cursor is None:
            raise UnknownSubscription("there is no such subscription")
        return dispatcher, cursor

    def _reset(
        self,
        partition: Partition,
        dispatcher: Dispatcher | None,
        cursor: Cursor | None,
        mark: int,
        ranges: list[tuple[int, int]],
    ) -> Promise[None] | None:
        """Move a mark, at once; the promise is kept when that is durable, where anything is."""
        subscriptions = self.door.broker.subscriptions
        done = None
        if cursor is not None:
            done = subscriptions.reset(cursor, mark)
            subscriptions.ack(cursor, ranges)
        elif dispatcher is not None:
            plog, acked = partition.log, dispatcher.acked
            acked.reset(min(max(mark, plog.start_offset), plog.high_watermark))
            for start, end in ranges:
                acked.ack(start, end)
        if dispatcher is not None:
            dispatcher.reset()
        return done

    def end_move(self, partition: Partition, name: str) -> None:
        """After `seek`: send the consumers off, let others in."""
        dispatcher = self.find(partition.partition_id, name)
        if dispatcher is None:
            return
        dispatcher.closing = False
        if dispatcher.cursor is None:
            self._hold(dispatcher)
        dispatcher.close_all()
        self.left(dispatcher)

    async def delete(self, partition: Partition, name: str, keep: Consumer | None = None) -> None:
        """Forget a subscription for good; its consumers but `keep` are sent off."""
        subscriptions = self.door.broker.subscriptions
        dispatcher, cursor = self._both(partition, name)
        done = None
        if cursor is not None:
            done = subscriptions.delete(partition.partition_id, name)
        if dispatcher is not None:
            if keep is not None:
                dispatcher.leave(keep)
            dispatcher.close_all()
        if done is not None:
            await self.door.kept(done)

    # ---- numbers

    def stats(self, partition: Partition) -> list[SubscriptionStats]:
        """Say what every subscription of a partition is doing, by name."""
        partition_id = partition.partition_id
        cursors = self.door.broker.subscriptions.of(partition_id)
        names = sorted({*cursors, *self.of(partition_id)})
        return [self._stats(partition_id, name, cursors.get(name)) for name in names]

    def _stats(self, partition_id: int, name: str, cursor: Cursor | None) -> SubscriptionStats:
        dispatcher = self.find(partition_id, name)
        properties = {} if cursor is None else dict(cursor.properties)
        if dispatcher is None:
            assert cursor is not None, "it is kept, or somebody is connected"
            backlog = self.door.broker.subscriptions.backlog(cursor)
            return SubscriptionStats(name, "", True, backlog, 0, False, 0, 0, 0, "", properties, [])
        subscription = dispatcher.subscription
        consumers = [consumer_stats(each) for each in dispatcher.consumers]
        active = subscription.active
        return SubscriptionStats(
            name,
            "" if subscription.kind is None else TYPE_NAMES[subscription.kind],
            cursor is not None,
            dispatcher.backlog,
            subscription.unacked,
            subscription.blocked,
            subscription.delayed,
            dispatcher.messages_out,
            dispatcher.bytes_out,
            "" if active is None else active.name,
            properties,
            consumers,
        )


def consumer_stats(consumer: Consumer) -> ConsumerStats:
    """Say what one consumer is doing."""
    return ConsumerStats(
        consumer.name,
        consumer.address,
        consumer.connected_ms,
        consumer.demand,
        consumer.unacked,
        consumer.blocked,
        consumer.messages_out,
        consumer.bytes_out,
        consumer.redelivered,
        consumer.acked,
        consumer.priority,
        consumer.metadata,
    )


def summary(stats: SubscriptionStats) -> dict[str, Any]:
    """The same as plain data."""
    return {**stats._asdict(), "consumers": [each._asdict() for each in stats.consumers]}
