"""ConsumerGroupHeartbeat v0-v1: membership of KIP-848 groups, where the broker assigns.

The rules are in broker/groups/consumer/group.py; this module translates. A contradictory request is
refused with 42, in Kafka 4.3.1's order of checks. v0: a member without an id gets one · v1: clients
make their own ids, regular expressions of topic names.

Each topic in the request needs DESCRIBE besides the group's READ, as in Kafka 4. Topics that match
a regular expression and lack it are left out.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.groups.consumer.assignors import PartitionIndexes
from trilogue.broker.groups.consumer.group import Heartbeat, HeartbeatResponse
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.groups.heartbeat_response import respond_when_durable
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.consumer import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

OWN_IDS_SINCE = 1
ID_SIZE = 16  # random bytes of a member id


def handle_consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | PromisedResponse[HeartbeatResponse]:
    """Process a heartbeat; returns the member's epoch and assignment, once they are durable."""
    if code := context.group_refusal(request.group_id):
        return _error_response(code)
    problem = _find_contradiction(context, request)
    if problem is not None:
        return _error_response(ErrorCode.INVALID_REQUEST, problem)
    topics = None if request.subscribed_topic_names is None else _subscribed_topics(request)
    denied = topics and any(not _is_visible(context, name) for name in topics)
    if denied:
        return _error_response(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heartbeat = Heartbeat(
        group=request.group_id,
        member_id=request.member_id or _new_id(),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=topics,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned_partitions(request),
        client_id=context.client_id or "",
        client_host=f"/{context.session.stream.peer[0]}",
        creator=context.creator,
        may_see=lambda name: _is_visible(context, name),
    )
    try:
        response = context.broker.consumer_groups.heartbeat(heartbeat)
    except BrokerError as refusal:
        return _error_response(to_error_code(refusal), str(refusal))
    return respond_when_durable(context, response, _heartbeat_response, _error_response)


def _heartbeat_response(response: HeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=None
        if response.assigned is None
        else HeartbeatAssignment(
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in response.assigned.items()
            ]
        ),
    )


def _error_response(code: ErrorCode, text: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=text)


def _find_contradiction(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> str | None:
    """Return what is contradictory in the request, as Kafka words it, or None."""
    epoch = request.member_epoch
    if not request.member_id and (context.version >= OWN_IDS_SINCE or epoch != JOIN_EPOCH):
        return "MemberId is empty"
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} is empty"
    if epoch == STATIC_LEAVE_EPOCH:
        return (
            "InstanceId is null in a static member's leave" if request.instance_id is None else None
        )
    if epoch == JOIN_EPOCH:
        return _find_join_problem(request)
    return (
        None if epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH else f"MemberEpoch is invalid: {epoch}"
    )


def _find_join_problem(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in the first request"
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when joining"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be provided in the first request"
    return None


def _subscribed_topics(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicName]:
    """Return the subscribed topics, without invalid names."""
    found = []
    for spelled in request.subscribed_topic_names or ():
        try:
            found.append(parse_kafka(spelled))
        except InvalidName:
            continue
    return frozenset(found)


def _owned_partitions(request: ConsumerGroupHeartbeatRequest) -> PartitionIndexes | None:
    if request.topic_partitions is None:
        return None
    return {
        each.topic_id: frozenset(each.partitions)
        for each in request.topic_partitions
        if each.partitions
    }


def _is_visible(context: RequestContext, name: TopicName) -> bool:
    return context.is_allowed_to(Operation.DESCRIBE, ResourceKind.TOPIC, name)


def _new_id() -> str:
    return urlsafe_b64encode(secrets.token_bytes(ID_SIZE)).decode().rstrip("=")
