"""A producer of one connection: a writer of its partition that answers its client."""

from __future__ import annotations

from trilogue.broker.errors import NotReady
from trilogue.broker.producers.access_modes import NO_EPOCH, AccessMode, Writer
from trilogue.broker.quotas.topic_rates import PartitionRates
from trilogue.broker.topics.partition import Partition
from trilogue.gateway.pulsar.errors import EXPECTED
from trilogue.gateway.pulsar.services import ClientConnection
from trilogue.wire.pulsar.pulsar_pb2 import CommandProducer, ProducerAccessMode

ACCESS_MODES = {
    ProducerAccessMode.Shared: AccessMode.SHARED,
    ProducerAccessMode.Exclusive: AccessMode.EXCLUSIVE,
    ProducerAccessMode.WaitForExclusive: AccessMode.WAIT_FOR_EXCLUSIVE,
    ProducerAccessMode.ExclusiveWithFencing: AccessMode.EXCLUSIVE_WITH_FENCING,
}
NO_SEQUENCE = -1
NO_SCHEMA = b""


class Producer(Writer):
    """One producer of a connection; for the broker it is a writer of its partition."""

    def __init__(self, connection: ClientConnection, command: CommandProducer) -> None:
        super().__init__(
            command.producer_name,
            access=ACCESS_MODES[command.producer_access_mode],
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
        self.admitted = False  # it is among the partition's writers
        self.ready = False
        self.schema_version = NO_SCHEMA
        self.last_sequence_id = NO_SEQUENCE
        self.metadata_size = 0  # characters
        self.key = 0  # stands for its name in entries, once it has one
        self.commit_group = 0  # the connection's group of receipts that has its newest one
        self.messages = self.bytes = 0
        self.since_ms = connection.gateway.now_ms()
        self.metadata = {each.key: each.value for each in command.metadata}

    @property
    def is_current(self) -> bool:
        """Whether the connection is open and this producer has not been closed."""
        connection = self.connection
        return not connection.is_gone and connection.has_producer(self.producer_id, self)

    def succeed(self, *, ready: bool = True) -> None:
        """Send PRODUCER_SUCCESS; `ready` is False while the producer waits for the topic."""
        epoch = {} if self.epoch == NO_EPOCH else {"topic_epoch": self.epoch}
        self.connection.send_command(
            "producer_success",
            request_id=self.request_id,
            producer_name=self.name,
            last_sequence_id=self.last_sequence_id,
            schema_version=self.schema_version,
            producer_ready=ready,
            **epoch,
        )

    def count_sent(self, messages: int, size: int, rates: PartitionRates | None) -> None:
        """Count what it has sent: of its own, of the node, and for quotas and these rates."""
        connection = self.connection
        gateway = connection.gateway
        self.messages += messages
        self.bytes += size
        gateway.messages_in += messages
        gateway.bytes_in += size
        if gateway.quotas.active or rates is not None:
            user = connection.principal.name
            connection.byte_quotas.count_produced(user, "", messages, size, rates)

    # ---- what the broker calls (Writer)

    def on_fenced(self) -> None:
        """Close the producer: another has the topic, or the topic is gone.

        The client gets the reason when it creates the producer again.
        """
        self.admitted = False
        if self.is_current:
            connection = self.connection
            if self.ready:
                connection.guarded(lambda: connection.close_producer(self.producer_id))
            else:
                self.on_refused(NotReady("the topic was taken or released meanwhile"))

    def on_replaced(self) -> None:
        """Forget the producer: the client has created it again on another connection."""
        self.admitted = False
        if self.is_current:
            self.connection.forget_producer(self.producer_id)

    def on_promoted(self) -> None:
        """The producer has the topic now: record the epoch, then it is ready."""
        self.connection.spawn(self._take_over())

    def on_refused(self, problem: Exception) -> None:
        """Send the error for which the producer does not become a writer."""
        self.admitted = False
        if self.is_current:
            self.connection.forget_producer(self.producer_id)
            self.connection.send_error(self.request_id, problem)

    async def _take_over(self) -> None:
        try:
            await self.enter()
        except EXPECTED as problem:
            self.leave()
            self.on_refused(problem)

    async def enter(self, *, record: bool = True) -> None:
        """Become ready; `record` first records the epoch of a producer that takes the topic.

        Raises what recording raises.
        """
        connection = self.connection
        if record:
            writers = connection.gateway.broker.writers.get_or_create(self.partition.partition_id)
            await connection.gateway.write_metadata(writers.plan_epoch(self))
            if not self.admitted:
                return  # fenced, or closed, while its epoch was recorded
        if not self.is_current:
            self.leave()
            return
        self.ready = True
        self.succeed()

    # ---- the end

    def leave(self) -> None:
        """Release the name, and the topic if the producer had it exclusively."""
        if self.admitted:
            self.admitted = False
            writers = self.connection.gateway.broker.writers
            partition_id = self.partition.partition_id
            found = writers.get(partition_id)
            if found is not None:
                found.leave(self)
                writers.discard_idle(partition_id)

    def gone(self) -> None:
        """Leave, because the connection is closed."""
        self.ready = False
        self.leave()
