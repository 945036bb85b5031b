"""Transactions over HTTP, /admin/v3/transactions: the coordinator, what a transaction contains.

Each slot has a coordinator of its number; with one node there is one, 0. Their transactions are
those of Pulsar's clients and of Kafka's producers, each by its TxnID
(broker/transactions/pulsar_transactions.py). A request about one goes on to the node that has its
coordinator; lists are put together of all nodes, unless they say `own=true`. Positions are of the
log: `ledger:entry`, the partition's id and an offset. What a real broker keeps in logs of its own
(internal statistics, snapshots, low watermarks) does not exist here.
"""

from __future__ import annotations

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import NotOwner, NotServed, UnknownTransaction
from trilogue.broker.names import format_pulsar
from trilogue.broker.topics.lookup import coordinators
from trilogue.broker.topics.partition import Partition
from trilogue.broker.transactions.pulsar_transactions import TxnId
from trilogue.broker.transactions.records import DeferredAck, TransactionState
from trilogue.broker.transactions.transaction import Transaction
from trilogue.gateway.http.administration import await_promise
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute, Reply
from trilogue.gateway.http.pulsar.forwarding import ForwardedRequest, forward, worst_reply
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
    """Return the coordinators and their addresses."""
    gateway, transactions = request.gateway, request.broker.pulsar_transactions
    count = coordinators(request.broker.cluster)
    urls = (gateway.service_urls(transactions.find_coordinator(each))[0] for each in range(count))
    return [{"id": number, "brokerServiceUrl": url} for number, url in enumerate(urls)]


async def get_coordinator_stats(request: AdminRequest) -> object:
    """Return the state of a coordinator, or of all by number."""
    ownership = request.broker.cluster.ownership
    wanted = _find_coordinator(request)
    if wanted is not None:
        return _describe_coordinator(request, wanted)
    found = await _add_other_nodes(
        request,
        {
            str(number): _describe_coordinator(request, number)
            for number in range(ownership.slot_count)
            if ownership.slot_owner(number) == ownership.node_id
        },
    )
    if isinstance(found, Reply):
        return found
    return {number: found[number] for number in sorted(found, key=int)}


async def _add_other_nodes(
    request: AdminRequest, own: dict[str, object]
) -> dict[str, object] | Reply:
    """Return what the other nodes have, too, or the reply of one that failed."""
    ownership = request.broker.cluster.ownership
    others = set(ownership.slot_owners().values()) - {ownership.node_id}
    if not others or request.flag("own"):
        return own
    url = request.http.url.include_query_params(own="true")
    replies = await forward(
        request, [ForwardedRequest(each, "GET", f"{url.path}?{url.query}") for each in others]
    )
    failed = [each for each in replies if not each.is_success]
    if failed:
        return worst_reply(failed)
    found = dict(own)
    for each in replies:
        found |= msgspec.json.decode(each.body, type=dict[str, object])
    return found


def _describe_coordinator(request: AdminRequest, number: int) -> object:
    ownership = request.broker.cluster.ownership
    rows = [
        each.row
        for each in request.broker.transactions.table
        if ownership.slot_of(each.row.transactional_id) == number
    ]
    return {
        "state": "Ready",
        "leastSigBits": max((row.producer_id for row in rows), default=0),
        "lowWaterMark": 0,
        "ongoingTxnSize": sum(row.state is ONGOING for row in rows),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }


def get_transaction(request: AdminRequest) -> object:
    """Return what a transaction contains."""
    found = _find_transaction(request)
    return _describe(request, [found])[0]


async def list_slow_transactions(request: AdminRequest) -> object:
    """Return transactions, up to 1,000 of each node, that are open for so many milliseconds."""
    wanted, ownership = _find_coordinator(request), request.broker.cluster.ownership
    since_ms = request.gateway.now_ms() - request.number("timeout")
    found = [
        each
        for each in request.broker.transactions.table
        if each.state is ONGOING
        and each.row.started_ms <= since_ms
        and wanted in {None, ownership.slot_of(each.row.transactional_id)}
    ]
    described = _describe(request, found[:SLOW_MAX])
    own: dict[str, object] = {str(each["txnId"]): each for each in described}
    return own if wanted is not None else await _add_other_nodes(request, own)


async def abort_transaction(request: AdminRequest) -> None:
    """Abort a transaction."""
    transactions = request.broker.pulsar_transactions
    _find_transaction(request)
    await await_promise(transactions.end(_txn_id(request), commit=False))


def get_transaction_in_topic(request: AdminRequest) -> object:
    """Return where a transaction begins in a topic."""
    _, partition = request.partition
    txn_id = _txn_id(request)
    if not request.broker.pulsar_transactions.coordinates(txn_id):
        producer_id = txn_id.identity.producer_id
        if producer_id not in partition.log.open_transactions:
            raise UnknownTransaction("the transaction has no open message in this topic")
        return _encode_start(partition, producer_id, aborted=False)
    found = _find_in(request, partition)
    return _encode_produced(partition, found)


def get_transaction_in_subscription(request: AdminRequest) -> object:
    """Return what a transaction has acked cumulatively in a subscription."""
    _, partition = request.partition
    name, partition_id = request.params["subscription"], partition.partition_id
    for ack in _find_acks(request):
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
    """Reject: there are no logs of their own to describe, and as many coordinators as slots."""
    del request
    raise NotServed("transactions have no logs of their own, and as many coordinators as slots")


# ---- parts


def _find_coordinator(request: AdminRequest) -> int | None:
    """Return the coordinator that a request names, if it does; NotOwner, HttpError."""
    text = request.http.query_params.get("coordinatorId")
    if text is None:
        return None
    ownership = request.broker.cluster.ownership
    if not text.isdecimal() or not int(text) < ownership.slot_count:
        raise HttpError(404, f"there is no transaction coordinator {text[:20]}")
    _check_owner(request, int(text))
    return int(text)


def _check_owner(request: AdminRequest, coordinator: int) -> None:
    ownership = request.broker.cluster.ownership
    owner = ownership.slot_owner(coordinator)
    if owner not in {None, ownership.node_id}:
        raise NotOwner(f"node {owner} has transaction coordinator {coordinator}", owner or 0)


def _find_transaction(request: AdminRequest) -> Transaction:
    txn_id = _txn_id(request)
    _check_owner(request, txn_id.most)
    return request.broker.pulsar_transactions.find_transaction(txn_id)


def _find_acks(request: AdminRequest) -> tuple[DeferredAck, ...]:
    """Return what a transaction has acked here, where its coordinator may be on another node."""
    txn_id, broker = _txn_id(request), request.broker
    if broker.pulsar_transactions.coordinates(txn_id):
        return broker.pulsar_transactions.find_transaction(txn_id).content().acks
    name = broker.pulsar_transactions.find_name(txn_id).transactional_id
    found = broker.participant.acks.find_ack(name, _find_cursor(request))
    return () if found is None else (found,)


def _txn_id(request: AdminRequest) -> TxnId:
    return TxnId(request.number("most"), request.number("least"))


def _find_in(request: AdminRequest, partition: Partition) -> Transaction:
    found = _find_transaction(request)
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
                "txnId": str(request.broker.pulsar_transactions.txn_id_of(row)),
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
    aborted = found.state is TransactionState.COMPLETE_ABORT
    return _encode_start(partition, found.row.producer_id, aborted=aborted)


def _encode_start(partition: Partition, producer_id: int, *, aborted: bool) -> dict[str, object]:
    first = None if partition.is_remote else partition.log.open_transactions.get(producer_id)
    start = None if first is None else f"{partition.partition_id}:{first}"
    return {"startPosition": start, "aborted": aborted}


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
