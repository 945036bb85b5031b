"""Metadata v0-v13: brokers, topics, partitions; topics that are mentioned come to be.

v1 null = all topics (v0: empty = all) · v2 cluster id · v4 allow_auto_topic_creation · v5 offline
replicas · v7 leader epochs · v8 authorized operations · v9 flexible · v12 topics by id · v13
top-level error.

This node leads every partition, is the controller, and is the only broker. A topic that does not
exist is made when the client allows it, the node's settings do, and the caller may CREATE; the
answer then waits for it, so that no client needs a second try. A topic that the caller may not
DESCRIBE is left out of "all topics" and is 29 when asked for by name.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Coroutine
from functools import partial
from typing import Any

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.names import TopicName, kafka_can_spell, parse_kafka, spelled_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.access import NOT_ASKED, operations
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.metadata_rows import assemble, encode_topic
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import carry_out, kept
from trilogue.gateway.session import Said
from trilogue.gateway.turns import at_once_or_in_turns, in_turns
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from trilogue.wire.kafka.schema import ZERO_UUID

AUTO_CREATE_TIMEOUT_S = 10.0
CLUSTER_OPERATIONS = (8, 10)
AT_ONCE = 500  # topics that are told before others have a turn: 1 ms
CREATE_AT_ONCE = 50
IDS_SINCE = 12


def handle(call: Call, request: MetadataRequest) -> Said | Coroutine[Any, Any, Said]:
    """Tell what is asked for; only making topics takes time."""
    every = request.topics is None or (call.version == 0 and not request.topics)
    if every:
        topics = [
            topic
            for topic in call.broker.cluster
            if call.allowed(topic.name) and kafka_can_spell(topic.name)
        ]
        return at_once_or_in_turns(_tell_all(call, request, topics))
    if not request.allow_auto_topic_creation or not call.door.settings.auto_create_topics:
        return _answer(call, request, {})
    missing = _missing(call, request)
    if not missing:
        return _answer(call, request, {})
    return _create(call, request, missing)


def _missing(call: Call, request: MetadataRequest) -> dict[str, TopicName]:
    """Names that no topic has and one may be made for, as many as one request may make."""
    found: dict[str, TopicName] = {}
    for each in request.topics or ():
        if each.name is None or each.topic_id != ZERO_UUID:
            continue
        try:
            name = parse_kafka(each.name)
        except InvalidName:
            continue
        if (
            call.broker.cluster.find(name) is None
            and call.broker.namespaces.policies_of(name.home).auto_creation.allowed
            and call.allowed(name)
            and _may_create(call, name)
        ):
            found[each.name] = name
            if len(found) >= call.door.settings.auto_create_per_request_max:
                break
    return found


def _may_create(call: Call, name: TopicName) -> bool:
    return call.may(Operation.CREATE, ResourceKind.CLUSTER, "cluster") or call.may(
        Operation.CREATE, ResourceKind.TOPIC, name
    )


async def _create(call: Call, request: MetadataRequest, missing: dict[str, TopicName]) -> Said:
    """Make what is missing, wait for what others are making, then answer."""
    cluster = call.broker.cluster
    promises: dict[str, Promise[Topic]] = {}
    refused: dict[str, ErrorCode] = {}
    for count, (spelled, name) in enumerate(missing.items(), 1):
        if count % CREATE_AT_ONCE == 0:
            await asyncio.sleep(0)
        coming = cluster.creating(name)
        try:
            promises[spelled] = (
                carry_out(call, cluster.plan_create(cluster.check_create(name)))
                if coming is None
                else coming
            )
        except BrokerError as problem:
            refused[spelled] = code_of(problem)
    try:
        async with asyncio.timeout(AUTO_CREATE_TIMEOUT_S):
            for promise in promises.values():
                await kept(call, promise)
    except TimeoutError:
        pass
    for spelled, promise in promises.items():
        if not promise.done:
            refused[spelled] = ErrorCode.LEADER_NOT_AVAILABLE
        elif promise.error is not None:
            refused[spelled] = code_of(promise.error)
    return await in_turns(_tell(call, request, refused))


def _tell_all(call: Call, request: MetadataRequest, topics: list[Topic]) -> Steps[Said]:
    """All topics, some in a step; one that goes meanwhile is told all the same."""
    rows: list[bytes] = []
    for topic in topics:
        rows.append(_known(call, request, topic, spelled_kafka(topic.name)))
        if len(rows) % AT_ONCE == 0:
            yield
    return _respond(call, request, rows)


def _answer(
    call: Call, request: MetadataRequest, refused: dict[str, ErrorCode]
) -> Said | Coroutine[Any, Any, Said]:
    return at_once_or_in_turns(_tell(call, request, refused))


def _tell(call: Call, request: MetadataRequest, refused: dict[str, ErrorCode]) -> Steps[Said]:
    """What was asked for, some topics in a step."""
    asked = {(each.name, each.topic_id): each for each in request.topics or ()}
    rows: list[bytes] = []
    for each in asked.values():
        rows.append(_asked(call, request, each, refused))
        if len(rows) % AT_ONCE == 0:
            yield
    return _respond(call, request, rows)


def _asked(
    call: Call,
    request: MetadataRequest,
    asked: MetadataRequestTopic,
    refused: dict[str, ErrorCode],
) -> bytes:
    """One topic by its id if it has one, else by name."""
    try:
        if asked.name is None or asked.topic_id != ZERO_UUID:
            if call.version < IDS_SINCE:
                return _error(call, asked, ErrorCode.INVALID_REQUEST)
            topic = call.door.topic_by_id(asked.topic_id)
            if not call.allowed(topic.name):
                return _error(call, asked, ErrorCode.UNKNOWN_TOPIC_ID)
            return _known(call, request, topic, spelled_kafka(topic.name))
        if not call.allowed(parse_kafka(asked.name)):
            return _error(call, asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _known(call, request, call.door.topic(asked.name), asked.name)
    except BrokerError as problem:
        return _error(call, asked, refused.get(asked.name or "", code_of(problem)))


def _error(call: Call, asked: MetadataRequestTopic, code: ErrorCode) -> bytes:
    by_id = code == ErrorCode.UNKNOWN_TOPIC_ID
    topic = MetadataResponseTopic(
        error_code=code,
        name=None if by_id else asked.name or "",
        topic_id=asked.topic_id,
    )
    return encode_topic(call.version, topic)


def _known(call: Call, request: MetadataRequest, topic: Topic, spelled: str) -> bytes:
    if not request.include_topic_authorized_operations:
        make = partial(_row, call, topic, spelled)
        return call.door.metadata_rows.row(call.version, spelled, topic, make)
    row = _row(call, topic, spelled)
    row.topic_authorized_operations = operations(call, ResourceKind.TOPIC, topic.name)
    return encode_topic(call.version, row)


def _row(call: Call, topic: Topic, spelled: str) -> MetadataResponseTopic:
    node_id = call.broker.cluster.node_id
    nodes = [node_id]
    return MetadataResponseTopic(
        name=spelled,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=node_id,
                leader_epoch=partition.owner_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=NOT_ASKED,
    )


def _respond(call: Call, request: MetadataRequest, topics: list[bytes]) -> Said:
    cluster = call.broker.cluster
    host, port = call.door.advertised()
    first, last = CLUSTER_OPERATIONS
    asked = request.include_cluster_authorized_operations and first <= call.version <= last
    response = MetadataResponse(
        throttle_time_ms=call.throttle_ms,
        brokers=[MetadataResponseBroker(node_id=cluster.node_id, host=host, port=port)],
        cluster_id=cluster_id_text(cluster.cluster_id),
        controller_id=cluster.node_id,
        cluster_authorized_operations=operations(call, ResourceKind.CLUSTER, "cluster")
        if asked
        else NOT_ASKED,
    )
    return Said([assemble(call.version, call.correlation_id, response, topics)])


def cluster_id_text(cluster_id: bytes) -> str:
    """The cluster's id as Kafka writes ids: 22 characters of base64."""
    return urlsafe_b64encode(cluster_id).decode().rstrip("=")
