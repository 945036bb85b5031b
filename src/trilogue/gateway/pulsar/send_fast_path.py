# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The way of the SENDs of one connection that need no frame of Python.

It takes all that is sent to non-persistent topics (non_persistent/send_turn.py), and what needs
nothing but an append of that to others. Every other frame goes to `process_frame`, after what was
sent before it. A message that is refused goes there, too: the handler finds the same problem.

Compiled (send_fast_path.pxd adds the types), since it runs once per SEND; uncompiled it is plain
Python. See docs/decisions/0156.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import cython

from trilogue.broker.errors import BrokerError
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar.layout import PULSAR_SECTION_AT
from trilogue.gateway.pulsar.services import ClientConnection

if not cython.compiled:  # send_fast_path.pxd imports the compiled versions
    from trilogue.entry.pulsar.pulsar_entry import SentSection, build_checked
    from trilogue.gateway.pulsar.non_persistent.send_turn import SendTurn
    from trilogue.wire.pulsar.message_codec import SendHead, encode_send_receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.broker.topics.plain_batch_appender import PlainBatchAppender
    from trilogue.gateway.pulsar.non_persistent.producer import NonPersistentProducer
    from trilogue.gateway.pulsar.producer import Producer
    from trilogue.gateway.stream import Buffer
    from trilogue.gateway.transport_writer import ReceiptGroups, TransportWriter
    from trilogue.log.pressure import LogPressure

_SECTION_AT = PULSAR_SECTION_AT


class SendConnection(ClientConnection, Protocol):
    """The connection, for its fast path."""

    producers: dict[int, Producer]
    non_persistent_producers: dict[int, NonPersistentProducer]
    groups: ReceiptGroups
    has_received: bool

    def end_step(self) -> None:
        """End a step in which not all frames were taken here, or something waits."""


class AppendTurn:
    """The messages of a producer that were appended in this step, and are counted at its end."""

    __slots__ = (
        "_acks_from_memory",
        "_answers",
        "_connection",
        "_groups",
        "_ledger_id",
        "_message_count",
        "_now_ms",
        "_plain",
        "_pressure",
        "_producer",
        "_section",
        "_size",
        "is_limited",
        "is_open",
        "producer_id",
    )

    def __init__(self, connection: SendConnection) -> None:
        self.is_open = False
        self.is_limited = False  # whether each message is counted before the next one
        self.producer_id = 0
        self._connection: SendConnection | None = connection
        self._groups: ReceiptGroups = connection.groups
        self._pressure: LogPressure = connection.gateway.log.pressure
        self._producer: Producer | None = None
        self._plain: PlainBatchAppender | None = None
        self._section = SentSection()
        self._acks_from_memory = False
        self._answers: list[Buffer] = []  # to what memory acknowledges
        self._ledger_id = self._now_ms = self._message_count = self._size = 0

    def begin(self, producer: Producer) -> bool:
        """Take messages of this producer, after `end` for another one; False where none can be."""
        connection = self._connection
        if connection is None or not producer.ready:
            return False
        if not self._groups.receipts and self._pressure.is_high():  # checked once per iteration
            return False
        gateway, partition = connection.gateway, producer.partition
        plain = self._plain = partition.plain
        self._acks_from_memory = partition.acks_from_memory
        if not self._acks_from_memory:
            if plain.entry_size_max < 0:
                return False  # the topic has extras
        elif plain.memory_size_max < 0 or producer.commit_group > self._groups.done:
            return False  # or this message would overtake others that wait for their commit
        self._producer = producer
        self.producer_id = producer.producer_id
        self._ledger_id = partition.log.partition_id
        self._now_ms = gateway.now_ms()
        self.is_limited = gateway.quotas.active or partition.rates is not None
        self.is_open = True
        return True

    def append_message(self, head: SendHead, frame: memoryview) -> bool:
        """Append one message, batch or chunk; False where that is for the handler."""
        plain, section = self._plain, self._section
        assert plain is not None, "a turn begins with its producer"
        if head.is_in_transaction:
            return False
        view = frame[head.section_at :]
        try:
            section.read(view)
            entry, header, _ = build_checked(view, section, self._now_ms)
            size = len(entry) - _SECTION_AT
            if self._acks_from_memory:
                offset = plain.append_to_memory(entry, header, size)
            else:
                offset = plain.append_entry(entry, header, size)
        except (EntryError, BrokerError):
            return False  # the handler finds the same and answers with it
        if offset < 0:
            return False
        receipt = encode_send_receipt(
            head.producer_id, head.sequence_id, head.highest_sequence_id, self._ledger_id, offset
        )
        if self._acks_from_memory:
            self._answers.append(receipt)
        else:
            self._groups.receipts.append(receipt)
        self._message_count += section.message_count
        self._size += len(view)
        return True

    def end(self, writer: TransportWriter | None) -> None:
        """Count the messages; answer by the writer, if there is one, what memory acknowledges."""
        connection, producer, answers = self._connection, self._producer, self._answers
        count, size = self._message_count, self._size
        self.is_open = False
        if not count or connection is None or producer is None:
            return
        self._message_count = self._size = 0
        connection.has_received = True
        if answers:
            joined = answers[0] if len(answers) == 1 else b"".join(answers)
            answers.clear()
            if writer is None or writer.is_paused or connection.gathered:
                connection.write(joined)
            else:
                writer.send_one(joined)
        else:
            producer.commit_group = self._groups.number
        producer.count_sent(count, size, producer.partition.rates)

    def close(self) -> None:
        """Refer to nothing of the connection: it is closed."""
        self.is_open = False
        self._connection = self._producer = self._plain = None
        self._answers.clear()


class SendFastPath:
    """Takes the frames of one connection: to topics, and to its handlers."""

    __slots__ = (
        "_connection",
        "_groups",
        "_head",
        "_is_handled",
        "_is_traced",
        "_others",
        "_process_frame",
        "_producers",
        "_stored",
        "_turn",
        "_writer",
    )

    def __init__(
        self, connection: SendConnection, process_frame: Callable[[memoryview], bool]
    ) -> None:
        self._connection: SendConnection | None = connection
        self._groups: ReceiptGroups = connection.groups
        self._head = SendHead()
        self._is_handled = False  # whether the connection ends this iteration
        self._is_traced = connection.gateway.tracer is not None  # then handlers append
        self._producers: dict[int, Producer] = connection.producers
        self._others: dict[int, NonPersistentProducer] = connection.non_persistent_producers
        self._process_frame = process_frame
        self._stored = AppendTurn(connection)
        self._turn = SendTurn(connection)
        self._writer: TransportWriter | None = None  # until there is a stream

    def open(self, writer: TransportWriter) -> None:
        """Keep what to write to."""
        self._writer = writer

    def close(self) -> None:
        """Refer to nothing of the connection: it is closed."""
        self._stored.close()
        self._turn.close()
        self._writer = None
        self._connection = None
        self._process_frame = _refuse_frame

    def take_frame(self, frame: memoryview) -> bool:
        """Process one frame; False while the log has no room for its message."""
        head, stored, turn = self._head, self._stored, self._turn
        if head.read(frame):
            producer_id = head.producer_id
            if self._begin_stored(producer_id):
                if stored.append_message(head, frame):
                    if stored.is_limited:
                        self._end_turns()
                    return True
            elif self._begin(producer_id):
                turn.add_message(head, frame)
                if turn.is_limited:
                    self._end_turns()
                return True
        self._end_turns()
        return self._process_frame(frame)

    def end_iteration(self) -> None:
        """End a step: one of messages alone here, others by the connection."""
        connection, groups = self._connection, self._groups
        if connection is None:  # it is closed
            return
        if self._turn.is_open:
            self._turn.end(self._writer)
        if self._stored.is_open:
            self._stored.end(self._writer)
        if self._is_handled or connection.gathered:
            self._is_handled = False
            connection.end_step()
        elif groups.receipts:
            groups.commit()

    def _begin_stored(self, producer_id: int) -> bool:
        """Whether a producer is one of a stored topic, to which its messages are appended now."""
        stored = self._stored
        if stored.is_open:
            if stored.producer_id == producer_id:
                return True
            self._end_turns()
        if self._is_traced:
            return False
        found = self._producers.get(producer_id)
        if found is None:
            return False
        if self._turn.is_open:
            self._end_turns()
        return stored.begin(found)

    def _begin(self, producer_id: int) -> bool:
        """Whether a producer is one of a non-persistent topic; then the turn takes its messages."""
        turn = self._turn
        if turn.is_open:
            if turn.producer_id == producer_id:
                return True
            self._end_turns()
        connection = self._connection
        found = self._others.get(producer_id)
        if connection is None or found is None or not found.ready:
            return False
        stored = self._producers.get(producer_id)
        if stored is not None and stored.ready:
            return False
        connection.has_received = True
        turn.begin(found)
        return True

    def _end_turns(self) -> None:
        """End what was taken, before something else; the connection ends the iteration."""
        self._is_handled = True
        if self._turn.is_open:
            self._turn.end(None)
        if self._stored.is_open:
            self._stored.end(None)


def _refuse_frame(_frame: memoryview) -> bool:
    return False
