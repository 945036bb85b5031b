"""SUBSCRIBE, FLOW, REDELIVER, CLOSE_CONSUMER, UNSUBSCRIBE and CONSUMER_STATS.

Who gets which message is the broker's affair (broker/subscription.py); the loop that sends them is
dispatch.py. Here a consumer comes and goes.

SUBSCRIBE for a consumer id that is there already succeeds again; while it is still being made it is
ServiceNotReady. CLOSE_CONSUMER takes effect at once, also on a consumer that is still being made,
so a SUBSCRIBE right behind it is served in order (seed 000, "CloseConsumer": a client need not wait
for the answer).

Durable subscriptions begin where `initialPosition` says when they are made and never again; those
that are not durable (readers) begin where their first consumer wants: with `start_message_id`, or
with the first message published within `start_message_rollback_duration_sec`.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trilogue.broker.access import Operation
from trilogue.broker.acks import Acked
from trilogue.broker.errors import (
    InvalidRequest,
    NotAllowed,
    NotReady,
    SubscriptionBusy,
    UnknownMember,
    UnknownSubscription,
    UnknownTopic,
)
from trilogue.broker.naming import find_partition, partition_index
from trilogue.broker.partition import Partition
from trilogue.broker.subscription import Kind
from trilogue.broker.subscriptions import Cursor
from trilogue.broker.topic import Topic
from trilogue.gateway.pulsar import schemas
from trilogue.gateway.pulsar.consumer import Consumer
from trilogue.gateway.pulsar.dispatch import Dispatcher
from trilogue.gateway.pulsar.errors import EXPECTED
from trilogue.gateway.pulsar.lookup import named
from trilogue.gateway.pulsar.positions import signed
from trilogue.gateway.pulsar.readers import TYPE_NAMES
from trilogue.gateway.pulsar.seek import offset_for_publish_time, start_of
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.hot import read_flow
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMode,
)

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

log = logging.getLogger(__name__)

EARLIEST_FIRST = CommandSubscribe.Earliest
NAME_BYTES_MAX: Final = 1_024  # of a consumer, of a subscription
METADATA_MAX: Final = 16 << 10  # characters that a consumer may say about itself
RANGE_BYTES: Final = 128  # about what one that it asks for takes
REDELIVER_IDS_MAX: Final = 100_000


def subscribe(
    connection: PulsarConnection, command: CommandSubscribe, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Make a consumer, or say that it is there."""
    known = connection.consumers.get(command.consumer_id)
    if known is not None:
        if known.dispatcher is None:
            raise NotReady("the consumer is being made")
        connection.say("success", request_id=command.request_id)
        return None
    if len(connection.consumers) >= connection.door.settings.consumers_max:
        raise NotAllowed("the connection has as many consumers as it may")
    consumer = _consumer_of(connection, command)
    connection.consumers[command.consumer_id] = consumer
    return _subscribe(connection, command, consumer)


def _consumer_of(connection: PulsarConnection, command: CommandSubscribe) -> Consumer:
    name = command.consumer_name
    metadata = {each.key: each.value for each in command.metadata}
    if len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a consumer's name has {NAME_BYTES_MAX} bytes at most")
    said = sum(len(text) for each in metadata.items() for text in each)
    if said > METADATA_MAX:
        raise InvalidRequest(f"a consumer's metadata have {METADATA_MAX} characters at most")
    ranges = None
    meta = command.keySharedMeta
    by_key = command.subType == CommandSubscribe.Key_Shared
    brings_ranges = by_key and meta.keySharedMode == KeySharedMode.STICKY
    if brings_ranges:
        said += RANGE_BYTES * len(meta.hashRanges)
    connection.check_said(said)
    if brings_ranges:
        ranges = tuple((each.start, each.end) for each in meta.hashRanges)
    return Consumer(
        name,
        priority=command.priority_level,
        ranges=ranges,
        out_of_order=by_key and meta.allowOutOfOrderDelivery,
        epoch=command.consumer_epoch if command.HasField("consumer_epoch") else -1,
        sends_epoch=command.HasField("consumer_epoch"),
        connection=connection,
        consumer_id=command.consumer_id,
        durable=command.durable,
        read_compacted=command.read_compacted,
        takes_any_schema=schemas.takes_any(command),
        connected_ms=connection.door.now_ms(),
        metadata=metadata,
        said=said,
    )


async def _subscribe(
    connection: PulsarConnection, command: CommandSubscribe, consumer: Consumer
) -> None:
    try:
        dispatcher = await _attached(connection, command, consumer)
    except EXPECTED:
        if connection.consumers.get(command.consumer_id) is consumer:
            del connection.consumers[command.consumer_id]
        raise
    if dispatcher is not None:
        connection.say("success", request_id=command.request_id)
        dispatcher.joined(consumer)


async def _attached(
    connection: PulsarConnection, command: CommandSubscribe, consumer: Consumer
) -> Dispatcher | None:
    """Find or make topic and subscription and join it; None: nobody wants it any more."""
    door = connection.door
    name = named(connection, command.topic, Operation.READ)
    cluster = door.broker.cluster
    if cluster.find(name.topic) is not None:
        topic, partition = find_partition(cluster, name)
    elif command.force_topic_creation:
        topic, partition = await door.made(name)
    else:
        raise UnknownTopic("there is no such topic")
    kind = Kind(command.subType)
    _check(connection, command, partition, kind)
    others = _with_schema(door.readers.of(partition.partition_id).values())
    await schemas.for_consumer(door, topic, partition, command, others=others)
    cursor = None
    acked = None
    if command.durable:
        cursor = await _cursor(connection, command, partition)
        acked = cursor.acked
    elif door.readers.find(partition.partition_id, command.subscription) is None:
        acked = Acked(await _start(connection, command, partition))
    spared = await door.compacted.spared(topic, partition, wanted=consumer.read_compacted)
    # From here on nothing waits, so that nobody comes between.
    if consumer.closed or connection.is_gone:
        return None
    if partition.deleted or (cursor is not None and cursor.gone):
        raise NotReady("the topic or the subscription was deleted meanwhile")
    dispatcher = _opened(connection, command, topic, partition, cursor=cursor, acked=acked)
    try:
        dispatcher.join(consumer, kind)
    except EXPECTED as problem:
        door.readers.left(dispatcher)
        if isinstance(problem, SubscriptionBusy):
            for each in dispatcher.consumers:
                each.connection.check_alive()
        raise
    dispatcher.spare(spared)
    return dispatcher


def _opened(
    connection: PulsarConnection,
    command: CommandSubscribe,
    topic: Topic,
    partition: Partition,
    *,
    cursor: Cursor | None,
    acked: Acked | None,
) -> Dispatcher:
    """Return the subscription to join, of those that somebody reads or as a new one of them."""
    readers = connection.door.readers
    known = readers.find(partition.partition_id, command.subscription)
    if known is not None and known.cursor is not cursor:
        known.close_all()  # what they read was deleted, and this is another of its name
        known = None
    _check_limits(connection, command, partition, known)
    if known is not None:
        return known
    if acked is None:
        raise NotReady("the subscription has just ended")
    index = partition_index(topic, partition)
    return readers.open(topic, partition, index, command.subscription, cursor=cursor, acked=acked)


def _check(
    connection: PulsarConnection, command: CommandSubscribe, partition: Partition, kind: Kind
) -> None:
    """Refuse what cannot be, before anything is made."""
    if not command.subscription:
        raise NotAllowed("a subscription has a name")
    if len(command.subscription.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a subscription's name has {NAME_BYTES_MAX} bytes at most")
    type_name = TYPE_NAMES[kind]
    if type_name not in partition.policies.subscription_types:
        raise NotAllowed(f"subscriptions of type {type_name} are not allowed here")
    if command.read_compacted and not kind.is_single:
        raise NotAllowed("compacted topics are read by exclusive and failover consumers only")
    if command.replicate_subscription_state:
        log.info("subscribe.not_replicated", extra={"address": connection.stream.peer[0]})
    partition_id = partition.partition_id
    durable = connection.door.broker.subscriptions.find(partition_id, command.subscription)
    if not command.durable and durable is not None:
        raise NotAllowed("a durable subscription of this name exists")
    known = connection.door.readers.find(partition_id, command.subscription)
    if command.durable and known is not None and known.cursor is None:
        raise NotAllowed("a subscription of this name that is not durable exists")


def _with_schema(dispatchers: Iterable[Dispatcher]) -> int:
    """How many consumers do not take whatever schema comes."""
    return sum(not one.takes_any_schema for each in dispatchers for one in each.consumers)


def _check_limits(
    connection: PulsarConnection,
    command: CommandSubscribe,
    partition: Partition,
    known: Dispatcher | None,
) -> None:
    """Refuse one consumer or subscription too many."""
    policies = partition.policies
    readers = connection.door.readers
    most = policies.max_consumers
    if most and readers.consumer_count(partition.partition_id) >= most:
        raise SubscriptionBusy(f"the topic has {most} consumers, as many as it may")
    most = policies.max_consumers_per_subscription
    if known is not None and most and len(known.consumers) >= most:
        raise SubscriptionBusy(f"the subscription has {most} consumers, as many as it may")
    if known is None and not command.durable:
        _check_one_more(connection, partition)


def _check_one_more(connection: PulsarConnection, partition: Partition) -> None:
    most = partition.policies.max_subscriptions
    if not most:
        return
    partition_id = partition.partition_id
    durable = connection.door.broker.subscriptions.of(partition_id)
    if len({*durable, *connection.door.readers.of(partition_id)}) >= most:
        raise NotAllowed(f"the topic has {most} subscriptions, as many as it may")


async def _cursor(
    connection: PulsarConnection, command: CommandSubscribe, partition: Partition
) -> Cursor:
    """Find the durable subscription, or make it where that is allowed."""
    subscriptions = connection.door.broker.subscriptions
    partition_id = partition.partition_id
    found = subscriptions.find(partition_id, command.subscription)
    if found is not None:
        return found
    if not partition.policies.auto_subscription:
        raise UnknownSubscription(
            "there is no such subscription, and none is made by mentioning it"
        )
    _check_one_more(connection, partition)
    mark = await _start(connection, command, partition)
    properties = {each.key: each.value for each in command.subscription_properties}
    return await connection.door.kept(
        subscriptions.create(partition_id, command.subscription, mark, properties)
    )


async def _start(
    connection: PulsarConnection, command: CommandSubscribe, partition: Partition
) -> int:
    """Where a new subscription begins."""
    door, plog = connection.door, partition.log
    if command.start_message_rollback_duration_sec:
        back_ms = command.start_message_rollback_duration_sec * 1000
        return await offset_for_publish_time(door, partition, max(0, door.now_ms() - back_ms))
    if not command.durable and command.HasField("start_message_id"):
        return await start_of(door, partition, command.start_message_id)
    if command.initialPosition == EARLIEST_FIRST:
        return plog.start_offset
    return plog.high_watermark


# ---- what consumers say


def find(connection: PulsarConnection, consumer_id: int) -> tuple[Consumer, Dispatcher]:
    """Return a consumer that takes part in a subscription; UnknownMember."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        raise UnknownMember("there is no such consumer on this connection")
    return consumer, consumer.dispatcher


def flow(connection: PulsarConnection, _command: None, frame: memoryview) -> None:
    """A consumer takes more messages. One for a consumer that is gone crossed its end."""
    consumer_id, permits = read_flow(frame)
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        return
    dispatcher = consumer.dispatcher
    dispatcher.subscription.ask(consumer, permits)
    dispatcher.wake()


def redeliver(
    connection: PulsarConnection,
    command: CommandRedeliverUnacknowledgedMessages,
    _frame: memoryview,
) -> None:
    """A consumer gives messages back."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None or consumer.dispatcher is None:
        return
    dispatcher = consumer.dispatcher
    subscription = dispatcher.subscription
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else -1
    bases = None
    if command.message_ids and not subscription.is_single:
        partition_id = dispatcher.partition.partition_id
        bases = [
            signed(each.entryId)
            for each in command.message_ids[:REDELIVER_IDS_MAX]
            if each.ledgerId == partition_id
        ]
    subscription.give_back(consumer, bases, epoch)
    dispatcher.wake()


def close(connection: PulsarConnection, command: CommandCloseConsumer, _frame: memoryview) -> None:
    """A consumer goes, be it made, still being made, or gone already."""
    consumer = connection.consumers.pop(command.consumer_id, None)
    if consumer is not None:
        consumer.gone()
    connection.say("success", request_id=command.request_id)


async def unsubscribe(
    connection: PulsarConnection, command: CommandUnsubscribe, _frame: memoryview
) -> None:
    """A consumer's subscription is deleted, if nobody else uses it or it is to be all the same."""
    try:
        consumer, dispatcher = find(connection, command.consumer_id)
    except UnknownMember as problem:
        connection.error(command.request_id, ServerError.MetadataError, str(problem))
        return
    if len(dispatcher.consumers) > 1 and not command.force:
        connection.error(
            command.request_id,
            ServerError.MetadataError,
            "other consumers are connected to the subscription",
        )
        return
    connection.consumers.pop(command.consumer_id, None)
    await connection.door.readers.delete(dispatcher.partition, dispatcher.name, keep=consumer)
    if not connection.is_gone:
        connection.say("success", request_id=command.request_id)


def stats(connection: PulsarConnection, command: CommandConsumerStats, _frame: memoryview) -> None:
    """Tell numbers about a consumer; what is wrong is told in the same answer."""
    try:
        consumer, dispatcher = find(connection, command.consumer_id)
    except UnknownMember as problem:
        connection.say(
            "consumerStatsResponse",
            request_id=command.request_id,
            error_code=ServerError.ConsumerNotFound,
            error_message=str(problem),
        )
        return
    kind = dispatcher.subscription.kind
    now_ms = connection.door.now_ms()
    seconds = max(1.0, (now_ms - consumer.connected_ms) / 1000)
    since = datetime.fromtimestamp(consumer.connected_ms / 1000, UTC)
    connection.say(
        "consumerStatsResponse",
        request_id=command.request_id,
        msgRateOut=consumer.messages_out / seconds,
        msgThroughputOut=consumer.bytes_out / seconds,
        msgRateRedeliver=consumer.redelivered / seconds,
        consumerName=consumer.name,
        availablePermits=max(0, consumer.demand),
        unackedMessages=consumer.unacked,
        blockedConsumerOnUnackedMsgs=consumer.blocked,
        address=consumer.address,
        connectedSince=since.isoformat(timespec="milliseconds"),
        type="" if kind is None else TYPE_NAMES[kind],
        msgRateExpired=0.0,
        msgBacklog=dispatcher.backlog,
        messageAckRate=consumer.acked / seconds,
    )
