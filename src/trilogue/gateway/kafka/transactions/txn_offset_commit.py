"""TxnOffsetCommit v0-v5: positions that are committed with a transaction.

v2 leader epochs · v3 flexible; the member of the group, which must be current · v4 120 instead of
48, for which clients abort · v5 adds the group to the transaction (KIP-890). Needs WRITE on the
transactional id (53), READ on the group (30) and READ on each topic (29).
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.cursors.committed_offsets import find_refusal
from trilogue.broker.errors import (
    BrokerError,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAborted,
)
from trilogue.broker.facts import CursorMove
from trilogue.broker.node_requests import JoinTransaction
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import (
    DurableResponse,
    HandlerResult,
    RequestContext,
    wait_for_commit,
)
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.transactions.errors import ABORTABLE_SINCE
from trilogue.gateway.transactions.joins import join_transaction
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

MEMBERS_SINCE = 3
ADDS_SINCE = 5
Moves = list[tuple[CursorMove, TxnOffsetCommitResponsePartition]]


def handle_txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> HandlerResult:
    """Keep the positions; the response waits until they are durable."""
    code = _request_code(context, request)
    moves: Moves = []
    response = TxnOffsetCommitResponse(
        topics=[_topic(context, each, code, moves) for each in request.topics]
    )
    if code or not moves:
        return response
    if not context.broker.transactions.coordinates(request.transactional_id):
        return _commit_joined(context, request, response, moves)
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        context.broker.transactions.add_offsets(
            request.transactional_id,
            identity,
            request.group_id,
            [move for move, _ in moves],
            adds=context.version >= ADDS_SINCE,
        )
    except BrokerError as problem:
        return _refuse(response, moves, problem, context.version)
    return DurableResponse(response, _fail)


async def _commit_joined(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    response: TxnOffsetCommitResponse,
    moves: Moves,
) -> TxnOffsetCommitResponse:
    """Keep the positions here when the coordinator, another node, has confirmed the group."""
    producer, group = (request.producer_id, request.producer_epoch), request.group_id
    adds = context.version >= ADDS_SINCE
    participant, gateway = context.broker.participant, context.gateway
    try:
        refusal = await join_transaction(
            gateway, JoinTransaction(request.transactional_id, *producer, group, adds)
        )
        if refusal is not None:
            return _refuse(response, moves, refusal, context.version)
        if code := _request_code(context, request):  # the group may have gone on meanwhile
            return _fail(response, code)
        participant.add_offsets(*producer, group, [move for move, _ in moves])
    except TimeoutError:
        return _fail(response, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except BrokerError as problem:
        return _refuse(response, moves, problem, context.version)
    failure = await wait_for_commit(gateway)
    return response if failure is None else _fail(response, to_error_code(failure))


def _refuse(
    response: TxnOffsetCommitResponse, moves: Moves, problem: BrokerError, version: int
) -> TxnOffsetCommitResponse:
    refused = to_error_code(problem)
    abortable = isinstance(problem, InvalidTransactionState | TransactionAborted)
    if abortable and version >= ABORTABLE_SINCE:  # it ends only the transaction
        refused = ErrorCode.TRANSACTION_ABORTABLE
    elif isinstance(problem, ProducerFenced):
        refused = ErrorCode.INVALID_PRODUCER_EPOCH  # in all versions, as in Kafka
    for _, answer in moves:
        answer.error_code = refused
    return response


def _request_code(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    name = request.transactional_id
    if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.is_allowed_to(Operation.READ, ResourceKind.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not context.broker.cluster.ownership.owns_name(request.group_id):
        return ErrorCode.NOT_COORDINATOR
    member = request.member_id or request.generation_id >= 0 or request.group_instance_id
    if context.version >= MEMBERS_SINCE and member:
        try:
            context.broker.groups.check_commit(
                request.group_id,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
            )
        except BrokerError as problem:
            return to_error_code(problem)
    return ErrorCode.NONE


def _topic(
    context: RequestContext,
    requested: TxnOffsetCommitRequestTopic,
    code: ErrorCode,
    moves: Moves,
) -> TxnOffsetCommitResponseTopic:
    topic = None
    if not code:
        topic, code = context.find_topic_for(Operation.READ, requested.name)
    answer = TxnOffsetCommitResponseTopic(name=requested.name)
    for each in requested.partitions:
        result = TxnOffsetCommitResponsePartition(
            partition_index=each.partition_index, error_code=code
        )
        answer.partitions.append(result)
        if topic is None:
            continue
        if not 0 <= each.partition_index < len(topic.partitions):
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        move = _move(topic.partitions[each.partition_index].partition_id, each)
        problem = find_refusal(context.broker.committed_offsets, move)
        if problem is None:
            moves.append((move, result))
        else:
            result.error_code = to_error_code(problem)
    return answer


def _move(partition_id: int, requested: TxnOffsetCommitRequestPartition) -> CursorMove:
    return CursorMove(
        partition_id,
        requested.committed_offset,
        requested.committed_leader_epoch,
        requested.committed_metadata or "",
    )


def _fail(response: TxnOffsetCommitResponse, code: ErrorCode) -> TxnOffsetCommitResponse:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return response
