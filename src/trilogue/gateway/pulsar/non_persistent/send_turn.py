# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""What one step of a connection sends to a non-persistent topic: checked, acknowledged, handed on.

A message is acknowledged as soon as it was checked and handed to consumers or dropped. The receipt
has the id with which consumers get it. The messages of a step go to the consumers together, so that
each consumer and the producer have one write; where rates or quotas count, each goes alone.

Compiled (send_turn.pxd adds the types), since it runs once per message; uncompiled it is plain
Python. See docs/decisions/0156.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from trilogue.broker.errors import BrokerError, NotAllowed
from trilogue.broker.non_persistent.topics import LEDGER_ID
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar.layout import PULSAR_SECTION_AT
from trilogue.gateway.pulsar.errors import PulsarProtocolError, encode_send_error
from trilogue.gateway.pulsar.non_persistent.dispatcher import dispatch_entries
from trilogue.wire.pulsar.errors import ServerError

if not cython.compiled:  # send_turn.pxd imports the compiled versions
    from trilogue.entry.pulsar.pulsar_entry import SentSection, build_checked
    from trilogue.wire.pulsar.message_codec import SendHead, encode_send_receipt

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.non_persistent.producer import NonPersistentProducer
    from trilogue.gateway.pulsar.services import ClientConnection
    from trilogue.gateway.transport_writer import TransportWriter

_LEDGER_ID = LEDGER_ID
_SECTION_AT = PULSAR_SECTION_AT
_REFUSALS = (BrokerError, EntryError, PulsarProtocolError)


class SendTurn:
    """The messages that a producer has sent in this step."""

    __slots__ = (
        "_connection",
        "_first_id",
        "_is_encrypted",
        "_is_sent_on",
        "_message_count",
        "_messages",
        "_producer",
        "_receipts",
        "_section",
        "_sections",
        "_size",
        "_taken",
        "is_limited",
        "is_open",
        "producer_id",
    )

    def __init__(self, connection: ClientConnection) -> None:
        self.is_open = False
        self.is_limited = False  # whether each message is counted before the next one
        self.producer_id = 0
        self._connection: ClientConnection | None = connection
        self._producer: NonPersistentProducer | None = None
        self._section = SentSection()
        self._receipts: list[bytes] = []
        self._messages: list[int] = []  # of each entry that consumers may get
        self._sections: list[bytes] = []
        self._first_id = self._taken = self._message_count = self._size = 0
        self._is_encrypted = False  # whether messages have to be
        self._is_sent_on = False  # whether there is a subscription

    def begin(self, producer: NonPersistentProducer) -> None:
        """Take messages of this producer, after `end` for another one."""
        topic, connection = producer.topic, self._connection
        assert connection is not None, "no frame comes any more"
        self._producer = producer
        self.producer_id = producer.producer_id
        self._first_id = topic.next_entry_id
        self._is_encrypted = topic.policies.encryption_required
        self._is_sent_on = len(topic.subscriptions) > 0
        self.is_limited = connection.gateway.quotas.active or topic.rates is not None
        self.is_open = True

    def add_message(self, head: SendHead, frame: memoryview) -> None:
        """Take one message, batch or chunk, or refuse it."""
        section = self._section
        view = frame[head.section_at :]
        try:
            section.read(view)
            if self._is_encrypted and not section.is_encrypted():
                raise PulsarProtocolError(ServerError.MetadataError, "Messages must be encrypted")
            if head.is_in_transaction:
                raise NotAllowed("non-persistent topics take no part in transactions")
        except _REFUSALS as problem:
            refusal = encode_send_error(head.producer_id, head.sequence_id, problem)
            self._receipts.append(refusal)
            return
        if self._is_sent_on:
            self._messages.append(section.message_count)
            if section.can_be_sent():
                self._sections.append(bytes(view))
            else:
                self._sections.append(bytes(build_checked(view, section, 0)[0][_SECTION_AT:]))
        receipt = encode_send_receipt(
            head.producer_id,
            head.sequence_id,
            head.highest_sequence_id,
            _LEDGER_ID,
            self._first_id + self._taken,
        )
        self._receipts.append(receipt)
        self._taken += 1
        self._message_count += section.message_count
        self._size += len(view)

    def end(self, writer: TransportWriter | None) -> None:
        """Hand the messages to consumers, and send the receipts: by the writer if there is one."""
        connection, receipts = self._connection, self._receipts
        self.is_open = False
        if self._taken:
            self._hand_out()
        if not receipts or connection is None:
            return
        joined = receipts[0] if len(receipts) == 1 else b"".join(receipts)
        receipts.clear()
        if writer is None or writer.is_paused or connection.gathered:
            connection.write(joined)
        else:
            writer.send_one(joined)

    def close(self) -> None:
        """Refer to nothing of the connection: it is closed."""
        self.is_open = False
        self._connection = self._producer = None
        self._receipts.clear()
        self._forget()

    def _hand_out(self) -> None:
        producer, connection = self._producer, self._connection
        assert producer is not None, "a turn begins with its producer"
        assert connection is not None, "a closed one has taken nothing"
        gateway, topic = connection.gateway, producer.topic
        count, size = self._message_count, self._size
        topic.received.count(count, size, gateway.loop.time())
        producer.count_sent(count, size, topic.rates)
        try:
            if self._is_sent_on:
                dispatch_entries(gateway, topic, self._messages, self._sections)
        finally:
            topic.next_entry_id += self._taken
            self._forget()

    def _forget(self) -> None:
        self._messages.clear()
        self._sections.clear()
        self._taken = self._message_count = self._size = 0
