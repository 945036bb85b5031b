"""Ends producers and consumers whose right was taken away while they were open.

SEND and FLOW check no access: it was checked when the producer or consumer was created. So when the
authorizer's decisions may have changed, those of every open one are made again. One without its
right is closed by CLOSE_PRODUCER or CLOSE_CONSUMER; the client creates it again, and that is
refused with AuthorizationError. An Apache Pulsar broker does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from trilogue.broker.access.authorizer import Authorizer, Operation, ResourceKind
from trilogue.broker.names import TopicName, parse_pulsar
from trilogue.broker.topics.policies import Policies
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.dispatcher import Dispatcher
from trilogue.gateway.pulsar.metadata.subscription_access import can_use_subscription

CHECK_S = 0.25
CONNECTIONS_A_STEP = 100


async def end_revoked(authorizer: Authorizer, connections: dict[PulsarConnection, None]) -> None:
    """Check all connections whenever the decisions of the authorizer may have changed."""
    generation = authorizer.generation
    while True:
        await asyncio.sleep(CHECK_S)
        if authorizer.generation == generation:
            continue
        generation = authorizer.generation
        for number, connection in enumerate(list(connections), 1):
            if number % CONNECTIONS_A_STEP == 0:
                await asyncio.sleep(0)
            connection.guarded(partial(_check, connection))


def _check(connection: PulsarConnection) -> None:
    _end_producers(connection)
    _end_consumers(connection)


def _end_producers(connection: PulsarConnection) -> None:
    every = {**connection.producers, **connection.non_persistent_producers}
    for producer_id, producer in every.items():
        name = parse_pulsar(producer.spelled).topic
        if connection.is_allowed(Operation.WRITE, ResourceKind.TOPIC, name):
            continue
        if producer.ready:
            producer.gone()
            connection.close_producer(producer_id)


def _end_consumers(connection: PulsarConnection) -> None:
    revoked: Iterable[int] = [
        consumer_id
        for consumer_id, consumer in connection.consumers.items()
        if consumer.dispatcher is not None and not _can_consume(connection, consumer.dispatcher)
    ]
    for consumer_id in revoked:
        connection.consumers[consumer_id].gone()
        connection.close_consumer(consumer_id)
    for consumer in list(connection.non_persistent_consumers.values()):
        dispatcher = consumer.dispatcher
        if dispatcher is not None and not _can_read(
            connection, dispatcher.name, dispatcher.topic.name.topic, dispatcher.topic.policies
        ):
            consumer.gone()
            connection.close_consumer(consumer.consumer_id)


def _can_consume(connection: PulsarConnection, dispatcher: Dispatcher) -> bool:
    topic, policies = dispatcher.topic.name, dispatcher.partition.policies
    return _can_read(connection, dispatcher.name, topic, policies)


def _can_read(
    connection: PulsarConnection, subscription: str, topic: TopicName, policies: Policies
) -> bool:
    if not connection.is_allowed(Operation.READ, ResourceKind.TOPIC, topic):
        return False
    namespaces = connection.gateway.broker.namespaces
    return can_use_subscription(connection, namespaces, subscription, topic, policies)
