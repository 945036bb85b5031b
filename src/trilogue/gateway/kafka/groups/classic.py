"""FindCoordinator v0-v6, JoinGroup v0-v9, SyncGroup v0-v5, Heartbeat v0-v4, LeaveGroup v0-v5.

The rules of membership are in broker/groups/classic/group.py; this module translates.

FindCoordinator: v4+ many keys. The owner of the slot of a name coordinates the group (key type 0)
or the transactions (1) of this name; other key types are 42. JoinGroup: v1 rebalance timeout
(before: the session timeout) · v4 new members get an id first (79) · v5 static members · v7
protocol type · v9 the leader may skip the assignment. SyncGroup: v3 static members · v5 the
protocol is checked. LeaveGroup: v3+ many members in one request.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, MemberIdRequired
from trilogue.broker.groups.classic.members import JoinRequest, JoinResult, SyncResult
from trilogue.broker.promise import Promise
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import begin_steps
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.classic import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

GROUP_KEY, TRANSACTION_KEY = 0, 1
MANY_KEYS_SINCE = 4
KEYS_PER_STEP = 500  # keys of FindCoordinator per loop iteration
REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_SINCE = 5
MANY_LEAVE_SINCE = 3


# ---- find coordinator


def handle_find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Return the nodes that coordinate groups or transactions."""
    if context.version >= MANY_KEYS_SINCE:
        return begin_steps(_coordinators(context, request))
    found = _coordinator(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinators(
    context: RequestContext, request: FindCoordinatorRequest
) -> Steps[FindCoordinatorResponse]:
    """Process keys in steps: tools look up all groups of a cluster at once."""
    response = FindCoordinatorResponse()
    for number, key in enumerate(request.coordinator_keys, 1):
        if number % KEYS_PER_STEP == 0:
            yield
        response.coordinators.append(_coordinator(context, request.key_type, key))
    return response


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    code, text = ErrorCode.NONE, None
    if key_type == TRANSACTION_KEY:
        if not context.is_allowed_to(Operation.DESCRIBE, ResourceKind.TRANSACTION, key):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif key_type != GROUP_KEY:
        code, text = ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served"
    elif not context.is_allowed(key):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        context.broker.groups.initial_delays.expect(key)
    if code:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text
        )
    owner = context.broker_address(context.broker.cluster.ownership.name_leader(key))
    if owner is None:
        code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator has not started yet"
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text
        )
    return Coordinator(
        key=key, node_id=owner.node_id, host=owner.host, port=owner.port, error_message=None
    )


# ---- join


def handle_join_group(
    context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | PromisedResponse[JoinResult]:
    """Join a group; the response follows when the rebalance is over."""
    if refusal := context.group_refusal(request.group_id):
        return _join_refused(context, request, refusal)
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if context.version < REBALANCE_TIMEOUT_SINCE:
        rebalance_timeout_ms = request.session_timeout_ms
    requested = JoinRequest(
        group=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.session.stream.peer[0]}",
        creator=context.creator,
        member_id_required=context.version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=context.version >= SKIP_ASSIGNMENT_SINCE,
    )
    promise = context.broker.groups.join(requested)
    return PromisedResponse(promise, lambda promise: _joined(context, request, promise))


def _joined(
    context: RequestContext, request: JoinGroupRequest, promise: Promise[JoinResult]
) -> JoinGroupResponse:
    problem = promise.error
    if problem is not None:
        response = _join_refused(context, request, to_error_code(problem))
        if isinstance(problem, MemberIdRequired):
            response.member_id = problem.member_id
        return response
    joined = promise.result()
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata,
            )
            for each in joined.members
        ],
    )


def _join_refused(
    context: RequestContext, request: JoinGroupRequest, code: ErrorCode
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if context.version >= NULL_PROTOCOL_SINCE else "",
        member_id=request.member_id,
    )


# ---- sync


def handle_sync_group(
    context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | PromisedResponse[SyncResult]:
    """Sync a group; the response follows when the leader has sent the assignment."""
    if refusal := context.group_refusal(request.group_id):
        return SyncGroupResponse(error_code=refusal)
    if context.version >= PROTOCOL_SINCE and None in {request.protocol_type, request.protocol_name}:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    promise = context.broker.groups.sync(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        assignments={each.member_id: each.assignment for each in request.assignments},
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    return PromisedResponse(promise, _synced)


def _synced(promise: Promise[SyncResult]) -> SyncGroupResponse:
    if promise.error is not None:
        return SyncGroupResponse(error_code=to_error_code(promise.error))
    synced = promise.result()
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


# ---- heartbeat, leave


def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep a member alive."""
    if refusal := context.group_refusal(request.group_id):
        return HeartbeatResponse(error_code=refusal)
    try:
        context.broker.groups.heartbeat(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
        )
    except BrokerError as problem:
        return HeartbeatResponse(error_code=to_error_code(problem))
    return HeartbeatResponse()


def handle_leave_group(
    context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | PromisedResponse[LeaveGroupResponse]:
    """Remove members; the response follows when they stay removed over a restart."""
    if refusal := context.group_refusal(request.group_id):
        return LeaveGroupResponse(error_code=refusal)
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if context.version < MANY_LEAVE_SINCE:
        code = _leave(context, request, request.member_id, None)
        response = LeaveGroupResponse(error_code=code)
    else:
        members = [_leaver(context, request, each) for each in request.members]
        response = LeaveGroupResponse(members=members)
    membership = context.broker.groups.membership
    if membership.is_durable:
        return response
    return PromisedResponse(membership.when_durable(Promise.resolved(response)), _left)


def _left(promise: Promise[LeaveGroupResponse]) -> LeaveGroupResponse:
    if promise.error is not None:
        return LeaveGroupResponse(error_code=to_error_code(promise.error))
    return promise.result()


def _leaver(
    context: RequestContext, request: LeaveGroupRequest, member: MemberIdentity
) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=_leave(context, request, member.member_id, member.group_instance_id),
    )


def _leave(
    context: RequestContext, request: LeaveGroupRequest, member_id: str, instance_id: str | None
) -> ErrorCode:
    try:
        context.broker.groups.leave(request.group_id, member_id, instance_id)
    except BrokerError as problem:
        return to_error_code(problem)
    return ErrorCode.NONE
