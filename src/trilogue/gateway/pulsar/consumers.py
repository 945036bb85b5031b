"""SUBSCRIBE, FLOW, REDELIVER, CLOSE_CONSUMER, UNSUBSCRIBE and CONSUMER_STATS.

Which consumer gets which message is decided in broker/subscriptions/subscription.py, and
dispatcher.py sends them. These handlers create and close consumers.

A SUBSCRIBE for a consumer id that exists succeeds again; while that consumer is being created it is
answered ServiceNotReady. CLOSE_CONSUMER takes effect at once, also on a consumer that is being
created, so a SUBSCRIBE that follows it is served in order: a client need not wait for the answer.

A durable subscription begins at `initialPosition` when it is created. One that is not durable (a
reader's) begins where its first consumer wants: at `start_message_id`, or at the first message
published within `start_message_rollback_duration_sec`.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.cursors.position import Cursor, Position
from trilogue.broker.errors import (
    InvalidRequest,
    NotAllowed,
    NotReady,
    SubscriptionBusy,
    UnknownMember,
    UnknownSubscription,
    UnknownTopic,
)
from trilogue.broker.quotas.subscribe_rates import ConsumerKey
from trilogue.broker.subscriptions.subscription import SubscriptionType
from trilogue.broker.topics.lookup import partition_index
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.pulsar import schemas
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.consumer import Consumer, check_alive
from trilogue.gateway.pulsar.dispatcher import Dispatcher, PulsarConsumer
from trilogue.gateway.pulsar.entry_search import find_message_id, offset_for_publish_time
from trilogue.gateway.pulsar.errors import EXPECTED
from trilogue.gateway.pulsar.message_ids import signed
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.pulsar.metadata.subscription_access import check_role
from trilogue.gateway.pulsar.non_persistent.consumers import subscribe, unsubscribe
from trilogue.gateway.pulsar.non_persistent.dispatcher import NonPersistentConsumer
from trilogue.gateway.pulsar.non_persistent.topics import is_non_persistent
from trilogue.gateway.pulsar.subscriptions import (
    SUBSCRIPTION_TYPES,
    TYPE_NAMES,
    ConnectedSubscriptions,
)
from trilogue.gateway.steps import next_step
from trilogue.log.errors import SegmentMissing
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.message_codec import read_flow
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMode,
)

log = logging.getLogger(__name__)

ConsumerT = TypeVar("ConsumerT", bound=Consumer[Any])

EARLIEST_FIRST = CommandSubscribe.Earliest
NAME_BYTES_MAX: Final = 1_024  # of a consumer, of a subscription
METADATA_MAX: Final = 16 << 10  # characters of one consumer's metadata
RANGE_BYTES: Final = 128  # of memory that one key range takes, about
REDELIVER_IDS_MAX: Final = 100_000


def handle_subscribe(
    connection: PulsarConnection, command: CommandSubscribe, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Create a consumer, or answer again for one that exists."""
    known = connection.consumers.get(
        command.consumer_id, connection.non_persistent_consumers.get(command.consumer_id)
    )
    if known is not None:
        if known.dispatcher is None:
            raise NotReady("the consumer is being created")
        connection.send_command("success", request_id=command.request_id)
        return None
    present = len(connection.consumers) + len(connection.non_persistent_consumers)
    if present >= connection.gateway.settings.consumers_max:
        raise NotAllowed("the connection has as many consumers as it may")
    connection.check_member_count()
    if is_non_persistent(command.topic):
        transient = _build_consumer(connection, command, NonPersistentConsumer)
        connection.non_persistent_consumers[command.consumer_id] = transient
        return subscribe(connection, command, transient)
    consumer: PulsarConsumer = _build_consumer(connection, command, Consumer)
    connection.consumers[command.consumer_id] = consumer
    return _subscribe(connection, command, consumer)


def _build_consumer(
    connection: PulsarConnection, command: CommandSubscribe, kind: type[ConsumerT]
) -> ConsumerT:
    name = command.consumer_name
    metadata = {each.key: each.value for each in command.metadata}
    if len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a consumer's name has {NAME_BYTES_MAX} bytes at most")
    size = sum(len(text) for each in metadata.items() for text in each)
    if size > METADATA_MAX:
        raise InvalidRequest(f"a consumer's metadata have {METADATA_MAX} characters at most")
    ranges = None
    meta = command.keySharedMeta
    by_key = command.subType == CommandSubscribe.Key_Shared
    brings_ranges = by_key and meta.keySharedMode == KeySharedMode.STICKY
    if brings_ranges:
        size += RANGE_BYTES * len(meta.hashRanges)
    connection.check_metadata_size(size)
    if brings_ranges:
        ranges = tuple((each.start, each.end) for each in meta.hashRanges)
    return kind(
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
        takes_any_schema=schemas.takes_any_schema(command),
        connected_ms=connection.gateway.now_ms(),
        metadata=metadata,
        metadata_size=size,
    )


async def _subscribe(
    connection: PulsarConnection, command: CommandSubscribe, consumer: PulsarConsumer
) -> None:
    try:
        dispatcher = await _join(connection, command, consumer)
    except EXPECTED:
        if connection.consumers.get(command.consumer_id) is consumer:
            del connection.consumers[command.consumer_id]
        raise
    if dispatcher is not None:
        connection.send_command("success", request_id=command.request_id)
        dispatcher.joined(consumer)


async def _join(
    connection: PulsarConnection, command: CommandSubscribe, consumer: PulsarConsumer
) -> Dispatcher | None:
    """Find or create topic and subscription and join it; None if it was closed meanwhile."""
    gateway = connection.gateway
    name = parse_authorized(connection, command.topic, Operation.READ)
    if gateway.broker.cluster.find_topic(name.topic) is None and not command.force_topic_creation:
        raise UnknownTopic("the topic does not exist")
    topic, partition = await gateway.find_or_create_topic(name)
    kind = SUBSCRIPTION_TYPES[command.subType]
    _check(connection, command, partition, kind)
    check_role(connection, command.subscription, topic.name, partition.policies)
    host = connection.stream.peer[0]
    gateway.check_subscribe_rate(
        ConsumerKey(command.topic, host, consumer.name, command.consumer_id),
        partition.policies.subscribe_rate,
    )
    subscriptions = connection.subscriptions
    has_others = partial(_has_schemas, subscriptions, partition.partition_id)
    await schemas.check_consumer_schema(
        gateway, topic, partition, command, connection.access, has_others=has_others
    )
    cursor: Cursor | None = None
    acked: Position | None = None
    if command.durable:
        acked = cursor = await _find_or_create_cursor(connection, command, partition)
    elif subscriptions.find_dispatcher(partition.partition_id, command.subscription) is None:
        acked = Position(await _find_start(connection, command, partition))
    removed: Iterable[tuple[int, int]] = ()
    if consumer.read_compacted:
        removed = await connection.compaction.find_removed(topic, partition)
    # Nothing waits from here on, so that no other request comes between.
    if consumer.closed or connection.is_gone:
        return None
    if partition.deleted or (cursor is not None and cursor.gone):
        raise NotReady("the topic or the subscription was deleted meanwhile")
    dispatcher = _open(connection, command, topic, partition, cursor=cursor, acked=acked)
    try:
        _check_readable(partition, dispatcher)
        dispatcher.join(consumer, kind)
    except EXPECTED as problem:
        subscriptions.drop_if_empty(dispatcher)
        if isinstance(problem, SubscriptionBusy):
            check_alive(dispatcher.consumers)
        raise
    dispatcher.exclude(removed)
    return dispatcher


def _open(
    connection: PulsarConnection,
    command: CommandSubscribe,
    topic: Topic,
    partition: Partition,
    *,
    cursor: Cursor | None,
    acked: Position | None,
) -> Dispatcher:
    """Return the dispatcher to join: that of a connected subscription, or a new one."""
    subscriptions = connection.subscriptions
    known = subscriptions.find_dispatcher(partition.partition_id, command.subscription)
    if known is not None and known.cursor is not cursor:
        known.close_all()  # their subscription was deleted, and this is a new one of its name
        known = None
    _check_limits(connection, command, partition, known)
    if known is not None:
        return known
    if acked is None:
        raise NotReady("the subscription has just ended")
    index = partition_index(topic, partition)
    return subscriptions.open(
        topic, partition, index, command.subscription, cursor=cursor, acked=acked
    )


def _check(
    connection: PulsarConnection,
    command: CommandSubscribe,
    partition: Partition,
    kind: SubscriptionType,
) -> None:
    """Refuse a SUBSCRIBE that contradicts itself or the topic, before anything is created."""
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
    durable = connection.gateway.broker.subscriptions.find_cursor(
        partition_id, command.subscription
    )
    if not command.durable and durable is not None:
        raise NotAllowed("a durable subscription of this name exists")
    known = connection.subscriptions.find_dispatcher(partition_id, command.subscription)
    if command.durable and known is not None and known.cursor is None:
        raise NotAllowed("a subscription of this name that is not durable exists")


def _check_readable(partition: Partition, dispatcher: Dispatcher) -> None:
    """Refuse a subscription whose next messages are lost: PersistenceError would be retried."""
    try:
        partition.log.check_readable(dispatcher.acked.mark)
    except SegmentMissing as problem:
        raise NotAllowed(f"messages are lost: {problem}") from problem


def _has_schemas(subscriptions: ConnectedSubscriptions, partition_id: int) -> bool:
    """Return whether a consumer of a partition has a schema of its own."""
    dispatchers = subscriptions.of(partition_id).values()
    return any(not one.takes_any_schema for each in dispatchers for one in each.consumers)


def _check_limits(
    connection: PulsarConnection,
    command: CommandSubscribe,
    partition: Partition,
    known: Dispatcher | None,
) -> None:
    """Refuse one consumer or subscription too many."""
    policies = partition.policies
    most = policies.max_consumers
    if most and connection.subscriptions.consumer_count(partition.partition_id) >= most:
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
    durable = connection.gateway.broker.subscriptions.of_partition(partition_id)
    if len({*durable, *connection.subscriptions.of(partition_id)}) >= most:
        raise NotAllowed(f"the topic has {most} subscriptions, as many as it may")


async def _find_or_create_cursor(
    connection: PulsarConnection, command: CommandSubscribe, partition: Partition
) -> Cursor:
    """Return the durable subscription; create it where the policies allow that."""
    subscriptions = connection.gateway.broker.subscriptions
    partition_id = partition.partition_id
    found = subscriptions.find_cursor(partition_id, command.subscription)
    if found is not None:
        return found
    if not partition.policies.auto_subscription:
        raise UnknownSubscription(
            "the subscription does not exist, and is not created automatically"
        )
    _check_one_more(connection, partition)
    mark = await _find_start(connection, command, partition)
    properties = {each.key: each.value for each in command.subscription_properties}
    created = await connection.gateway.wait_for(
        subscriptions.create(partition_id, command.subscription, mark, properties)
    )
    await next_step(connection)  # one commit may end the wait of twenty thousand SUBSCRIBEs
    return created


async def _find_start(
    connection: PulsarConnection, command: CommandSubscribe, partition: Partition
) -> int:
    """Return the offset at which a new subscription begins."""
    gateway, plog = connection.gateway, partition.log
    if command.start_message_rollback_duration_sec:
        back_ms = command.start_message_rollback_duration_sec * 1000
        return await offset_for_publish_time(gateway, partition, max(0, gateway.now_ms() - back_ms))
    if not command.durable and command.HasField("start_message_id"):
        base, _ = await find_message_id(gateway, partition, command.start_message_id)
        return base
    if command.initialPosition == EARLIEST_FIRST:
        return plog.start_offset
    return plog.high_watermark


# ---- commands of a consumer that exists


def _find_consumer(
    connection: PulsarConnection, consumer_id: int
) -> tuple[PulsarConsumer, Dispatcher]:
    """Return a consumer of a subscription, and its dispatcher; raises UnknownMember."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        raise UnknownMember("the connection has no such consumer")
    return consumer, consumer.dispatcher


def handle_flow(connection: PulsarConnection, _command: None, frame: memoryview) -> None:
    """Give a consumer permits; a FLOW for a closed consumer crossed its CLOSE_CONSUMER."""
    consumer_id, permits = read_flow(frame)
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        transient = connection.non_persistent_consumers.get(consumer_id)
        if transient is not None:
            transient.add_demand(permits)
        return
    dispatcher = consumer.dispatcher
    consumer.last_flow_ms = connection.gateway.now_ms()
    dispatcher.subscription.add_demand(consumer, permits)
    dispatcher.wake()


def handle_redeliver(
    connection: PulsarConnection,
    command: CommandRedeliverUnacknowledgedMessages,
    _frame: memoryview,
) -> None:
    """Take messages of a consumer back, to send them again."""
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


def handle_close_consumer(
    connection: PulsarConnection, command: CommandCloseConsumer, _frame: memoryview
) -> None:
    """Close a consumer, whether it exists, is being created, or is closed already."""
    consumer = connection.consumers.pop(
        command.consumer_id, None
    ) or connection.non_persistent_consumers.pop(command.consumer_id, None)
    if consumer is not None:
        consumer.gone()
    connection.send_command("success", request_id=command.request_id)


async def handle_unsubscribe(
    connection: PulsarConnection, command: CommandUnsubscribe, _frame: memoryview
) -> None:
    """Delete a consumer's subscription; one with other consumers only when `force` is set."""
    transient = connection.non_persistent_consumers.get(command.consumer_id)
    if transient is not None:
        unsubscribe(connection, transient, force=command.force)
        connection.send_command("success", request_id=command.request_id)
        return
    try:
        consumer, dispatcher = _find_consumer(connection, command.consumer_id)
    except UnknownMember as problem:
        connection.send_error(command.request_id, ServerError.MetadataError, str(problem))
        return
    if len(dispatcher.consumers) > 1 and not command.force:
        connection.send_error(
            command.request_id,
            ServerError.MetadataError,
            "other consumers are connected to the subscription",
        )
        return
    connection.consumers.pop(command.consumer_id, None)
    await connection.subscriptions.delete(dispatcher.partition, dispatcher.name, keep=consumer)
    if dispatcher.cursor is not None:
        resource = Resource(ResourceKind.TOPIC, str(dispatcher.topic.name))
        connection.access.record_act(
            "delete subscription",
            resource,
            subscription=dispatcher.name,
            partition=dispatcher.index,
        )
    if not connection.is_gone:
        connection.send_command("success", request_id=command.request_id)


def handle_consumer_stats(
    connection: PulsarConnection, command: CommandConsumerStats, _frame: memoryview
) -> None:
    """Send statistics of a consumer; a failure is reported in the same answer."""
    try:
        consumer, dispatcher = _find_consumer(connection, command.consumer_id)
    except UnknownMember as problem:
        connection.send_command(
            "consumerStatsResponse",
            request_id=command.request_id,
            error_code=ServerError.ConsumerNotFound,
            error_message=str(problem),
        )
        return
    kind = dispatcher.subscription.kind
    now_ms = connection.gateway.now_ms()
    seconds = max(1.0, (now_ms - consumer.connected_ms) / 1000)
    since = datetime.fromtimestamp(consumer.connected_ms / 1000, UTC)
    connection.send_command(
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
