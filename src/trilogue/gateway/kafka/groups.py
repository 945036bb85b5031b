"""FindCoordinator v0-v6, JoinGroup v0-v9, SyncGroup v0-v5, Heartbeat v0-v4, LeaveGroup v0-v5.

The rules of membership are the broker's (broker/group.py); here only words change. FindCoordinator:
this node coordinates every group and would coordinate every transaction (key type 1), so that who
asks is told by it what it has (DescribeTransactions: none, 105) and does not do (InitProducerId
with a transactional id: 42); other kinds are error 42; v4+ asks for many keys. JoinGroup: v1
rebalance timeout (before: the session's) · v4 new members are told an id first (79) · v5 static
members · v7 protocol type · v9 the leader may skip assigning. SyncGroup: v3 static members · v5 the
protocol is checked. LeaveGroup v3+ lets many members go at once.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, MemberIdRequired
from trilogue.broker.group_members import Joined, JoinRequest, Synced
from trilogue.broker.promise import Promise
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call, Mapped
from trilogue.gateway.turns import at_once_or_in_turns
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups import (
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
KEYS_AT_ONCE = 500  # of FindCoordinator, before others have a turn
REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_SINCE = 5
MANY_LEAVE_SINCE = 3


# ---- find coordinator


def find_coordinator(
    call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Say that it is us, for groups and transactions."""
    if call.version >= MANY_KEYS_SINCE:
        return at_once_or_in_turns(_coordinators(call, request))
    found = _coordinator(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinators(call: Call, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    """Some keys in a step: tools ask for all groups of a cluster at once."""
    response = FindCoordinatorResponse()
    for number, key in enumerate(request.coordinator_keys, 1):
        if number % KEYS_AT_ONCE == 0:
            yield
        response.coordinators.append(_coordinator(call, request.key_type, key))
    return response


def _coordinator(call: Call, key_type: int, key: str) -> Coordinator:
    code, text = ErrorCode.NONE, None
    if key_type == TRANSACTION_KEY:
        if not call.may(Operation.DESCRIBE, ResourceKind.TRANSACTION, key):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif key_type != GROUP_KEY:
        code, text = ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served"
    elif not call.allowed(key):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        call.broker.groups.newcomers.expect(key)
    if code:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text
        )
    host, port = call.door.advertised()
    node_id = call.broker.cluster.node_id
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message=None)


# ---- join


def join(call: Call, request: JoinGroupRequest) -> JoinGroupResponse | Mapped[Joined]:
    """Let a member in; answered when the rebalance is over."""
    if not call.allowed(request.group_id):
        return _join_refused(call, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if call.version < REBALANCE_TIMEOUT_SINCE:
        rebalance_timeout_ms = request.session_timeout_ms
    asked = JoinRequest(
        group=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.session.stream.peer[0]}",
        member_id_required=call.version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
    )
    promise = call.broker.groups.join(asked)
    return Mapped(promise, lambda promise: _joined(call, request, promise))


def _joined(call: Call, request: JoinGroupRequest, promise: Promise[Joined]) -> JoinGroupResponse:
    problem = promise.error
    if problem is not None:
        response = _join_refused(call, request, code_of(problem))
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


def _join_refused(call: Call, request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if call.version >= NULL_PROTOCOL_SINCE else "",
        member_id=request.member_id,
    )


# ---- sync


def sync(call: Call, request: SyncGroupRequest) -> SyncGroupResponse | Mapped[Synced]:
    """Take or give the assignment; answered when the leader has brought it."""
    if not call.allowed(request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if call.version >= PROTOCOL_SINCE and None in {request.protocol_type, request.protocol_name}:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    promise = call.broker.groups.sync(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        assignments={each.member_id: each.assignment for each in request.assignments},
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    return Mapped(promise, _synced)


def _synced(promise: Promise[Synced]) -> SyncGroupResponse:
    if promise.error is not None:
        return SyncGroupResponse(error_code=code_of(promise.error))
    synced = promise.result()
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


# ---- heartbeat, leave


def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Hear that a member lives."""
    if not call.allowed(request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        call.broker.groups.heartbeat(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
        )
    except BrokerError as problem:
        return HeartbeatResponse(error_code=code_of(problem))
    return HeartbeatResponse()


def leave(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Let members go."""
    if not call.allowed(request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if call.version < MANY_LEAVE_SINCE:
        return LeaveGroupResponse(error_code=_leave(call, request, request.member_id, None))
    return LeaveGroupResponse(members=[_leaver(call, request, each) for each in request.members])


def _leaver(call: Call, request: LeaveGroupRequest, member: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=_leave(call, request, member.member_id, member.group_instance_id),
    )


def _leave(
    call: Call, request: LeaveGroupRequest, member_id: str, instance_id: str | None
) -> ErrorCode:
    try:
        call.broker.groups.leave(request.group_id, member_id, instance_id)
    except BrokerError as problem:
        return code_of(problem)
    return ErrorCode.NONE
