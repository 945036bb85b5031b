"""ShareGroupHeartbeat v1: membership of share groups (KIP-932).

The rules are in broker/groups/share/group.py; this module translates. A contradictory request is
refused with 42. Each topic in the request needs DESCRIBE besides the group's READ.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, LEAVE_EPOCH
from trilogue.broker.groups.share.members import ShareHeartbeat, ShareHeartbeatResponse
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.groups.heartbeat_response import respond_when_durable
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.share import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareHeartbeatAssignment,
    ShareHeartbeatTopicPartitions,
)


def handle_share_group_heartbeat(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | PromisedResponse[ShareHeartbeatResponse]:
    """Process a heartbeat; returns the member's epoch and assignment, once they are durable."""
    if code := context.group_refusal(request.group_id):
        return _error_response(code)
    problem = _find_problem(request)
    if problem is not None:
        return _error_response(ErrorCode.INVALID_REQUEST, problem)
    topics = _subscribed_topics(request)
    for name in topics or ():
        if not context.is_allowed_to(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            return _error_response(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heartbeat = ShareHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack=request.rack_id,
        topics=topics,
        client_id=context.client_id or "",
        client_host=f"/{context.session.stream.peer[0]}",
        creator=context.creator,
    )
    try:
        response = context.broker.share_groups.heartbeat(heartbeat)
    except BrokerError as refusal:
        return _error_response(to_error_code(refusal), str(refusal))
    return respond_when_durable(context, response, _heartbeat_response, _error_response)


def _heartbeat_response(response: ShareHeartbeatResponse) -> ShareGroupHeartbeatResponse:
    assignment = None
    if response.assigned is not None:
        assignment = ShareHeartbeatAssignment(
            topic_partitions=[
                ShareHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in response.assigned.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=assignment,
    )


def _error_response(code: ErrorCode, text: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=text)


def _find_problem(request: ShareGroupHeartbeatRequest) -> str | None:
    """Return what is contradictory in the request, as Kafka words it, or None."""
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if not request.member_id.strip():
        return "MemberId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    if request.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def _subscribed_topics(request: ShareGroupHeartbeatRequest) -> frozenset[TopicName] | None:
    """Return the subscribed topics, without invalid names; None: as before."""
    if request.subscribed_topic_names is None:
        return None
    found = []
    for spelled in request.subscribed_topic_names:
        try:
            found.append(parse_kafka(spelled))
        except InvalidName:
            continue
    return frozenset(found)
