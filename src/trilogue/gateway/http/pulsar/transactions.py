"""Transactions over HTTP, /admin/v3/transactions: the coordinator, what a transaction contains.

There is one coordinator, number 0. Its transactions are those of Pulsar's clients and of Kafka's
producers, each by its TxnID (broker/transactions/pulsar_transactions.py). Positions are of the
log: `ledger:entry`, the partition's id and an offset. What a real broker keeps in logs of its own
(internal statistics, snapshots, low watermarks) does not exist here.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import NotServed, UnknownTransaction
from trilogue.broker.names import format_pulsar
from trilogue.broker.topics.partition import Partition
from trilogue.broker.transactions.pulsar_transactions import COORDINATOR, TxnId, txn_id_of
from trilogue.broker.transactions.records import TransactionState
from trilogue.broker.transactions.transaction import Transaction
from trilogue.gateway.http.administration import await_promise
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute
from trilogue.gateway.http.request_limits import HttpError

READY = {"state": "Ready", "lowWaterMarks": None, "recoverStartTime": 0, "recoverEndTime": 0}
STATUS = {
    TransactionState.EMPTY: "COMMITTED",
    TransactionState.ONGOING: "OPEN",
    TransactionState.PREPARE_COMMIT: "COMMITTING",
    TransactionState.PREPARE_ABORT: "ABORTING",
    TransactionState.COMPLETE_COMMIT: "COMMITTED",
    TransactionState.COMPLETE_ABORT: "ABORTED",
}
ONGOING = TransactionState.ONGOING
SLOW_MAX = 1_000


def list_coordinators(request: AdminRequest) -> object:
    """Return the one coordinator and its address."""
    return [{"id": COORDINATOR, "brokerServiceUrl": request.gateway.url}]


def get_coordinator_stats(request: AdminRequest) -> object:
    """Return the state of the coordinator, or of all by number."""
    rows = [each.row for each in request.broker.transactions.table]
    stats = {
        "state": "Ready",
        "leastSigBits": max((row.producer_id for row in rows), default=0),
        "lowWaterMark": 0,
        "ongoingTxnSize": sum(row.state is ONGOING for row in rows),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }
    if "coordinatorId" not in request.http.query_params:
        return {str(COORDINATOR): stats}
    _check_coordinator(request)
    return stats


def get_transaction(request: AdminRequest) -> object:
    """Return what a transaction contains."""
    found = request.broker.pulsar_transactions.find_transaction(_txn_id(request))
    return _describe(request, [found])[0]


def list_slow_transactions(request: AdminRequest) -> object:
    """Return transactions, up to 1,000, that are open for longer than so many milliseconds."""
    _check_coordinator(request)
    since_ms = request.gateway.now_ms() - request.number("timeout")
    found = [
        each
        for each in request.broker.transactions.table
        if each.state is ONGOING and each.row.started_ms <= since_ms
    ]
    return {each["txnId"]: each for each in _describe(request, found[:SLOW_MAX])}


async def abort_transaction(request: AdminRequest) -> None:
    """Abort a transaction."""
    transactions = request.broker.pulsar_transactions
    await await_promise(transactions.end(_txn_id(request), commit=False))


def get_transaction_in_topic(request: AdminRequest) -> object:
    """Return where a transaction begins in a topic."""
    _, partition = request.partition
    found = _find_in(request, partition)
    return _encode_produced(partition, found)


def get_transaction_in_subscription(request: AdminRequest) -> object:
    """Return what a transaction has acked cumulatively in a subscription."""
    _, partition = request.partition
    found = request.broker.pulsar_transactions.find_transaction(_txn_id(request))
    name, partition_id = request.params["subscription"], partition.partition_id
    for ack in found.content().acks:
        if (ack.key.name, ack.key.partition_id) == (name, partition_id):
            return _encode_acked(partition_id, ack.until)
    raise UnknownTransaction("the transaction has acked nothing in this subscription")


def get_topic_stats(request: AdminRequest) -> object:
    """Return up to where a topic may be read, and how many transactions are open."""
    _, partition = request.partition
    plog = partition.log
    return READY | {
        "maxReadPosition": f"{partition.partition_id}:{plog.stable_end - 1}",
        "lastSnapshotTimestamps": 0,
        "ongoingTxnSize": len(plog.open_transactions),
        "totalAbortedTransactions": 0,
    }


def get_subscription_stats(request: AdminRequest) -> object:
    """Return how many transactions have acked messages of a subscription."""
    cursor = _find_cursor(request)
    pending = request.broker.transactions.table.pending_acks.of_subscription(cursor)
    return READY | {"ongoingTxnSize": 0 if pending is None else len(pending.transactions)}


def get_position_stats(request: AdminRequest) -> object:
    """Return whether a message is acked, or acked in an open transaction."""
    cursor = _find_cursor(request)
    offset = request.number("entry") + max(0, int(request.http.query_params.get("batchIndex", 0)))
    if request.number("ledger") != cursor.partition_id:
        return {"state": "InvalidPosition"}
    pending = request.broker.transactions.table.pending_acks.of_subscription(cursor)
    if cursor.contains(offset):
        return {"state": "MarkDelete"}
    if pending is not None and pending.holders(offset, offset + 1):
        return {"state": "PendingAck"}
    return {"state": "NotInPendingAck"}


def reject_internals(request: AdminRequest) -> None:
    """Reject: there are no logs of their own to describe, and one coordinator."""
    del request
    raise NotServed("transactions have no logs of their own, and one coordinator")


# ---- parts


def _check_coordinator(request: AdminRequest) -> None:
    text = request.http.query_params.get("coordinatorId", str(COORDINATOR))
    if text != str(COORDINATOR):
        raise HttpError(404, f"there is no transaction coordinator {text}")


def _txn_id(request: AdminRequest) -> TxnId:
    return TxnId(request.number("most"), request.number("least"))


def _find_in(request: AdminRequest, partition: Partition) -> Transaction:
    found = request.broker.pulsar_transactions.find_transaction(_txn_id(request))
    if partition.partition_id not in found.contained.partitions:
        raise UnknownTransaction("the transaction has no message in this topic")
    return found


def _find_cursor(request: AdminRequest) -> Cursor:
    _, partition = request.partition
    name = request.params["subscription"]
    cursor = request.broker.subscriptions.find_cursor(partition.partition_id, name)
    if cursor is None:
        raise HttpError(404, f"Subscription {name} not found for topic {request.name}")
    return cursor


def _describe(request: AdminRequest, transactions: list[Transaction]) -> list[dict[str, object]]:
    contents = [each.content() for each in transactions]
    wanted = {ack.key.partition_id for content in contents for ack in content.acks}
    wanted.update(*(content.partition_ids for content in contents))
    partitions = {
        partition.partition_id: (
            format_pulsar(topic.name, index if topic.partitioned else None),
            partition,
        )
        for topic in (request.broker.cluster if wanted else ())
        for index, partition in enumerate(topic.partitions)
        if partition.partition_id in wanted
    }
    found = []
    for transaction, content in zip(transactions, contents, strict=True):
        produced = {
            name: _encode_produced(partition, transaction)
            for name, partition in (
                partitions[each] for each in content.partition_ids if each in partitions
            )
        }
        acked: dict[str, dict[str, object]] = {}
        for ack in content.acks:
            name, _ = partitions.get(ack.key.partition_id, ("", None))
            if name:
                encoded = _encode_acked(ack.key.partition_id, ack.until)
                acked.setdefault(name, {})[ack.key.name] = encoded
        row = transaction.row
        found.append(
            {
                "txnId": str(txn_id_of(row)),
                "status": STATUS[row.state],
                "openTimestamp": row.started_ms,
                "timeoutAt": row.timeout_ms,
                "producedPartitions": produced,
                "ackedPartitions": acked,
                "owner": row.owner or row.transactional_id,
            }
        )
    return found


def _encode_produced(partition: Partition, found: Transaction) -> dict[str, object]:
    first = partition.log.open_transactions.get(found.row.producer_id)
    start = None if first is None else f"{partition.partition_id}:{first}"
    return {"startPosition": start, "aborted": found.state is TransactionState.COMPLETE_ABORT}


def _encode_acked(partition_id: int, until: int) -> dict[str, object]:
    position = None if until == NOTHING_BELOW else f"{partition_id}:{until - 1}"
    return {"cumulativeAckPosition": position}


TOPIC = "/{tenant}/{namespace}/{topic}"
TXN = "/{most}/{least}"
PATHS = (
    ("GET", "/coordinators", list_coordinators),
    ("GET", "/coordinatorStats", get_coordinator_stats),
    ("GET", "/transactionMetadata" + TXN, get_transaction),
    ("GET", "/slowTransactions/{timeout}", list_slow_transactions),
    ("GET", "/coordinatorInternalStats/{coordinator}", reject_internals),
    ("POST", "/transactionCoordinator/replicas", reject_internals),
)
TOPIC_PATHS = (
    ("/transactionInBufferStats" + TOPIC + TXN, get_transaction_in_topic),
    ("/transactionInPendingAckStats" + TOPIC + "/{subscription}" + TXN,
     get_transaction_in_subscription),
    ("/transactionBufferStats" + TOPIC, get_topic_stats),
    ("/pendingAckStats" + TOPIC + "/{subscription}", get_subscription_stats),
    ("/positionStatsInPendingAck" + TOPIC + "/{subscription}/{ledger}/{entry}",
     get_position_stats),
    ("/pendingAckInternalStats" + TOPIC + "/{subscription}", reject_internals),
    ("/transactionBufferInternalStats" + TOPIC, reject_internals),
)  # fmt: skip


def routes(prefix: str) -> list[AdminRoute]:
    """Return the routes of transactions, below a path."""
    cluster, describe = ResourceKind.CLUSTER, Operation.DESCRIBE
    return [
        *(
            AdminRoute(methods, prefix + path, handler, cluster, describe)
            for methods, path, handler in PATHS
        ),
        *(
            AdminRoute("GET", prefix + path, handler, ResourceKind.TOPIC, describe)
            for path, handler in TOPIC_PATHS
        ),
        AdminRoute(
            "POST", f"{prefix}/abortTransaction{TXN}", abort_transaction, cluster, Operation.ALTER
        ),
    ]
