"""Messages and acks in transactions whose coordinator is on another node.

The first message of a transaction in a partition waits until the coordinator has confirmed the
partition: the connection takes no other frame meanwhile, and this one is offered again. Where that
takes too long the connection is closed, as for Kafka (gateway/kafka/produce/joined_produce.py). The
first ack in a subscription waits by itself: acks have no order.
"""

from __future__ import annotations

from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import (
    BrokerError,
    InvalidTransactionState,
    ProducerFenced,
    UnknownProducerMapping,
    UnknownTransaction,
)
from trilogue.broker.node_requests import JoinTransaction, Part
from trilogue.broker.transactions.pulsar_transactions import TxnId, make_part
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.transactions.transactions import find_authorized
from trilogue.gateway.stream import STOP_WORK, Close
from trilogue.gateway.transactions.joins import UNREACHED, send_until_answered
from trilogue.wire.pulsar.message_codec import Ack


def join_before_send(connection: PulsarConnection, txn_id: TxnId, partition_id: int) -> bool:
    """Whether a message of a transaction may be handled; otherwise it is offered again later."""
    transactions = connection.gateway.broker.pulsar_transactions
    refused = connection.refused_join
    if refused is not None and refused[:2] == (txn_id, partition_id):
        return True
    if transactions.is_joined(txn_id, partition_id):
        return True
    connection.stream.stop(STOP_WORK)
    connection.spawn(_join_partition(connection, txn_id, partition_id))
    return False


def raise_refusal(connection: PulsarConnection, txn_id: TxnId, partition_id: int) -> None:
    """Raise what the coordinator has refused a message with that is offered again."""
    refused, connection.refused_join = connection.refused_join, None
    if refused is not None and refused[:2] == (txn_id, partition_id):
        raise refused[2]


async def _join_partition(connection: PulsarConnection, txn_id: TxnId, partition_id: int) -> None:
    try:
        refusal = await _join(connection, txn_id, partition_id)
    except TimeoutError as error:
        raise Close("send.coordinator_unreachable", transaction=str(txn_id)) from error
    if refusal is not None:
        connection.refused_join = txn_id, partition_id, refusal
    if not connection.is_gone:
        connection.stream.go_on(STOP_WORK)


def is_ack_joined(connection: PulsarConnection, cursor: Cursor | None, ack: Ack) -> bool:
    """Whether an ack may be handled without a request to another node."""
    if cursor is None or not (ack.txn_least or ack.txn_most):
        return True
    transactions = connection.gateway.broker.pulsar_transactions
    return transactions.is_joined(TxnId(ack.txn_most, ack.txn_least), make_part(cursor))


async def join_before_ack(connection: PulsarConnection, cursor: Cursor | None, ack: Ack) -> None:
    """Have the subscription of an ack confirmed; raises the refusal, or TimeoutError."""
    if cursor is None or is_ack_joined(connection, cursor, ack):
        return
    refusal = await _join(connection, TxnId(ack.txn_most, ack.txn_least), make_part(cursor))
    if refusal is not None:
        raise refusal


async def _join(connection: PulsarConnection, txn_id: TxnId, part: Part) -> BrokerError | None:
    """Return None when a part is confirmed, or the refusal as of a coordinator on this node."""
    gateway = connection.gateway
    transactions, participant = gateway.broker.pulsar_transactions, gateway.broker.participant
    refusal = await send_until_answered(lambda: transactions.look_up(txn_id), UNREACHED)
    if refusal is not None:
        return refusal
    try:
        find_authorized(connection, txn_id)
        name = transactions.find_name(txn_id).transactional_id
    except BrokerError as problem:
        return problem
    request = JoinTransaction(name, *txn_id.identity, part, adds=True)
    refusal = await send_until_answered(lambda: participant.join(request), UNREACHED)
    if isinstance(refusal, ProducerFenced):
        return InvalidTransactionState(f"transaction {txn_id} has ended")
    if isinstance(refusal, UnknownProducerMapping):
        return UnknownTransaction(f"there is no transaction {txn_id}")
    return refusal
