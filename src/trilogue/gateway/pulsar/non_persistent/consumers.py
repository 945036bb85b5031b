"""Consumers of non-persistent topics: SUBSCRIBE and the commands that follow it.

A subscription is made by its first consumer and has no position: ACK, REDELIVER and SEEK are
answered and have no effect, as in Apache Pulsar. GET_LAST_MESSAGE_ID is refused: nothing is kept.
"""

from __future__ import annotations

from typing import Final, cast

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import (
    InvalidRequest,
    NotAllowed,
    NotReady,
    SubscriptionBusy,
    UnknownSubscription,
)
from trilogue.broker.non_persistent.topics import NonPersistentTopic
from trilogue.broker.quotas.subscribe_rates import ConsumerKey
from trilogue.broker.subscriptions.subscription import SubscriptionType
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.consumer import check_alive
from trilogue.gateway.pulsar.errors import EXPECTED
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.pulsar.metadata.subscription_access import check_role
from trilogue.gateway.pulsar.non_persistent.dispatcher import (
    NonPersistentConsumer,
    NonPersistentDispatcher,
)
from trilogue.gateway.pulsar.non_persistent.schemas import check_consumer_schema
from trilogue.gateway.pulsar.non_persistent.topics import find_or_create
from trilogue.gateway.pulsar.subscriptions import SUBSCRIPTION_TYPES, TYPE_NAMES
from trilogue.wire.pulsar.pulsar_pb2 import CommandSubscribe

NAME_BYTES_MAX: Final = 1_024


async def subscribe(
    connection: PulsarConnection, command: CommandSubscribe, consumer: NonPersistentConsumer
) -> None:
    """Let a consumer join its subscription, and answer."""
    consumers = connection.non_persistent_consumers
    try:
        dispatcher = await _join(connection, command, consumer)
    except EXPECTED:
        if consumers.get(command.consumer_id) is consumer:
            del consumers[command.consumer_id]
        raise
    if dispatcher is not None:
        connection.send_command("success", request_id=command.request_id)
        dispatcher.joined(consumer)


async def _join(
    connection: PulsarConnection, command: CommandSubscribe, consumer: NonPersistentConsumer
) -> NonPersistentDispatcher | None:
    """Return the subscription that the consumer has joined; None if it was closed meanwhile."""
    gateway = connection.gateway
    name = parse_authorized(connection, command.topic, Operation.READ)
    topic = await find_or_create(gateway, name, may_create=command.force_topic_creation)
    kind = SUBSCRIPTION_TYPES[command.subType]
    _check(command, topic, kind)
    check_role(connection, command.subscription, name.topic, topic.policies)
    host = connection.stream.peer[0]
    gateway.check_subscribe_rate(
        ConsumerKey(command.topic, host, consumer.name, command.consumer_id),
        topic.policies.subscribe_rate,
    )
    await check_consumer_schema(gateway, topic, command)
    # Nothing waits from here on, so that no other request comes between.
    if consumer.closed or connection.is_gone:
        return None
    if topic.deleted:
        raise NotReady("the topic was deleted meanwhile")
    known = topic.subscriptions.get(command.subscription)
    _check_limits(topic, command, known)
    dispatcher = cast("NonPersistentDispatcher | None", known)
    if dispatcher is None:
        gateway.broker.non_persistent.check_subscription_room(topic)
        dispatcher = NonPersistentDispatcher(
            gateway, topic, command.subscription, durable=command.durable
        )
    try:
        dispatcher.join(consumer, kind)
    except SubscriptionBusy:
        check_alive(dispatcher.consumers)
        raise
    topic.subscriptions[command.subscription] = dispatcher
    consumer.dispatcher = dispatcher
    return dispatcher


def _check(command: CommandSubscribe, topic: NonPersistentTopic, kind: SubscriptionType) -> None:
    """Refuse a SUBSCRIBE that contradicts itself or the topic, before anything is created."""
    if not command.subscription:
        raise NotAllowed("a subscription has a name")
    if len(command.subscription.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a subscription's name has {NAME_BYTES_MAX} bytes at most")
    type_name = TYPE_NAMES[kind]
    if type_name not in topic.policies.subscription_types:
        raise NotAllowed(f"subscriptions of type {type_name} are not allowed here")
    if command.read_compacted:
        raise NotAllowed("readCompacted is only valid on persistent topics")


def _check_limits(
    topic: NonPersistentTopic, command: CommandSubscribe, known: object | None
) -> None:
    """Refuse one consumer or subscription too many."""
    policies = topic.policies
    most = policies.max_consumers
    if most and topic.consumer_count >= most:
        raise SubscriptionBusy(f"the topic has {most} consumers, as many as it may")
    if known is None:
        if command.durable and not policies.auto_subscription:
            raise UnknownSubscription(
                "the subscription does not exist, and is not created automatically"
            )
        most = policies.max_subscriptions
        if most and len(topic.subscriptions) >= most:
            raise NotAllowed(f"the topic has {most} subscriptions, as many as it may")
        return
    most = policies.max_consumers_per_subscription
    if most and len(topic.subscriptions[command.subscription].members) >= most:
        raise SubscriptionBusy(f"the subscription has {most} consumers, as many as it may")


def unsubscribe(
    connection: PulsarConnection, consumer: NonPersistentConsumer, *, force: bool
) -> None:
    """Delete a consumer's subscription; NotAllowed while others are connected without `force`."""
    dispatcher = consumer.dispatcher
    if dispatcher is None:
        raise NotReady("the consumer is being created")
    if len(dispatcher.members) > 1 and not force:
        raise NotAllowed("other consumers are connected to the subscription")
    del connection.non_persistent_consumers[consumer.consumer_id]
    dispatcher.leave(consumer)
    dispatcher.close_all()
    dispatcher.topic.subscriptions.pop(dispatcher.name, None)
