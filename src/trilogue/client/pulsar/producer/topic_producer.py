"""The producer of one topic without partitions, or of one partition, over reconnections.

What was sent and has no receipt yet is kept, in order, and sent again after every reconnection
under the same producer name and sequence ids: a broker that removes duplicates keeps one of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trilogue.client.errors import ClientError, Unsupported
from trilogue.client.pulsar.answers import check_answer
from trilogue.client.pulsar.attachment import ClientContext, TopicAttachment
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import (
    ClosedError,
    MessageTooLarge,
    PulsarError,
    QueueFull,
    TimedOut,
    error_for_code,
)
from trilogue.client.pulsar.message import MessageId, TxnId, signed
from trilogue.client.pulsar.options import ProducerOptions, Schema
from trilogue.client.pulsar.producer.payload_builder import MessageDraft, PayloadBuilder
from trilogue.client.pulsar.topic_names import partition_number
from trilogue.entry.checksum import crc32c
from trilogue.entry.pulsar.layout import PART_HEAD_SIZE
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import CHECKSUM_MAGIC, MAX_MESSAGE_SIZE
from trilogue.wire.pulsar.message_codec import encode_send_head
from trilogue.wire.pulsar.message_types import Receipt, SingleMessage
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    KeyValue,
)
from trilogue.wire.pulsar.pulsar_pb2 import Schema as SchemaMessage

log = logging.getLogger("trilogue.client.pulsar")
BATCHES_SINCE, CHECKSUMS_SINCE = 4, 6
"""Protocol versions: an older broker gets messages one by one, and no checksums."""
ONLY_THIS_ONE: Final = frozenset(
    {
        ServerError.MetadataError,
        ServerError.NotAllowedError,
        ServerError.AuthorizationError,
        ServerError.IncompatibleSchema,
        ServerError.UnsupportedVersionError,
        ServerError.InvalidTxnStatus,
        ServerError.TransactionConflict,
        ServerError.TransactionNotFound,
    }
)
"""Refusals of a message that sending it again would not change; those after it may be fine."""
CHECKSUM_TRIES: Final = 3


@dataclass(slots=True)
class PendingSend:
    """One SEND that has no receipt yet."""

    section: bytes
    sequence_id: int
    highest_sequence_id: int
    count: int
    futures: list[asyncio.Future[MessageId]]
    """Of its messages, in order; empty for a chunk that is not the last of its message."""
    expires: float
    txn_id: TxnId | None = None
    chunk_of: list[tuple[int, int]] | None = None
    """Places of the chunks so far, shared by all chunks of one message."""
    checksum_tries: int = 0


@dataclass(slots=True)
class OpenBatch:
    """Messages that wait to be sent as one batch."""

    drafts: list[MessageDraft] = field(default_factory=list)
    futures: list[asyncio.Future[MessageId]] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class TopicProducer(TopicAttachment):
    """A producer as the broker knows it."""

    def __init__(self, core: ClientContext, topic: str, options: ProducerOptions) -> None:
        super().__init__(core, topic)
        self.options = options
        self.name = options.name or ""
        self.last_sequence_id = -1
        self.waiting = 0
        """Messages that were taken and have neither a receipt nor an error."""
        self._partition = partition_number(topic)
        self._next = options.first_sequence_id or 0
        self._sections = PayloadBuilder(options)
        self._batch = OpenBatch()
        self._ops: deque[PendingSend] = deque()
        self._room: deque[asyncio.Future[None]] = deque()
        self._known = False
        self._epoch = -1
        self._topic_epoch: int | None = None
        self._max_message_size = MAX_MESSAGE_SIZE
        self._version = BATCHES_SINCE
        self._expiry: asyncio.TimerHandle | None = None

    # Taking messages.

    async def room(self) -> None:
        """Wait until one more message is taken."""
        while self.waiting >= self.options.max_pending and not self.closed and not self.failure:
            waiter = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            try:
                await waiter
            finally:
                if not waiter.cancelled() and waiter.done() and self._room:
                    self._make_room()

    def enqueue(
        self, single: SingleMessage, deliver_at_ms: int = 0, txn_id: TxnId | None = None
    ) -> tuple[asyncio.Future[MessageId], bool]:
        """Take a message; its future, and whether a batch was sent with it.

        QueueFull, MessageTooLarge, ClosedError, or what this producer failed with.
        """
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise ClosedError(f"producer of {self.topic} is closed")
        if self.waiting >= self.options.max_pending:
            raise QueueFull(f"{self.waiting} messages to {self.topic} wait for their receipts")
        size = len(single.value or b"")
        if size > self._max_message_size and not (
            self.options.chunking or self.options.compression
        ):
            raise MessageTooLarge(f"{size} bytes, the broker takes {self._max_message_size}")
        sequence_id = self._next if single.sequence_id < 0 else single.sequence_id
        self._next = sequence_id + 1
        draft = MessageDraft(single._replace(sequence_id=sequence_id), deliver_at_ms, txn_id)
        drafted = draft.size  # raises for properties that are no texts: before anything is counted
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        self.waiting += 1
        batching = self.options.batching
        if batching is None or deliver_at_ms or self._version < BATCHES_SINCE:
            self.send_batch()
            self._send_one(draft, future)
            return future, True
        batch = self._batch
        limit = min(batching.max_bytes, self._max_message_size // 2)
        sent = bool(batch.drafts) and (
            batch.size + drafted > limit or batch.drafts[0].txn_id != txn_id
        )
        if sent:
            self.send_batch()
            batch = self._batch
        batch.drafts.append(draft)
        batch.futures.append(future)
        batch.size += drafted
        if len(batch.drafts) >= batching.max_messages or batch.size >= limit:
            self.send_batch()
            return future, True
        if batch.timer is None:
            loop = asyncio.get_running_loop()
            batch.timer = loop.call_later(batching.max_delay_s, self.send_batch)
        return future, sent

    def send_batch(self) -> None:
        """Send what waits to be sent together."""
        batch, self._batch = self._batch, OpenBatch()
        if batch.timer is not None:
            batch.timer.cancel()
        if batch.drafts:
            self._send_many(batch.drafts, batch.futures)

    def _send_many(
        self, drafts: list[MessageDraft], futures: list[asyncio.Future[MessageId]]
    ) -> None:
        if len(drafts) == 1 or self._version < BATCHES_SINCE:
            for draft, future in zip(drafts, futures, strict=True):
                self._send_one(draft, future)
            return
        try:
            section = self._sections.batch(self.name, drafts, self._now_ms())
        except Exception:  # perhaps one message only: the others are sent without it
            log.exception("pulsar.batch_failed topic=%s", self.topic)
            for draft, future in zip(drafts, futures, strict=True):
                self._send_one(draft, future)
            return
        if len(section) > self._max_message_size:
            half = len(drafts) // 2
            self._send_many(drafts[:half], futures[:half])
            self._send_many(drafts[half:], futures[half:])
            return
        first, last = drafts[0].single.sequence_id, drafts[-1].single.sequence_id
        expires, txn_id = self._expires(), drafts[0].txn_id
        self._add(PendingSend(section, first, last, len(drafts), futures, expires, txn_id))

    def _send_one(self, draft: MessageDraft, future: asyncio.Future[MessageId]) -> None:
        limit = self._max_message_size
        try:
            if self.options.chunking:
                sections = self._sections.chunks(self.name, draft, self._now_ms(), limit)
            else:
                sections = [self._sections.single(self.name, draft, self._now_ms())]
        except Exception as problem:
            log.exception("pulsar.message_failed topic=%s", self.topic)
            error = ClientError(f"the message could not be encoded: {problem!r}")
            self._settle([future], error)
            return
        if len(sections[-1]) > limit:
            self._settle([future], MessageTooLarge(f"{len(sections[-1])} bytes of {limit}"))
            return
        places: list[tuple[int, int]] | None = [] if len(sections) > 1 else None
        sequence_id, expires, txn_id = draft.single.sequence_id, self._expires(), draft.txn_id
        for section in sections[:-1]:
            self._add(PendingSend(section, sequence_id, 0, 1, [], expires, txn_id, places))
        self._add(PendingSend(sections[-1], sequence_id, 0, 1, [future], expires, txn_id, places))

    def _now_ms(self) -> int:
        return int(self.core.clock() * 1000)

    def _expires(self) -> float:
        return asyncio.get_running_loop().time() + self.options.delivery_timeout_s

    def _add(self, op: PendingSend) -> None:
        self._ops.append(op)
        if self.connection is not None and self.connection.is_open:
            self.connection.send_buffers(self._buffers(op, self.connection))
        if self._expiry is None and self.options.delivery_timeout_s:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_at(op.expires, self._expire)

    def _buffers(self, op: PendingSend, connection: PulsarConnection) -> list[bytes]:
        """The frame of a SEND, as this broker can read it."""
        section = op.section
        if connection.protocol_version < CHECKSUMS_SINCE:
            section = section[6:]
        highest = op.highest_sequence_id if op.count > 1 else 0
        is_chunk = op.chunk_of is not None
        head = encode_send_head(
            self.id,
            op.sequence_id,
            op.count,
            highest,
            is_chunk,
            len(section),
            tuple(op.txn_id or ()),
        )
        return [head, section]

    async def flush(self) -> None:
        """Send now, and wait until everything taken so far has its receipt or its error."""
        self.send_batch()
        futures = [future for op in self._ops for future in op.futures]
        if futures:
            await asyncio.wait(futures)

    # What becomes of them.

    def on_receipt(self, receipt: Receipt) -> None:
        """A message is stored. Receipts of one transaction, or of none, are in order."""
        if not self._ops or receipt.sequence_id < self._ops[0].sequence_id:
            return  # of one that we gave up
        op = self._find_sent(receipt.sequence_id)
        if op is None:
            self.recreate()  # one is missing: send again from there
            return
        self._ops.remove(op)
        place = signed(receipt.ledger_id), signed(receipt.entry_id)
        self.last_sequence_id = max(self.last_sequence_id, op.sequence_id, op.highest_sequence_id)
        if op.chunk_of is not None:
            op.chunk_of.append(place)
        self._settle(op.futures, None, place, op)

    @property
    def schema_version(self) -> bytes:
        """The version of the producer's schema in its topic; b"" without one."""
        return self._sections.schema_version

    def _find_sent(self, sequence_id: int) -> PendingSend | None:
        """The send of a receipt; None where one before it, of its transaction, has none yet."""
        if self._ops[0].sequence_id == sequence_id:
            return self._ops[0]
        before: set[TxnId | None] = set()
        for op in self._ops:
            if op.sequence_id == sequence_id:
                return None if op.txn_id in before else op
            before.add(op.txn_id)
        return None

    def on_send_error(self, sequence_id: int, code: int, message: str) -> None:
        """A message is not stored, and what to do about that."""
        problem = error_for_code(code, f"send to {self.topic}", message)
        found = [op for op in self._ops if op.sequence_id == sequence_id]
        if problem.error is ServerError.TopicTerminatedError:
            self.fail(problem)
        elif problem.error is ServerError.ChecksumError and found:
            self._on_checksum(found[0], problem)
        elif problem.error in ONLY_THIS_ONE:
            for op in found:
                self._ops.remove(op)
                self._settle(op.futures, problem)
        else:
            self.recreate()

    def _on_checksum(self, op: PendingSend, problem: PulsarError) -> None:
        """Damaged on its way: send again; damaged in our memory: never."""
        op.checksum_tries += 1
        section = memoryview(op.section)
        head, checked = section[:PART_HEAD_SIZE], section[PART_HEAD_SIZE:]
        expected = int.from_bytes(head[len(CHECKSUM_MAGIC) :], "big")
        if crc32c(checked) != expected or op.checksum_tries > CHECKSUM_TRIES:
            self._ops.remove(op)
            self._settle(op.futures, problem)
        else:
            self.recreate()

    def _expire(self) -> None:
        self._expiry = None
        loop = asyncio.get_running_loop()
        while self._ops and self._ops[0].expires <= loop.time():
            op = self._ops.popleft()
            self._settle(op.futures, self._expiry_error())
        if self._ops:
            self._expiry = loop.call_at(self._ops[0].expires, self._expire)

    def _expiry_error(self) -> TimedOut:
        """The error of a message whose delivery time-out is over."""
        limit_s = self.options.delivery_timeout_s
        return self.outage(limit_s) or TimedOut(
            f"no receipt from {self.topic} within the delivery time-out of {limit_s:g} s"
        )

    def _settle(
        self,
        futures: list[asyncio.Future[MessageId]],
        problem: ClientError | None,
        place: tuple[int, int] = (-1, -1),
        op: PendingSend | None = None,
    ) -> None:
        self.waiting -= len(futures)
        for index, future in enumerate(futures):
            if future.done():  # its owner gave up
                continue
            if problem is not None:
                future.set_exception(problem)
                continue
            batched = op is not None and op.count > 1
            first = op.chunk_of[0] if op is not None and op.chunk_of else None
            future.set_result(
                MessageId(
                    *place, index if batched else -1, self._partition,
                    op.count if op is not None and batched else 0, self.topic, first,
                )
            )  # fmt: skip
        self._make_room()

    def _make_room(self) -> None:
        free = self.options.max_pending - self.waiting
        gone = self.closed or self.failure is not None
        while self._room and (free > 0 or gone):
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    # The hold on the broker.

    def _register_events(self, connection: PulsarConnection) -> None:
        connection.producers[self.id] = self

    def _unregister_events(self, connection: PulsarConnection) -> None:
        if connection.producers.get(self.id) is self:
            del connection.producers[self.id]

    def _create_command(self, _connection: PulsarConnection, request_id: int) -> BaseCommand:
        options = self.options
        self._epoch += 1
        command = CommandProducer(
            topic=self.topic,
            producer_id=self.id,
            request_id=request_id,
            epoch=self._epoch,
            user_provided_producer_name=options.name is not None,
            producer_access_mode=int(options.access),  # type: ignore[arg-type]
            metadata=key_values(options.properties),
        )
        if self.name:  # ours, or the one that the broker made up the first time
            command.producer_name = self.name
        if options.schema is not None:
            command.schema.CopyFrom(schema_message(options.schema))
        if self._topic_epoch is not None:
            command.topic_epoch = self._topic_epoch
        if options.initial_subscription is not None:
            command.initial_subscription_name = options.initial_subscription
        return BaseCommand(type=BaseCommand.PRODUCER, producer=command)

    def _close_command(self, request_id: int) -> BaseCommand:
        command = CommandCloseProducer(producer_id=self.id, request_id=request_id)
        return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=command)

    async def _on_created(self, connection: PulsarConnection, answer: Any, request_id: int) -> None:
        while not answer.producer_ready:  # another has the topic, we are in the queue
            answer = check_answer(await connection.second_response(request_id), self.topic)
        if not self._known and self.options.first_sequence_id is None:
            self._next = answer.last_sequence_id + 1
        self._known = True
        self.name = answer.producer_name
        self.last_sequence_id = max(self.last_sequence_id, answer.last_sequence_id)
        self._sections.schema_version = answer.schema_version
        if answer.HasField("topic_epoch"):
            self._topic_epoch = answer.topic_epoch

    def _on_attached(self, connection: PulsarConnection) -> None:
        self._max_message_size = connection.max_message_size
        self._version = connection.protocol_version
        for op in list(self._ops):
            if op.count > 1 and self._version < BATCHES_SINCE:
                self._ops.remove(op)
                self._settle(op.futures, Unsupported(f"{connection.address} takes no batches"))
            else:
                connection.send_buffers(self._buffers(op, connection))

    def _on_failed(self, problem: ClientError) -> None:
        if self.connection is not None:
            self._unregister_events(self.connection)
            self.connection = None
        self._fail_pending(problem)

    def _fail_pending(self, problem: ClientError) -> None:
        self.send_batch()
        while self._ops:
            self._settle(self._ops.popleft().futures, problem)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._make_room()

    async def close(self) -> None:
        """Wait for the receipts, close at the broker; what is left then gets ClosedError.

        Waits no longer than an operation may take: the broker may be gone for good.
        """
        if self.closed:
            return
        try:
            if self.failure is None:
                async with asyncio.timeout(self.core.options.request_timeout_s):
                    await self.flush()
        except TimeoutError:
            log.warning("pulsar.unsent topic=%s messages=%d", self.topic, self.waiting)
        finally:
            await self.detach()
            self._fail_pending(ClosedError(f"producer of {self.topic} was closed"))


def schema_message(schema: Schema) -> SchemaMessage:
    """A schema as commands carry it."""
    return SchemaMessage(
        name=schema.name,
        type=int(schema.type),  # type: ignore[arg-type]
        schema_data=schema.data,
        properties=key_values(schema.properties),
    )


def key_values(properties: Mapping[str, str]) -> list[Any]:
    """Names and values as commands carry them."""
    return [KeyValue(key=key, value=value) for key, value in properties.items()]
