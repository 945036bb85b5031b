"""Consumers of non-persistent topics, and the dispatch of a message to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from trilogue.broker.non_persistent.subscription import NonPersistentSubscription
from trilogue.broker.non_persistent.topics import LEDGER_ID, NonPersistentTopic
from trilogue.broker.subscriptions.consumer import KEYLESS
from trilogue.broker.subscriptions.murmur import key_hash
from trilogue.broker.subscriptions.subscription import SubscriptionType
from trilogue.entry.entry import EntryHeader
from trilogue.entry.pulsar.pulsar_batch import PULSAR_SECTION_AT, Flag, Stamp, sticky_key
from trilogue.gateway.pulsar.consumer import Consumer, send_active_change
from trilogue.gateway.pulsar.entry_reader import DispatchEntry

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.services import PulsarServices


class NonPersistentConsumer(Consumer["NonPersistentDispatcher"], eq=False, kw_only=True):
    """A consumer that gets messages only while it has permits and its connection takes them."""

    @property
    def ready(self) -> bool:
        """Whether it can be sent a message now."""
        return self.demand > 0 and not self.connection.write_paused


class NonPersistentDispatcher(NonPersistentSubscription):
    """A subscription of a non-persistent topic, with consumers of connections."""

    ledger_id = LEDGER_ID

    def __init__(
        self,
        gateway: PulsarServices,
        topic: NonPersistentTopic,
        name: str,
        *,
        durable: bool,
    ) -> None:
        super().__init__(
            name,
            durable=durable,
            partition_index=topic.index,
            hashing=gateway.settings.key_shared_ring,
            now_s=gateway.loop.time(),
        )
        self.topic = topic
        self.index = topic.index
        self._active: NonPersistentConsumer | None = None  # of the newest ACTIVE_CONSUMER_CHANGE

    @property
    def consumers(self) -> list[NonPersistentConsumer]:
        """The consumers that are connected."""
        return cast("list[NonPersistentConsumer]", self.members)

    def joined(self, consumer: NonPersistentConsumer) -> None:
        """Send ACTIVE_CONSUMER_CHANGE, after a new consumer has its SUCCESS."""
        self._active_changed(consumer)

    def leave(self, consumer: NonPersistentConsumer) -> None:
        """Remove a consumer; a subscription that is not durable ends with its last one."""
        consumer.closed = True
        if consumer.dispatcher is not self:
            return
        consumer.dispatcher = None
        self.remove(consumer)
        self.topic.remove_if_done(self)
        self._active_changed()

    def resume(self, consumer: NonPersistentConsumer) -> None:
        """Do nothing: what a paused connection did not take was dropped."""

    def close_all(self) -> None:
        """Disconnect every consumer; clients look the topic up and subscribe again."""
        for consumer in list(self.consumers):
            self.leave(consumer)
            consumer.connection.close_consumer(consumer.consumer_id)

    def _active_changed(self, newcomer: NonPersistentConsumer | None = None) -> None:
        if self.kind is not SubscriptionType.FAILOVER:
            return
        active = cast("NonPersistentConsumer | None", self.active)
        before, self._active = self._active, active
        for consumer in (newcomer, before, active):
            if consumer is not None and consumer.dispatcher is self:
                send_active_change(consumer, is_active=consumer is active)


def dispatch_entry(
    gateway: PulsarServices,
    topic: NonPersistentTopic,
    entry: memoryview,
    header: EntryHeader,
    stamp: Stamp,
) -> int:
    """Send an entry to one ready consumer of each subscription, or drop it; return its entry id."""
    count, flags = header.last_offset_delta + 1, stamp.flags
    entry_id = topic.next_entry_id()
    section = entry[PULSAR_SECTION_AT:]
    sent = DispatchEntry(
        entry_id, entry_id + count, section, entry, flags, bool(flags & Flag.BATCH)
    )
    rates, now_s, key = topic.rates, gateway.loop.time(), KEYLESS
    for subscription in tuple(topic.subscriptions.values()):
        if subscription.needs_key and key == KEYLESS:
            key = key_hash(sticky_key(entry))
        member = subscription.offer(count, len(section), key, rates, now_s)
        if member is None:
            gateway.messages_dropped += count
            gateway.bytes_dropped += len(section)
            continue
        consumer = cast("NonPersistentConsumer", member)
        size = consumer.send(sent, 0, None)
        gateway.messages_out += count
        gateway.bytes_out += size
        connection = consumer.connection
        if gateway.quotas.active and not connection.is_gone:
            connection.byte_quotas.count_fetched(connection.principal.name, "", size)
    return entry_id
