"""ConsumerGroupHeartbeat v0-v1: membership of KIP-848, where the broker assigns.

The rules are the broker's (broker/consumer_group.py); here only words change, and what contradicts
itself is refused in Kafka's words (error 42), in the order in which Kafka 4.3.1 looks at it. v0: a
member without an id is given one · v1: clients make their own ids, and patterns of topic names.

Each topic named wants DESCRIBE besides the group's READ, as in Kafka 4; what a pattern matches and
the member may not describe is left out.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.consumer_group import Beat, Beaten
from trilogue.broker.consumer_group_assignors import Parts
from trilogue.broker.consumer_group_members import AWAY, JOINING, LEAVING
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from trilogue.wire.kafka.errors import ErrorCode

OWN_IDS_SINCE = 1
ID_SIZE = 16  # random bytes of a member id


def heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Hear a member and tell it what it may have."""
    if not call.allowed(request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    problem = _contradiction(call, request)
    if problem is not None:
        return _refused(ErrorCode.INVALID_REQUEST, problem)
    topics = None if request.subscribed_topic_names is None else _names(request)
    denied = topics and any(not _may_see(call, name) for name in topics)
    if denied:
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    beat = Beat(
        group=request.group_id,
        member_id=request.member_id or _new_id(),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=topics,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request),
        client_id=call.client_id or "",
        client_host=f"/{call.session.stream.peer[0]}",
        may_see=lambda name: _may_see(call, name),
    )
    try:
        beaten = call.broker.consumer_groups.beat(beat)
    except BrokerError as refusal:
        return _refused(code_of(refusal), str(refusal))
    return _answer(beaten)


def _answer(beaten: Beaten) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_id=beaten.member_id,
        member_epoch=beaten.epoch,
        heartbeat_interval_ms=beaten.heartbeat_interval_ms,
        assignment=None
        if beaten.has is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in beaten.has.items()
            ]
        ),
    )


def _refused(code: ErrorCode, text: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=text)


def _contradiction(call: Call, request: ConsumerGroupHeartbeatRequest) -> str | None:
    """What no member may say, in Kafka's words; None when there is nothing of it."""
    epoch = request.member_epoch
    if not request.member_id and (call.version >= OWN_IDS_SINCE or epoch != JOINING):
        return "MemberId is empty"
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} is empty"
    if epoch == AWAY:
        return "who goes for a while says its InstanceId" if request.instance_id is None else None
    if epoch == JOINING:
        return _half_a_join(request)
    return None if epoch > JOINING or epoch == LEAVING else f"no member has the epoch {epoch}"


def _half_a_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "who joins says its RebalanceTimeoutMs"
    if request.topic_partitions is None or request.topic_partitions:
        return "who joins has no partitions yet: TopicPartitions is to be an empty list"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "who joins says what it reads: SubscribedTopicNames or SubscribedTopicRegex"
    return None


def _names(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicName]:
    """The topics named, without names that no topic can have."""
    found = []
    for spelled in request.subscribed_topic_names or ():
        try:
            found.append(parse_kafka(spelled))
        except InvalidName:
            continue
    return frozenset(found)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Parts | None:
    if request.topic_partitions is None:
        return None
    return {
        each.topic_id: frozenset(each.partitions)
        for each in request.topic_partitions
        if each.partitions
    }


def _may_see(call: Call, name: TopicName) -> bool:
    return call.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)


def _new_id() -> str:
    return urlsafe_b64encode(secrets.token_bytes(ID_SIZE)).decode().rstrip("=")
