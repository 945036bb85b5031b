"""PRODUCER and CLOSE_PRODUCER: who may write to a topic, under which name.

Access modes and the rules about names are `broker/writers.py`. A producer counts as ready when what
it needs is durable: the topic, its schema, its initial subscription, its epoch.

The same producer id again: while the first is being made ServiceNotReady, after that the same
success again. CLOSE_PRODUCER stops accepting at once and is answered when all that was sent is
durable; PRODUCER with the same id right behind it waits for that, so both are served in order
(seed 000, "CloseProducer": a client need not wait before it sends the next PRODUCER).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from trilogue.broker.access import Operation
from trilogue.broker.backlog import check_backlog
from trilogue.broker.errors import NotAllowed, NotReady, TopicTerminated
from trilogue.broker.partition import Partition
from trilogue.broker.writers import NO_EPOCH, Access, Admission, Writer
from trilogue.entry.pulsar_batch import producer_key
from trilogue.gateway.pulsar import schemas
from trilogue.gateway.pulsar.errors import EXPECTED, Refusal
from trilogue.gateway.pulsar.lookup import named
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandCloseProducer, CommandProducer

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

NO_SEQUENCE = -1
NO_SCHEMA = b""
NAME_BYTES_MAX = 1_024
METADATA_MAX = 16 << 10  # characters that a producer may say about itself


class Producer(Writer):
    """One producer of a connection, to the broker a writer of its partition."""

    def __init__(self, connection: PulsarConnection, command: CommandProducer) -> None:
        super().__init__(
            command.producer_name,
            access=Access(command.producer_access_mode),
            incarnation=command.epoch,
            generated=not command.producer_name or not command.user_provided_producer_name,
            epoch=command.topic_epoch if command.HasField("topic_epoch") else NO_EPOCH,
            session=connection,
            number=command.producer_id,
        )
        self.connection = connection
        self.producer_id = command.producer_id
        self.request_id = command.request_id
        self.spelled = command.topic
        self.partition: Partition
        self.admitted = False  # whether the broker knows it
        self.ready = False
        self.encrypts = command.encrypted
        self.schema_version = NO_SCHEMA
        self.last_sequence_id = NO_SEQUENCE
        self.said = 0  # characters of metadata
        self.key = 0  # what its name stands as in entries, once it has one
        self.turn = 0  # the newest turn of the connection in which it sent something
        self.messages = self.bytes = 0
        self.since_ms = connection.door.now_ms()
        self.metadata = {each.key: each.value for each in command.metadata}

    @property
    def is_current(self) -> bool:
        """Whether the client still wants it."""
        connection = self.connection
        return not connection.is_gone and connection.producers.get(self.producer_id) is self

    def succeed(self, *, ready: bool = True) -> None:
        """Tell the client; also that it waits, or that it is there already."""
        more = {} if self.epoch == NO_EPOCH else {"topic_epoch": self.epoch}
        self.connection.say(
            "producer_success",
            request_id=self.request_id,
            producer_name=self.name,
            last_sequence_id=self.last_sequence_id,
            schema_version=self.schema_version,
            producer_ready=ready,
            **more,
        )

    # ---- what the broker says

    def fenced(self) -> None:
        """Another has the topic, or the topic is gone: the client learns it when it comes again."""
        self.admitted = False
        if self.is_current:
            connection = self.connection
            if self.ready:
                connection.guarded(lambda: connection.close_producer(self.producer_id))
            else:
                self.refused(NotReady("the topic was taken or let go of meanwhile"))

    def replaced(self) -> None:
        """The client came again elsewhere: nobody listens here any more."""
        self.admitted = False
        if self.is_current:
            self.connection.forget_producer(self.producer_id)

    def promoted(self) -> None:
        """The wait is over: record the epoch, then it is ready."""
        self.connection.spawn(self._take_over())

    def refused(self, problem: Exception) -> None:
        """It will not be let in."""
        self.admitted = False
        if self.is_current:
            self.connection.forget_producer(self.producer_id)
            self.connection.error(self.request_id, problem)

    async def _take_over(self) -> None:
        try:
            await enter(self)
        except EXPECTED as problem:
            self.leave()
            self.refused(problem)

    # ---- the end

    def leave(self) -> None:
        """Give the name back, and the topic if it had it to itself."""
        if self.admitted:
            self.admitted = False
            writers = self.connection.door.broker.writers
            partition_id = self.partition.partition_id
            found = writers.find(partition_id)
            if found is not None:
                found.leave(self)
                writers.tidy(partition_id)

    def gone(self) -> None:
        """The connection is closed."""
        self.ready = False
        self.leave()


def create(
    connection: PulsarConnection, command: CommandProducer, _frame: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Make a producer, or say again that it is there."""
    producer_id = command.producer_id
    closing = connection.closing.get(producer_id)
    if closing is not None:
        return _create_after(connection, command, closing)
    there = connection.producers.get(producer_id)
    if there is not None:
        if not there.ready:
            raise NotReady("the producer is being made")
        there.request_id = command.request_id
        there.succeed()
        return None
    if len(connection.producers) >= connection.door.settings.producers_max:
        raise Refusal(ServerError.NotAllowedError, "the connection has as many producers as it may")
    said = sum(len(each.key) + len(each.value) for each in command.metadata)
    connection.check_said(said)
    if said > METADATA_MAX:
        raise Refusal(
            ServerError.NotAllowedError, f"metadata of more than {METADATA_MAX} characters"
        )
    if len(command.producer_name.encode()) > NAME_BYTES_MAX:
        raise Refusal(ServerError.NotAllowedError, f"a name of more than {NAME_BYTES_MAX} bytes")
    producer = connection.producers[producer_id] = Producer(connection, command)
    producer.said = said
    return _create(producer, command)


async def _create_after(
    connection: PulsarConnection, command: CommandProducer, closing: asyncio.Future[None]
) -> None:
    await closing
    if not connection.is_gone:
        work = create(connection, command, memoryview(b""))
        if work is not None:
            await work


async def _create(producer: Producer, command: CommandProducer) -> None:
    connection = producer.connection
    try:
        await _prepare(producer, command)
        if not producer.is_current:  # closed meanwhile: nobody waits for an answer
            return
        if producer.partition.deleted:
            raise NotReady("the topic was deleted this moment")
        writers = connection.door.broker.writers.of(producer.partition.partition_id)
        if not producer.name:
            producer.name = connection.door.new_producer_name(producer.partition)
        producer.key = producer_key(producer.name)
        holder = writers.find(producer.name)
        if isinstance(holder, Producer) and not producer.replaces(holder):
            holder.connection.check_alive()
        admission = writers.admit(producer, most=producer.partition.policies.max_producers)
        producer.admitted = True
        if admission is Admission.WAITS:
            producer.succeed(ready=False)
        else:
            await enter(producer, record=admission is Admission.TAKES)
    except EXPECTED:
        producer.leave()
        if producer.is_current:
            del connection.producers[producer.producer_id]
            raise


async def _prepare(producer: Producer, command: CommandProducer) -> None:
    """Find the topic, or make it, and check what its policies demand of a producer."""
    connection = producer.connection
    door = connection.door
    name = named(connection, command.topic, Operation.WRITE)
    topic, partition = await door.made(name)
    producer.partition = partition
    if partition.terminated:
        raise TopicTerminated("the topic was terminated")
    if partition.policies.encryption_required and not command.encrypted:
        raise Refusal(ServerError.MetadataError, "messages must be encrypted here")
    check_backlog(partition, door.broker.subscriptions, door.now_ms())
    producer.schema_version = await schemas.for_producer(door, topic, partition, command)
    if command.initial_subscription_name:
        await _subscribe(producer, command.initial_subscription_name)
    if producer.name and partition.policies.deduplication:
        await durable(connection)  # what it sent before it lost its connection counts
        producer.last_sequence_id = partition.last_sequence_id(producer.name)


async def _subscribe(producer: Producer, name: str) -> None:
    """Make a subscription that holds messages from the first one on, if it is not there."""
    partition, door = producer.partition, producer.connection.door
    subscriptions = door.broker.subscriptions
    if subscriptions.find(partition.partition_id, name) is not None:
        return
    if not partition.policies.auto_subscription:
        raise NotAllowed("no subscription is made here by mentioning it")
    log = partition.log
    await door.kept(subscriptions.create(partition.partition_id, name, log.start_offset))


async def durable(connection: PulsarConnection) -> None:
    """Return when all that was done so far is durable, or raise why it never will be."""
    future: asyncio.Future[BaseException | None] = connection.door.loop.create_future()

    def settle(problem: BaseException | None) -> None:
        if not future.done():
            future.set_result(problem)

    connection.door.journal.on_commit(settle)
    problem = await future
    if problem is not None:
        raise problem


async def enter(producer: Producer, *, record: bool = True) -> None:
    """Record the epoch of a producer that takes the topic for itself, and let it begin."""
    connection = producer.connection
    if record:
        writers = connection.door.broker.writers.of(producer.partition.partition_id)
        await connection.door.commit(writers.plan_epoch(producer))
        if not producer.admitted:
            return  # fenced, or closed, while its epoch was recorded
    if not producer.is_current:
        producer.leave()
        return
    producer.ready = True
    producer.succeed()


def close(connection: PulsarConnection, command: CommandCloseProducer, _frame: memoryview) -> None:
    """Take no more of a producer's messages; answer when those it sent are durable."""
    producer_id, request_id = command.producer_id, command.request_id
    producer = connection.producers.get(producer_id)
    if producer is None:
        if producer_id not in connection.closed_producers:
            raise Refusal(ServerError.UnknownError, "the connection has no such producer")
        connection.say("success", request_id=request_id)  # we closed it ourselves meanwhile
        return
    connection.forget_producer(producer_id)
    if not producer.ready:
        producer.leave()
        connection.say("success", request_id=request_id)
        return
    producer.ready = False
    closed: asyncio.Future[None] = connection.door.loop.create_future()
    connection.closing[producer_id] = closed

    def durable(problem: BaseException | None) -> None:
        del connection.closing[producer_id]
        producer.leave()
        if problem is None:
            connection.say("success", request_id=request_id)
        else:
            connection.error(request_id, ServerError.PersistenceError, str(problem))
        closed.set_result(None)

    connection.on_commit(durable)
