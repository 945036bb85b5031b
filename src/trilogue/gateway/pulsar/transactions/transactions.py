"""Transactions: the requests to their coordinator, and the acks inside them.

Each slot has a coordinator of its number, at the node that owns it: with one node there is one, 0.
Clients find them by the partition metadata and the lookup of
`persistent://pulsar/system/transaction_coordinator_assign`, which is no topic and has a partition
for each. A request for the coordinator of another node is answered TransactionCoordinatorNotFound:
the client looks it up again. Messages and acks go to the nodes of their topics
(parts.py). NEW_TXN is for clients that may read or write any topic; a transaction is
for the principal that began it, and for others with WRITE on its transactional id
(broker/transactions/pulsar_transactions.py). What is added to it needs WRITE on the topic, or READ
of the subscription's topic.

The answers to NEW_TXN, END_TXN and ACK wait until what they report is durable. Those to added
partitions and subscriptions do not: a message adds its partition too, and an ack its subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW
from trilogue.broker.errors import AccessDenied, NotAllowed, NotCoordinator, UnknownTransaction
from trilogue.broker.promise import Promise
from trilogue.broker.topics.lookup import find_partition_id
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.broker.transactions.pulsar_transactions import TxnId
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.dispatcher import Dispatcher
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.metadata.lookup import parse_authorized
from trilogue.gateway.steps import next_step
from trilogue.gateway.stream import STOP_WORK
from trilogue.wire.pulsar.message_codec import Ack
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    TxnAction,
)

T = TypeVar("T")
PARTS_MAX: Final = 10_000  # of one request


class TransactionRequest(Protocol):
    """A request about one transaction."""

    request_id: int
    txnid_least_bits: int
    txnid_most_bits: int


def handle_connect_coordinator(
    connection: PulsarConnection, command: CommandTcClientConnectRequest, _frame: memoryview
) -> None:
    """Confirm that this node has the coordinator."""
    answer, request_id = "tcClientConnectResponse", command.request_id
    try:
        connection.gateway.broker.pulsar_transactions.check_coordinator(command.tc_id)
    except NotCoordinator as problem:
        _send_error(connection, answer, request_id, problem, {})
        return
    connection.send_command(answer, request_id=request_id)


def handle_new_txn(
    connection: PulsarConnection, command: CommandNewTxn, _frame: memoryview
) -> None:
    """Begin a transaction. `txn_ttl_seconds` has milliseconds, as all clients send them."""
    answer, request_id = "newTxnResponse", command.request_id
    ids = {"txnid_most_bits": command.tc_id}  # clients find the state of a coordinator by it
    try:
        _check_begin(connection)
        promise = connection.gateway.broker.pulsar_transactions.begin(
            command.tc_id, command.txn_ttl_seconds, str(connection.access.principal)
        )
    except EXPECTED as problem:
        _send_error(connection, answer, request_id, problem, ids)
        return

    _answer_later(
        connection,
        promise,
        answer,
        request_id,
        ids,
        fields=lambda begun: {"txnid_least_bits": begun.least, "txnid_most_bits": begun.most},
    )


def handle_add_partition(
    connection: PulsarConnection, command: CommandAddPartitionToTxn, _frame: memoryview
) -> None:
    """Add partitions, whose messages the transaction will commit."""

    def add(txn_id: TxnId) -> None:
        ids = _find_partition_ids(connection, command.partitions, Operation.WRITE)
        connection.gateway.broker.pulsar_transactions.add_partitions(txn_id, ids)

    _add_parts(connection, command, "addPartitionToTxnResponse", len(command.partitions), add)


def handle_add_subscription(
    connection: PulsarConnection, command: CommandAddSubscriptionToTxn, _frame: memoryview
) -> None:
    """Check that the client may ack in these subscriptions."""

    def check(txn_id: TxnId) -> None:
        connection.gateway.broker.pulsar_transactions.find_open(txn_id)
        topics = (each.topic for each in command.subscription)
        _find_partition_ids(connection, topics, Operation.READ)

    count = len(command.subscription)
    _add_parts(connection, command, "addSubscriptionToTxnResponse", count, check)


def handle_end_txn(
    connection: PulsarConnection, command: CommandEndTxn, _frame: memoryview
) -> None:
    """Commit or abort a transaction.

    Who repeats the request on another connection may have missed the answer and gets it again; on
    the same one the transaction does not exist any more, as at a real broker.
    """
    transactions = connection.gateway.broker.pulsar_transactions
    if transactions.is_large(TxnId(command.txnid_most_bits, command.txnid_least_bits)):
        connection.stream.stop(STOP_WORK)
        connection.spawn(_end_in_turn(connection, command))
    else:
        _end(connection, command)


async def _end_in_turn(connection: PulsarConnection, command: CommandEndTxn) -> None:
    """End a transaction of many parts: one of all connections in a loop iteration."""
    await next_step()
    if not connection.is_gone:
        connection.guarded(lambda: _end(connection, command))
        connection.stream.go_on(STOP_WORK)


def _end(connection: PulsarConnection, command: CommandEndTxn) -> None:
    answer, request_id, ids = "endTxnResponse", command.request_id, _ids_of(command)
    try:
        txn_id = _find_coordinated(connection, command)
        if txn_id in connection.ended_transactions:
            raise UnknownTransaction(f"transaction {txn_id} has ended")
        promise = connection.gateway.broker.pulsar_transactions.end(
            txn_id, commit=command.txn_action == TxnAction.COMMIT
        )
    except EXPECTED as problem:
        _send_error(connection, answer, request_id, problem, ids)
        return

    def end(_: ProducerIdentity) -> dict[str, int]:
        connection.ended_transactions.append(txn_id)
        return ids

    _answer_later(connection, promise, answer, request_id, ids, fields=end)


def _add_parts(
    connection: PulsarConnection,
    command: TransactionRequest,
    answer: str,
    count: int,
    add: Callable[[TxnId], None],
) -> None:
    """Add so many parts of a request to its transaction, and answer."""
    try:
        if count > PARTS_MAX:
            raise NotAllowed(f"a request adds up to {PARTS_MAX} partitions or subscriptions")
        add(_find_coordinated(connection, command))
    except EXPECTED as problem:
        _send_error(connection, answer, command.request_id, problem, _ids_of(command))
        return
    connection.send_command(answer, request_id=command.request_id, **_ids_of(command))


def _find_coordinated(connection: PulsarConnection, command: TransactionRequest) -> TxnId:
    """Return the TxnID of a transaction of this node's that the client may use.

    Raises NotCoordinator or UnknownTransaction.
    """
    txn_id = TxnId(command.txnid_most_bits, command.txnid_least_bits)
    connection.gateway.broker.pulsar_transactions.find_transaction(txn_id)
    find_authorized(connection, txn_id)
    return txn_id


def find_authorized(connection: PulsarConnection, txn_id: TxnId) -> None:
    """Check that the client may use a transaction.

    Raises UnknownTransaction, also for a transaction of another principal: TxnIDs are easy to
    guess, and a refusal must not show which exist. NotReady where a coordinator on another node
    has to name it first.
    """
    found = connection.gateway.broker.pulsar_transactions.find_name(txn_id)
    if not found.owner or found.owner != str(connection.access.principal):
        name = found.transactional_id
        if not connection.is_allowed(Operation.WRITE, ResourceKind.TRANSACTION, name):
            raise UnknownTransaction(f"there is no transaction {txn_id}")


def ack_in_transaction(
    connection: PulsarConnection,
    dispatcher: Dispatcher,
    ack: Ack,
    until: int | None,
    ranges: Sequence[tuple[int, int]],
) -> None:
    """Add the acks of one ACK to its transaction: everything below `until`, or ranges.

    Raises NotAllowed for a subscription that is not durable, UnknownTransaction,
    TransactionConflict, and what adding to a transaction raises.
    """
    if dispatcher.cursor is None:
        raise NotAllowed("acks in transactions are for durable subscriptions")
    txn_id = TxnId(ack.txn_most, ack.txn_least)
    find_authorized(connection, txn_id)
    connection.gateway.broker.pulsar_transactions.add_ack(
        txn_id, dispatcher.cursor, NOTHING_BELOW if until is None else until, ranges
    )
    dispatcher.claim_pending()


# ---- parts


def _check_begin(connection: PulsarConnection) -> None:
    access = connection.access
    if not any(
        access.is_allowed_on_any(operation, ResourceKind.TOPIC)
        for operation in (Operation.WRITE, Operation.READ)
    ):
        raise AccessDenied(Operation.WRITE, Resource(ResourceKind.TRANSACTION, "*"))


def _find_partition_ids(
    connection: PulsarConnection, topics: Iterable[str], operation: Operation
) -> list[int]:
    cluster = connection.gateway.broker.cluster
    names = [parse_authorized(connection, each, operation) for each in topics]
    return [find_partition_id(cluster, name) for name in names]


def _ids_of(command: TransactionRequest) -> dict[str, int]:
    return {
        "txnid_least_bits": command.txnid_least_bits,
        "txnid_most_bits": command.txnid_most_bits,
    }


def _answer_later(
    connection: PulsarConnection,
    promise: Promise[T],
    answer: str,
    request_id: int,
    ids: Mapping[str, int],
    *,
    fields: Callable[[T], dict[str, int]],
) -> None:
    """Send the answer, with its TxnID, or the error with `ids` when the promise is settled."""

    def respond() -> None:
        if promise.error is not None:
            _send_error(connection, answer, request_id, promise.error, ids)
        else:
            connection.send_command(answer, request_id=request_id, **fields(promise.result()))

    def settled(_: Promise[T]) -> None:
        if not connection.is_gone:
            connection.guarded(respond)

    promise.then(settled)


def _send_error(
    connection: PulsarConnection,
    answer: str,
    request_id: int,
    problem: BaseException,
    ids: Mapping[str, int],
) -> None:
    connection.send_command(
        answer, request_id=request_id, error=code_of(problem), message=str(problem), **ids
    )
