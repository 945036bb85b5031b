"""Producers of non-persistent topics: PRODUCER. What they send is in send_turn.py."""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import NotAllowed, NotReady
from trilogue.broker.producers.access_modes import Admission
from trilogue.entry.pulsar.pulsar_batch import producer_key
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.errors import EXPECTED, PulsarProtocolError
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.pulsar.non_persistent.producer import NonPersistentProducer
from trilogue.gateway.pulsar.non_persistent.schemas import check_producer_schema
from trilogue.gateway.pulsar.non_persistent.topics import find_or_create
from trilogue.gateway.pulsar.producer import Producer
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandProducer


async def create_producer(
    connection: PulsarConnection, command: CommandProducer, metadata_size: int
) -> None:
    """Create a producer; the caller has checked the bounds of the connection."""
    producer = NonPersistentProducer(connection, command)
    producer.metadata_size = metadata_size
    connection.non_persistent_producers[command.producer_id] = producer
    try:
        await _create(connection, producer, command)
    except EXPECTED:
        producer.leave()
        if producer.is_current:
            del connection.non_persistent_producers[producer.producer_id]
            raise


async def _create(
    connection: PulsarConnection, producer: NonPersistentProducer, command: CommandProducer
) -> None:
    gateway = connection.gateway
    name = parse_authorized(connection, command.topic, Operation.WRITE)
    topic = producer.topic = await find_or_create(gateway, name)
    if topic.policies.encryption_required and not command.encrypted:
        raise PulsarProtocolError(
            ServerError.MetadataError, "the topic requires encrypted messages"
        )
    if command.initial_subscription_name:
        raise NotAllowed("a non-persistent topic has no initial subscription: it keeps nothing")
    producer.schema_version = await check_producer_schema(gateway, topic, command)
    if not producer.is_current:  # closed meanwhile: no client waits for an answer
        return
    if topic.deleted:
        raise NotReady("the topic was deleted just now")
    if not producer.name:
        producer.name = gateway.next_producer_name(topic.writers)
    producer.key = producer_key(producer.name)
    holder = topic.writers.get(producer.name)
    if isinstance(holder, Producer) and not producer.replaces(holder):
        holder.connection.check_alive()
    admission = topic.writers.admit(producer, most=topic.policies.max_producers)
    producer.admitted = True
    if admission is Admission.WAITING:
        producer.succeed(ready=False)
    else:
        await producer.enter(record=admission is Admission.EXCLUSIVE)
