"""The start position of a consumer, and its SUBSCRIBE command."""

from __future__ import annotations

from dataclasses import dataclass

from trilogue.client.pulsar.message import EARLIEST, LATEST, UINT64, MessageId
from trilogue.client.pulsar.options import ConsumerOptions, SubscriptionType
from trilogue.client.pulsar.producer.topic_producer import key_values, schema_message
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandSubscribe,
    IntRange,
    KeySharedMeta,
    KeySharedMode,
    MessageIdData,
)


@dataclass(frozen=True, slots=True)
class StartPosition:
    """After a message, or at it (`inclusive`); EARLIEST and LATEST are before and after all."""

    id: MessageId
    inclusive: bool = False

    def data(self) -> MessageIdData:
        """The id for the broker; a batch index makes it begin with that entry, not after it."""
        place = self.id.first_chunk if self.inclusive and self.id.first_chunk else self.id[:2]
        data = MessageIdData(ledgerId=place[0] & UINT64, entryId=place[1] & UINT64)
        if self.id in {EARLIEST, LATEST}:
            return data
        if self.id.batch_index >= 0:
            data.batch_index = self.id.batch_index
        elif self.inclusive:
            data.batch_index = 0
        return data

    def is_before(self, place: tuple[int, int], batch_index: int) -> bool:
        """Whether a message is not to be delivered, because it is before the start."""
        if self.id in {EARLIEST, LATEST}:
            return False
        begin = self.id.first_chunk if self.inclusive and self.id.first_chunk else self.id[:2]
        if place != begin:
            return place < begin
        if self.id.batch_index < 0 or batch_index < 0 or batch_index == self.id.batch_index:
            return not self.inclusive
        return batch_index < self.id.batch_index


def build_subscribe(
    options: ConsumerOptions, topic: str, start: StartPosition | None, *, first_time: bool
) -> CommandSubscribe:
    """SUBSCRIBE without its consumer id and request id."""
    command = CommandSubscribe(
        topic=topic,
        subscription=options.subscription,
        subType=int(options.type),  # type: ignore[arg-type]
        consumer_id=0,
        request_id=0,
        priority_level=options.priority,
        durable=options.durable,
        initialPosition=int(options.initial_position),  # type: ignore[arg-type]
        read_compacted=options.read_compacted,
        metadata=key_values(options.properties),
        subscription_properties=key_values(options.subscription_properties),
    )
    if options.name is not None:
        command.consumer_name = options.name
    if start is not None and not options.durable:
        command.start_message_id.CopyFrom(start.data())
    if first_time and options.rollback_s:
        command.start_message_rollback_duration_sec = options.rollback_s
    if options.schema is not None:
        command.schema.CopyFrom(schema_message(options.schema))
    if options.type is SubscriptionType.KEY_SHARED:
        sticky = bool(options.hash_ranges)
        command.keySharedMeta.CopyFrom(
            KeySharedMeta(
                keySharedMode=KeySharedMode.STICKY if sticky else KeySharedMode.AUTO_SPLIT,
                hashRanges=[IntRange(start=low, end=high) for low, high in options.hash_ranges],
                allowOutOfOrderDelivery=options.allow_out_of_order,
            )
        )
    return command
