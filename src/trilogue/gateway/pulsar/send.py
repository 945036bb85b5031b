"""SEND: append, and a receipt when it is durable. The hot path: no protobuf objects, no closures.

A receipt is made at once, as the frame that will leave, and waits in the connection's list of this
turn; so does SEND_ERROR, since a client takes the answers of a producer in the order of what it
sent. When the commit fails, the receipts are read again and become errors.

Of a topic that is acknowledged from memory a receipt leaves with the turn, unless the producer has
others that wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trilogue.broker.errors import BrokerError, NotServed
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar_batch import build_entry, read_metadata
from trilogue.gateway.pulsar.errors import Refusal, code_of
from trilogue.gateway.stream import Buffer, Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import simple
from trilogue.wire.pulsar.hot import command_type, read_send, send_receipt
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

NONE = (1 << 64) - 1  # ledger and entry of a message that was there before


def take(connection: PulsarConnection, _command: None, frame: memoryview) -> None:
    """Append one message, batch or chunk."""
    door = connection.door
    sent = read_send(frame)
    producer_id = sent.producer_id
    producer = connection.producers.get(producer_id)
    if producer is None or not producer.ready:
        if producer_id in connection.closed_producers:
            return
        raise Close("send.without_producer", producer=producer_id)
    sequence_id = sent.sequence_id
    partition = producer.partition
    section = frame[sent.section_at :]
    now_ms = door.now_ms()
    try:
        if sent.txn_least or sent.txn_most:
            raise NotServed("transactions are not served")
        entry, header, stamp = build_entry(section, broker_ms=now_ms)
        if partition.policies.encryption_required and not read_metadata(entry).has_encryption:
            raise Refusal(ServerError.MetadataError, "Messages must be encrypted")
        if partition.policies.deduplication and stamp.producer_key != producer.key:
            raise Refusal(
                ServerError.MetadataError, "a message names another producer than its own"
            )
        appended = partition.append_entry(entry, header, now_ms=now_ms, sequence=stamp)
    except (BrokerError, EntryError, Refusal) as problem:
        connection.sends.append(refusal(producer_id, sequence_id, problem))
        producer.turn = connection.turn
        return
    if appended.duplicate:
        receipt = send_receipt(producer_id, sequence_id, sent.highest_sequence_id, NONE, NONE)
    else:
        receipt = send_receipt(
            producer_id,
            sequence_id,
            sent.highest_sequence_id,
            partition.log.partition_id,
            appended.base_offset,
        )
    count = header.last_offset_delta + 1
    producer.messages += count
    producer.bytes += len(section)
    door.messages_in += count
    door.bytes_in += len(section)
    if appended.patient and producer.turn <= connection.turns_done:
        connection.write(receipt)
    else:
        producer.turn = connection.turn
        connection.sends.append(receipt)


def refusal(producer_id: int, sequence_id: int, problem: BaseException) -> bytes:
    """SEND_ERROR: what clients do next depends on the code (gateway/pulsar/errors.py)."""
    code = code_of(problem)
    text = str(problem) or code.name
    if code is ServerError.ChecksumError:
        text = f"Checksum failed on the broker: {text}"
    return simple(
        BaseCommand(
            type=BaseCommand.SEND_ERROR,
            send_error={
                "producer_id": producer_id,
                "sequence_id": sequence_id,
                "error": code,
                "message": text,
            },
        )
    )


def taken_back(receipts: Iterable[Buffer], problem: BaseException) -> list[Buffer]:
    """What is said instead of receipts when the disk did not keep the messages."""
    found: list[Buffer] = []
    for receipt in map(bytes, receipts):
        if command_type(receipt[4:]) == BaseCommand.SEND_RECEIPT:
            command = BaseCommand.FromString(receipt[8:])
            said = command.send_receipt
            found.append(refusal(said.producer_id, said.sequence_id, problem))
        else:
            found.append(receipt)
    return found
