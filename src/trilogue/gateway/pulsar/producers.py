"""PRODUCER and CLOSE_PRODUCER: which producer may write to a topic, under which name.

Access modes and the rules about names are in `broker/producers/access_modes.py`. A producer counts
as when what it needs is durable: the topic, its schema, its initial subscription, its epoch.

A PRODUCER for an id that exists is answered ServiceNotReady while that producer is being created,
and with the same success after that. CLOSE_PRODUCER takes no more messages at once, and is answered
when all that was sent is durable; a PRODUCER with the same id that follows it waits for that, so
both are served in order: a client need not wait for the answer before it sends the next PRODUCER.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import NotAllowed, NotReady, TopicTerminated
from trilogue.broker.producers.access_modes import Admission
from trilogue.broker.subscriptions.backlog import check_backlog
from trilogue.entry.pulsar.pulsar_batch import producer_key
from trilogue.gateway.pulsar import schemas
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.errors import EXPECTED, PulsarProtocolError
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.pulsar.non_persistent.producers import create_producer
from trilogue.gateway.pulsar.non_persistent.topics import is_non_persistent
from trilogue.gateway.pulsar.producer import Producer
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandCloseProducer, CommandProducer

NAME_BYTES_MAX = 1_024
METADATA_MAX = 16 << 10  # characters of one producer's metadata


def handle_producer(
    connection: PulsarConnection, command: CommandProducer, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Create a producer, or answer again for one that exists."""
    producer_id = command.producer_id
    closing = connection.closing.get(producer_id)
    if closing is not None:
        return _create_after(connection, command, closing)
    existing = connection.producers.get(
        producer_id, connection.non_persistent_producers.get(producer_id)
    )
    if existing is not None:
        if not existing.ready:
            raise NotReady("the producer is being created")
        existing.request_id = command.request_id
        existing.succeed()
        return None
    present = len(connection.producers) + len(connection.non_persistent_producers)
    if present >= connection.gateway.settings.producers_max:
        raise PulsarProtocolError(
            ServerError.NotAllowedError, "the connection has as many producers as it may"
        )
    connection.check_member_count()
    metadata_size = sum(len(each.key) + len(each.value) for each in command.metadata)
    connection.check_metadata_size(metadata_size)
    if metadata_size > METADATA_MAX:
        raise PulsarProtocolError(
            ServerError.NotAllowedError, f"metadata of more than {METADATA_MAX} characters"
        )
    if len(command.producer_name.encode()) > NAME_BYTES_MAX:
        raise PulsarProtocolError(
            ServerError.NotAllowedError, f"a name of more than {NAME_BYTES_MAX} bytes"
        )
    if is_non_persistent(command.topic):
        return create_producer(connection, command, metadata_size)
    producer = connection.producers[producer_id] = Producer(connection, command)
    producer.metadata_size = metadata_size
    return _create(connection, producer, command)


async def _create_after(
    connection: PulsarConnection, command: CommandProducer, closing: asyncio.Future[None]
) -> None:
    await closing
    if not connection.is_gone:
        work = handle_producer(connection, command, memoryview(b""))
        if work is not None:
            await work


async def _create(
    connection: PulsarConnection, producer: Producer, command: CommandProducer
) -> None:
    try:
        # A client restarts the time-out of its sends with each producer it gets.
        connection.gateway.journal.check_disk()
        await _prepare(connection, producer, command)
        if not producer.is_current:  # closed meanwhile: no client waits for an answer
            return
        if producer.partition.deleted:
            raise NotReady("the topic was deleted just now")
        writers = connection.gateway.broker.writers.get_or_create(producer.partition.partition_id)
        if not producer.name:
            producer.name = connection.gateway.generate_producer_name(producer.partition)
        producer.key = producer_key(producer.name)
        holder = writers.get(producer.name)
        if isinstance(holder, Producer) and not producer.replaces(holder):
            holder.connection.check_alive()
        admission = writers.admit(producer, most=producer.partition.policies.max_producers)
        producer.admitted = True
        if admission is Admission.WAITING:
            producer.succeed(ready=False)
        else:
            await producer.enter(record=admission is Admission.EXCLUSIVE)
    except EXPECTED:
        producer.leave()
        if producer.is_current:
            del connection.producers[producer.producer_id]
            raise


async def _prepare(
    connection: PulsarConnection, producer: Producer, command: CommandProducer
) -> None:
    """Find or create the topic, and check what its policies require of a producer."""
    gateway = connection.gateway
    name = parse_authorized(connection, command.topic, Operation.WRITE)
    topic, partition = await gateway.find_or_create_topic(name)
    producer.partition = partition
    if partition.terminated:
        raise TopicTerminated("the topic was terminated")
    if partition.policies.encryption_required and not command.encrypted:
        raise PulsarProtocolError(
            ServerError.MetadataError, "the topic requires encrypted messages"
        )
    check_backlog(partition, gateway.broker.subscriptions, gateway.now_ms())
    producer.schema_version = await schemas.check_producer_schema(
        gateway, topic, partition, command, connection.access
    )
    if command.initial_subscription_name:
        await _create_subscription(connection, producer, command.initial_subscription_name)
    if producer.name and partition.policies.deduplication:
        # Messages that the producer sent before it lost its connection count.
        await _wait_durable(connection)
        producer.last_sequence_id = partition.last_sequence_id(producer.name)


async def _create_subscription(connection: PulsarConnection, producer: Producer, name: str) -> None:
    """Create the initial subscription, from the first message on, where it does not exist."""
    partition, gateway = producer.partition, connection.gateway
    subscriptions = gateway.broker.subscriptions
    if subscriptions.find_cursor(partition.partition_id, name) is not None:
        return
    if not partition.policies.auto_subscription:
        raise NotAllowed("subscriptions of this topic are not created automatically")
    start = partition.log.start_offset
    await gateway.wait_for(subscriptions.create(partition.partition_id, name, start))


async def _wait_durable(connection: PulsarConnection) -> None:
    """Return when everything appended so far is durable; raise the error of a failed commit."""
    future: asyncio.Future[BaseException | None] = connection.gateway.loop.create_future()

    def resolve(problem: BaseException | None) -> None:
        if not future.done():
            future.set_result(problem)

    connection.gateway.journal.on_commit(resolve)
    problem = await future
    if problem is not None:
        raise problem


def handle_close_producer(
    connection: PulsarConnection, command: CommandCloseProducer, _frame: memoryview
) -> None:
    """Take no more messages of a producer; answer when those it sent are durable."""
    producer_id, request_id = command.producer_id, command.request_id
    producer = connection.producers.get(producer_id)
    transient = connection.non_persistent_producers.get(producer_id)
    if transient is not None:  # nothing of it waits
        connection.forget_producer(producer_id)
        transient.gone()
        connection.send_command("success", request_id=request_id)
        return
    if producer is None:
        if producer_id not in connection.closed_producers:
            raise PulsarProtocolError(
                ServerError.UnknownError, "the connection has no such producer"
            )
        # The broker has closed it meanwhile.
        connection.send_command("success", request_id=request_id)
        return
    connection.forget_producer(producer_id)
    if not producer.ready:
        producer.leave()
        connection.send_command("success", request_id=request_id)
        return
    producer.ready = False
    closed: asyncio.Future[None] = connection.gateway.loop.create_future()
    connection.closing[producer_id] = closed

    def answer(problem: BaseException | None) -> None:
        del connection.closing[producer_id]
        producer.leave()
        if problem is None:
            connection.send_command("success", request_id=request_id)
        else:
            connection.send_error(request_id, ServerError.PersistenceError, str(problem))
        closed.set_result(None)

    connection.on_commit(answer)
