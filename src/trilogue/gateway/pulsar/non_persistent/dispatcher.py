"""Consumers of non-persistent topics, and the dispatch of a message to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from trilogue.broker.non_persistent.subscription import NonPersistentSubscription
from trilogue.broker.non_persistent.topics import LEDGER_ID, NonPersistentTopic
from trilogue.broker.subscriptions.consumer import NO_EPOCH
from trilogue.broker.subscriptions.murmur import key_hash
from trilogue.broker.subscriptions.subscription import SubscriptionType
from trilogue.entry.pulsar.pulsar_batch import Flag, build_entry
from trilogue.gateway.pulsar.consumer import Consumer, send_active_change
from trilogue.gateway.pulsar.entry_reader import DispatchEntry
from trilogue.gateway.pulsar.message_ids import read_section_key
from trilogue.wire.pulsar.message_codec import encode_messages

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.services import PulsarServices


class NonPersistentConsumer(Consumer["NonPersistentDispatcher"], eq=False, kw_only=True):
    """A consumer that gets messages only while it has permits and its connection takes them."""

    @property
    def ready(self) -> bool:
        """Whether it can be sent a message now."""
        return self.demand > 0 and not self.connection.write_paused

    def send_entries(
        self, entry_ids: Sequence[int], messages: Sequence[int], sections: Sequence[bytes]
    ) -> int:
        """Send entries, each as one message; return the bytes of their sections."""
        connection, dispatcher = self.connection, self.dispatcher
        assert dispatcher is not None, "only a member of a subscription is sent messages"
        if not self.takes_sections:
            return sum(map(self._send_entry, entry_ids, messages, sections))
        epoch = self.epoch if self.sends_epoch else NO_EPOCH
        frames = encode_messages(
            self.consumer_id, LEDGER_ID, entry_ids, dispatcher.index, epoch, sections
        )
        connection.write_all(frames)
        return sum(map(len, sections))

    def _send_entry(self, entry_id: int, messages: int, section: bytes) -> int:
        now_ms = self.connection.gateway.now_ms()
        stored, _, stamp = build_entry(section, broker_ms=now_ms)
        is_batch = bool(stamp.flags & Flag.BATCH)
        entry = DispatchEntry(entry_id, entry_id + messages, section, stored, stamp.flags, is_batch)
        return self.send(entry, 0, None)


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


def dispatch_entries(
    gateway: PulsarServices,
    topic: NonPersistentTopic,
    messages: Sequence[int],
    sections: Sequence[bytes],
) -> None:
    """Send each entry to one ready consumer of each subscription, or drop it.

    `messages` is how many messages each has. Their ids are the next of the topic.
    """
    rates, now_s, first_id = topic.rates, gateway.loop.time(), topic.next_entry_id
    sizes, keys = [len(each) for each in sections], list[int]()
    for subscription in tuple(topic.subscriptions.values()):
        if subscription.needs_key and not keys:
            keys = [key_hash(read_section_key(each)) for each in sections]
        shares = subscription.share_out(messages, sizes, keys, rates, now_s)
        dropped_messages, dropped_size = sum(messages), sum(sizes)
        for member, indexes in shares.items():
            consumer = cast("NonPersistentConsumer", member)
            count = sum(messages[index] for index in indexes)
            size = consumer.send_entries(
                [first_id + index for index in indexes],
                [messages[index] for index in indexes],
                [sections[index] for index in indexes],
            )
            gateway.messages_out += count
            gateway.bytes_out += size
            dropped_messages -= count
            dropped_size -= sum(sizes[index] for index in indexes)
            connection = consumer.connection
            if gateway.quotas.active and not connection.is_gone:
                connection.byte_quotas.count_fetched(connection.principal.name, "", size)
        gateway.messages_dropped += dropped_messages
        gateway.bytes_dropped += dropped_size
