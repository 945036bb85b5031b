"""SEND: append, and a receipt when the message is durable. No protobuf objects, no closures.

A receipt is encoded at once, as the frame that will leave, and waits in the connection's list of
this loop iteration. So does SEND_ERROR, since a client takes the answers of a producer in the order
of what it sent. When the commit fails, the receipts are decoded again and become errors
(errors.py).

A message in a transaction gets the transaction's producer id and epoch. It may have to wait for a
coordinator on another node (transactions/parts.py).

The receipt of a topic that is acknowledged from memory leaves with the loop iteration, unless
earlier messages of the producer still wait for their commit.

What is sent to non-persistent topics does not come here, nor do plain messages to others, except
where messages are traced (send_fast_path.py).
"""

from __future__ import annotations

from trilogue.broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidTransactionState,
    NotOwner,
    TooManyTransactions,
    UnknownTransaction,
)
from trilogue.broker.topics.partition import AppendResult, Partition
from trilogue.broker.transactions.pulsar_transactions import TxnId
from trilogue.entry.entry import EntryError, EntryHeader
from trilogue.entry.pulsar.pulsar_batch import (
    PULSAR_SECTION_AT,
    Stamp,
    build_entry,
    join_transaction,
    read_metadata,
)
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.errors import PulsarProtocolError, encode_send_error
from trilogue.gateway.pulsar.producer import Producer
from trilogue.gateway.pulsar.transactions.parts import join_before_send, raise_refusal
from trilogue.gateway.pulsar.transactions.transactions import find_authorized
from trilogue.gateway.stream import Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.message_codec import Send, encode_send_receipt, read_send

NO_ID = (1 << 64) - 1  # ledger and entry id of a duplicate


def handle_send(connection: PulsarConnection, _command: None, frame: memoryview) -> bool:
    """Append one message, batch or chunk; False if it has to be offered again."""
    gateway = connection.gateway
    sent = read_send(frame)
    producer_id = sent.producer_id
    producer = connection.producers.get(producer_id)
    if producer is None or not producer.ready:
        _check_closed(connection, producer_id)
        return True
    sequence_id = sent.sequence_id
    partition = producer.partition
    in_transaction = sent.txn_least or sent.txn_most
    if in_transaction and not join_before_send(
        connection, TxnId(sent.txn_most, sent.txn_least), partition.partition_id
    ):
        return False
    section = frame[sent.section_at :]
    is_duplicate = acks_from_memory = False
    base_offset = -1
    try:
        entry, header, stamp = build_entry(section, broker_ms=gateway.now_ms())
        if not in_transaction:
            size = len(entry) - PULSAR_SECTION_AT
            base_offset = partition.plain.append_entry(entry, header, size)
        if base_offset < 0:
            appended = _append_with_policies(connection, sent, producer, entry, header, stamp)
            base_offset, _, is_duplicate, acks_from_memory = appended
    except NotOwner:  # CLOSE_PRODUCER follows, and the client sends it to the next owner
        return True
    except (BrokerError, EntryError, PulsarProtocolError) as problem:
        connection.receipts.append(encode_send_error(producer_id, sequence_id, problem))
        producer.commit_group = connection.groups.number
        return True
    ledger_id, entry_id = partition.log.partition_id, base_offset
    if is_duplicate:
        ledger_id = entry_id = NO_ID
    receipt = encode_send_receipt(
        producer_id, sequence_id, sent.highest_sequence_id, ledger_id, entry_id
    )
    producer.count_sent(header.last_offset_delta + 1, len(section), partition.rates)
    if acks_from_memory and producer.commit_group <= connection.groups.done:
        connection.write(receipt)
    else:
        producer.commit_group = connection.groups.number
        connection.receipts.append(receipt)
    return True


def _check_closed(connection: PulsarConnection, producer_id: int) -> None:
    """End the connection, unless what it sent crossed its producer's end."""
    if producer_id not in connection.closed_producers:
        raise Close("send.without_producer", producer=producer_id)


def _append_with_policies(  # noqa: PLR0917 - what `handle_send` has
    connection: PulsarConnection,
    sent: Send,
    producer: Producer,
    entry: memoryview,
    header: EntryHeader,
    stamp: Stamp,
) -> AppendResult:
    """Append an entry of a transaction, or to a topic with policies or settings that concern it."""
    partition = producer.partition
    if partition.policies.encryption_required and not read_metadata(entry).has_encryption:
        raise PulsarProtocolError(ServerError.MetadataError, "Messages must be encrypted")
    if partition.policies.deduplication and stamp.producer_key != producer.key:
        raise PulsarProtocolError(
            ServerError.MetadataError, "a message names another producer than its own"
        )
    if sent.txn_least or sent.txn_most:
        return _append_in_transaction(connection, sent, partition, entry, header, stamp)
    now_ms = connection.gateway.now_ms()
    return partition.append_entry(entry, header, now_ms=now_ms, sequence=stamp)


def _append_in_transaction(  # noqa: PLR0917 - what `handle_send` has
    connection: PulsarConnection,
    sent: Send,
    partition: Partition,
    entry: memoryview,
    header: EntryHeader,
    stamp: Stamp,
) -> AppendResult:
    """Append an entry as one of its transaction; one whose transaction has ended is not stored.

    Nor is one in a transaction of another principal. That gets the receipt of a duplicate: it
    cannot be seen, and clients that send it again after they were disconnected would do so for
    ever. Any other problem is NotAllowedError: after other codes clients disconnect and send the
    message again.
    """
    broker, now_ms = connection.gateway.broker, connection.gateway.now_ms()
    txn_id = TxnId(sent.txn_most, sent.txn_least)
    try:
        raise_refusal(connection, txn_id, partition.partition_id)
        find_authorized(connection, txn_id)
        broker.pulsar_transactions.check_send(txn_id, partition.partition_id)
    except (UnknownTransaction, InvalidTransactionState, ConcurrentTransactions):
        return AppendResult(-1, -1, True, partition.acks_from_memory)
    except TooManyTransactions as problem:
        raise PulsarProtocolError(ServerError.NotAllowedError, str(problem)) from problem
    header = join_transaction(entry, header, *txn_id.identity)
    return partition.append_entry(entry, header, now_ms=now_ms, sequence=stamp, in_transaction=True)
