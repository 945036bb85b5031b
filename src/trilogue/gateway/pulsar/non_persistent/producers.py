"""Producers of non-persistent topics, and what they send.

A message is acknowledged as soon as it was checked and handed to consumers or dropped. The receipt
has the id with which consumers get it.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import BrokerError, NotAllowed, NotReady
from trilogue.broker.non_persistent.topics import LEDGER_ID
from trilogue.broker.producers.access_modes import Admission
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar.pulsar_batch import build_entry, producer_key, read_metadata
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.errors import EXPECTED, PulsarProtocolError, encode_send_error
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.pulsar.non_persistent.dispatcher import dispatch_entry
from trilogue.gateway.pulsar.non_persistent.producer import NonPersistentProducer
from trilogue.gateway.pulsar.non_persistent.schemas import check_producer_schema
from trilogue.gateway.pulsar.non_persistent.topics import find_or_create
from trilogue.gateway.pulsar.producer import Producer
from trilogue.gateway.stream import Buffer
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.message_codec import Send, encode_send_receipt
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


def handle_send(
    connection: PulsarConnection, producer: NonPersistentProducer, sent: Send, section: memoryview
) -> None:
    """Hand one message, batch or chunk to consumers, and acknowledge it."""
    gateway, topic = connection.gateway, producer.topic
    try:
        entry, header, stamp = build_entry(section, broker_ms=gateway.now_ms())
        if topic.policies.encryption_required and not read_metadata(entry).has_encryption:
            raise PulsarProtocolError(ServerError.MetadataError, "Messages must be encrypted")
        if sent.txn_least or sent.txn_most:
            raise NotAllowed("non-persistent topics take no part in transactions")
    except (BrokerError, EntryError, PulsarProtocolError) as problem:
        connection.write(encode_send_error(producer.producer_id, sent.sequence_id, problem))
        return
    count, size = header.last_offset_delta + 1, len(section)
    topic.received.count(count, size, gateway.loop.time())
    producer.messages += count
    producer.bytes += size
    gateway.messages_in += count
    gateway.bytes_in += size
    entry_id = dispatch_entry(gateway, topic, entry, header, stamp)
    rates = topic.rates
    if gateway.quotas.active or rates is not None:
        user = connection.principal.name
        connection.byte_quotas.count_produced(user, "", count, size, rates)
    receipt: Buffer = encode_send_receipt(
        producer.producer_id, sent.sequence_id, sent.highest_sequence_id, LEDGER_ID, entry_id
    )
    connection.write(receipt)
