"""The subscriptions that have consumers, by partition and name; their administration.

A subscription is here as long as a consumer is connected to it. Its durable state is the broker's
(broker/cursors/subscription_cursors.py); a subscription that is not durable (a reader's) ends here.

For administration, whether or not a consumer is connected:

    subscriptions.stats(partition)                     state of each subscription and consumer
    subscriptions.mark_moved(partition_id, name)       its mark was moved up (skip, expiry)
    await subscriptions.seek(partition, name, mark)    move the mark; consumers subscribe again
    await subscriptions.delete(partition, name)        delete it, and disconnect its consumers
    subscriptions.close_all(partition_id)              disconnect all consumers (unload, deletion)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from trilogue.broker.cursors.position import Cursor, Position
from trilogue.broker.errors import SubscriptionBusy, UnknownSubscription
from trilogue.broker.promise import Promise
from trilogue.broker.subscriptions.shared_dispatch import SharedLimits
from trilogue.broker.subscriptions.subscription import SubscriptionType
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.pending_acks import Release
from trilogue.gateway.pulsar.dispatcher import Dispatcher, PulsarConsumer
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.wire.pulsar.pulsar_pb2 import CommandSubscribe

SUBSCRIPTION_TYPES: Mapping[CommandSubscribe.SubType, SubscriptionType] = {
    CommandSubscribe.Exclusive: SubscriptionType.EXCLUSIVE,
    CommandSubscribe.Shared: SubscriptionType.SHARED,
    CommandSubscribe.Failover: SubscriptionType.FAILOVER,
    CommandSubscribe.Key_Shared: SubscriptionType.KEY_SHARED,
}
"""The types of subscriptions by their numbers in SUBSCRIBE."""
TYPE_NAMES = {
    kind: CommandSubscribe.SubType.Name(number) for number, kind in SUBSCRIPTION_TYPES.items()
}
HELD_S = 60.0  # a subscription that is not durable waits so long for its consumers after a seek
_NONE: Mapping[str, Dispatcher] = MappingProxyType({})


class ConsumerStats(NamedTuple):
    """The state of one consumer, for administration."""

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
    client_version: str
    last_flow_ms: int
    messages_per_entry: int  # on average


class SubscriptionStats(NamedTuple):
    """The state of one subscription; `type` is "" while no consumer is connected."""

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
    expired: int = 0  # messages skipped by policies since the node started


class ConnectedSubscriptions:
    """All subscriptions of one gateway that have consumers."""

    def __init__(self, gateway: PulsarServices) -> None:
        self.gateway = gateway
        self._open: dict[int, dict[str, Dispatcher]] = {}
        # What durable subscriptions without consumers were sent: messages and bytes.
        self._sent: dict[int, dict[str, tuple[int, int]]] = {}
        self._held: list[PulsarConsumer] = []  # of partitions on their way to another node

    # ---- lookup

    def find_dispatcher(self, partition_id: int, name: str) -> Dispatcher | None:
        """Return the dispatcher of a subscription that has consumers, or None."""
        return self._open.get(partition_id, _NONE).get(name)

    def of(self, partition_id: int) -> Mapping[str, Dispatcher]:
        """Return the dispatchers of a partition by name; a view, not to be kept."""
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
        acked: Position,
    ) -> Dispatcher:
        """Return the dispatcher to join; a caller that does not join it calls `drop_if_empty`."""
        known = self.find_dispatcher(partition.partition_id, name)
        if known is not None:
            return known
        dispatcher = Dispatcher(
            self.gateway,
            topic,
            partition,
            index,
            name,
            cursor=cursor,
            acked=acked,
            on_empty=self.drop_if_empty,
        )
        if cursor is not None:
            sent = self._sent.get(partition.partition_id, {}).pop(name, (0, 0))
            dispatcher.messages_out, dispatcher.bytes_out = sent
        self._open.setdefault(partition.partition_id, {})[name] = dispatcher
        return dispatcher

    def drop_if_empty(self, dispatcher: Dispatcher) -> None:
        """Forget a dispatcher without consumers, unless it is being moved or held."""
        if dispatcher.consumers or dispatcher.closing or dispatcher.held:
            return
        partition_id = dispatcher.partition.partition_id
        dispatchers = self._open.get(partition_id, {})
        if dispatchers.get(dispatcher.name) is dispatcher:
            del dispatchers[dispatcher.name]
            if dispatcher.cursor is not None and not dispatcher.cursor.gone:
                sent = dispatcher.messages_out, dispatcher.bytes_out
                self._sent.setdefault(partition_id, {})[dispatcher.name] = sent
            if not dispatchers:
                del self._open[partition_id]

    def _hold(self, dispatcher: Dispatcher) -> None:
        """Keep a dispatcher whose consumers were disconnected: only it has their position."""

        def release() -> None:
            dispatcher.held = None
            self.drop_if_empty(dispatcher)

        if dispatcher.held is not None:  # from an earlier move: the time begins again
            dispatcher.held.cancel()
        dispatcher.held = self.gateway.loop.call_later(HELD_S, release)

    # ---- changes

    def topic_changed(self, event: TopicEvent, topic: Topic) -> None:
        """Follow a topic that was deleted, terminated, or has other policies."""
        for partition in topic.partitions:
            if event is TopicEvent.DELETED:
                self.forget_partition(partition.partition_id)
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

    def forget_partition(self, partition_id: int) -> None:
        """Disconnect all consumers of a partition that is no more, or another node's."""
        self.close_all(partition_id)
        self._sent.pop(partition_id, None)

    def hold_consumers(self, partition_ids: Sequence[int]) -> None:
        """Send and ack nothing more: another node is to own the partitions.

        Clients are told by `close_held`: before it has them they would only try in vain.
        """
        for partition_id in partition_ids:
            for dispatcher in list(self.of(partition_id).values()):
                for consumer in list(dispatcher.consumers):
                    dispatcher.leave(consumer)
                    consumer.connection.forget_consumer(consumer.consumer_id)
                    self._held.append(consumer)

    def close_held(self) -> None:
        """Disconnect the consumers that are held; clients look their topics up again."""
        held, self._held = self._held, []
        for consumer in held:
            connection = consumer.connection
            connection.guarded(partial(connection.close_consumer, consumer.consumer_id))

    def close_all(self, partition_id: int) -> None:
        """Disconnect all consumers of a partition; clients look it up and subscribe again."""
        for dispatcher in list(self.of(partition_id).values()):
            dispatcher.close_all()

    def mark_moved(self, partition_id: int, name: str) -> None:
        """Settle what a mark that was moved up has acked."""
        dispatcher = self.find_dispatcher(partition_id, name)
        if dispatcher is not None:
            dispatcher.subscription.settle_all()
            dispatcher.check_end()
            dispatcher.wake()

    def on_release(self, release: Release) -> None:
        """Follow the end of a transaction that had acked messages of a subscription."""
        dispatcher = self.find_dispatcher(release.key.partition_id, release.key.name)
        if dispatcher is not None:
            dispatcher.release_pending(release)

    async def seek(
        self,
        partition: Partition,
        name: str,
        mark: int,
        ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        """Move the mark of a subscription, durably; `end_move` must follow.

        `ranges` above it stay acked. Raises UnknownSubscription, or SubscriptionBusy while another
        move is under way.
        """
        dispatcher, cursor = self._find_state(partition, name)
        if dispatcher is not None:
            if dispatcher.closing:
                raise SubscriptionBusy("the subscription is being moved already")
            dispatcher.closing = True
            dispatcher.park()
        try:
            done = self._reset(partition, dispatcher, cursor, mark, ranges or [])
            if done is not None:
                await self.gateway.wait_for(done)
        except BaseException:
            if dispatcher is not None:
                dispatcher.closing = False
                dispatcher.wake()
                self.drop_if_empty(dispatcher)
            raise

    def _find_state(
        self, partition: Partition, name: str
    ) -> tuple[Dispatcher | None, Cursor | None]:
        dispatcher = self.find_dispatcher(partition.partition_id, name)
        cursor = self.gateway.broker.subscriptions.find_cursor(partition.partition_id, name)
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
        """Move a mark at once; return a promise for the durability of a durable subscription."""
        subscriptions = self.gateway.broker.subscriptions
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
        """Disconnect the consumers after `seek`, and let others subscribe."""
        dispatcher = self.find_dispatcher(partition.partition_id, name)
        if dispatcher is None:
            return
        dispatcher.closing = False
        if dispatcher.cursor is None:
            self._hold(dispatcher)
        dispatcher.close_all()
        self.drop_if_empty(dispatcher)

    async def delete(
        self, partition: Partition, name: str, keep: PulsarConsumer | None = None
    ) -> None:
        """Delete a subscription; its consumers but `keep` are disconnected."""
        subscriptions = self.gateway.broker.subscriptions
        dispatcher, cursor = self._find_state(partition, name)
        done = None
        if cursor is not None:
            done = subscriptions.delete(partition.partition_id, name)
        if dispatcher is not None:
            if keep is not None:
                dispatcher.leave(keep)
            dispatcher.close_all()
        self._sent.get(partition.partition_id, {}).pop(name, None)
        if done is not None:
            await self.gateway.wait_for(done)

    # ---- statistics

    def stats(self, partition: Partition) -> list[SubscriptionStats]:
        """Return the state of every subscription of a partition, by name."""
        return list(self.iter_stats(partition))

    def iter_stats(self, partition: Partition) -> Iterator[SubscriptionStats]:
        """Yield the state of one subscription after the other; those may go in between."""
        partition_id, known = partition.partition_id, self.gateway.broker.subscriptions
        for name in sorted({*known.of_partition(partition_id), *self.of(partition_id)}):
            cursor = known.find_cursor(partition_id, name)
            if cursor is not None or self.find_dispatcher(partition_id, name) is not None:
                yield self._stats(partition_id, name, cursor)

    def _stats(self, partition_id: int, name: str, cursor: Cursor | None) -> SubscriptionStats:
        dispatcher = self.find_dispatcher(partition_id, name)
        properties = {} if cursor is None else dict(cursor.properties)
        if dispatcher is None:
            assert cursor is not None, "a durable subscription, or one with consumers"
            backlog = self.gateway.broker.subscriptions.backlog(cursor)
            sent = self._sent.get(partition_id, {}).get(name, (0, 0))
            return SubscriptionStats(
                name, "", True, backlog, 0, False, 0, *sent, "", properties, [], cursor.expired
            )
        subscription = dispatcher.subscription
        consumers = [build_consumer_stats(each) for each in dispatcher.consumers]
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
            0 if cursor is None else cursor.expired,
        )


def build_consumer_stats(consumer: PulsarConsumer) -> ConsumerStats:
    """Return the state of one consumer."""
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
        consumer.connection.client_version,
        consumer.last_flow_ms,
        consumer.messages_out // max(1, consumer.entries_out),
    )
