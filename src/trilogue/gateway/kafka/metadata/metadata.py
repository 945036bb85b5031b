"""Metadata v0-v13: brokers, topics and partitions; automatic topic creation.

v1 null = all topics (v0: empty = all) · v2 cluster id · v4 allow_auto_topic_creation · v5 offline
replicas · v7 leader epochs · v8 authorized operations · v9 flexible · v12 topic ids · v13 top-level
error.

This node is the only broker, the controller, and the leader of every partition. A missing topic is
created if the client and the node's settings allow it and the client may CREATE; the response waits
for it, so that no client needs a second request. A topic that the client may not DESCRIBE is left
out of "all topics", and is 29 if requested by name.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName, TopicExists
from trilogue.broker.names import (
    INTERNAL_TOPICS,
    TopicName,
    format_kafka,
    is_kafka_name,
    parse_kafka,
)
from trilogue.broker.promise import Promise
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.authorized_operations import NOT_REQUESTED, authorized_operations
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.metadata.encoded_topics import assemble, encode_topic
from trilogue.gateway.kafka.metadata_changes import start_change
from trilogue.gateway.reply_queue import BufferedReply
from trilogue.gateway.steps import begin_steps, next_step, run_in_turns, wait_until_settled
from trilogue.log.steps import Steps
from trilogue.wire.kafka.codec.schema import ZERO_UUID
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

INTERNAL_NAMES = frozenset(map(format_kafka, INTERNAL_TOPICS))
AUTO_CREATE_TIMEOUT_S = 10.0
CLUSTER_OPERATIONS = (8, 10)
TOPICS_PER_STEP = 500  # 1 ms
CREATED_PER_STEP = 50
IDS_SINCE = 12


def handle_metadata(
    context: RequestContext, request: MetadataRequest
) -> BufferedReply | Coroutine[Any, Any, BufferedReply]:
    """Describe the requested topics; only creating topics takes time, and other nodes' changes."""
    if context.gateway.catch_up is not None:
        return _describe_later(context, request, context.gateway.catch_up)
    return _describe(context, request)


async def _describe_later(
    context: RequestContext, request: MetadataRequest, catch_up: Callable[[], Awaitable[None]]
) -> BufferedReply:
    await catch_up()
    reply = _describe(context, request)
    return reply if isinstance(reply, BufferedReply) else await reply


def _describe(
    context: RequestContext, request: MetadataRequest
) -> BufferedReply | Coroutine[Any, Any, BufferedReply]:
    every = request.topics is None or (context.version == 0 and not request.topics)
    if every:
        topics = [
            topic
            for topic in context.broker.cluster
            if context.can_see(context.operation, ResourceKind.TOPIC, topic.name)
            and is_kafka_name(topic.name)
        ]
        return begin_steps(_describe_all(context, request, topics))
    missing, refused = _find_missing(context, request)
    if not missing:
        return _start_steps(context, request, refused)
    return _create(context, request, missing, refused)


def _find_missing(
    context: RequestContext, request: MetadataRequest
) -> tuple[dict[str, TopicName], dict[str, ErrorCode]]:
    """Return the missing topics that may be created, up to the limit of one request.

    Those that the client may not create are in the other result, with the error for them.
    An internal topic is created for each client that may read it.
    """
    creates = request.allow_auto_topic_creation and context.gateway.settings.auto_create_topics
    found: dict[str, TopicName] = {}
    refused: dict[str, ErrorCode] = {}
    for each in request.topics or ():
        if each.name is None or each.topic_id != ZERO_UUID:
            continue
        if not creates and each.name not in INTERNAL_NAMES:
            continue
        try:
            name = parse_kafka(each.name)
        except InvalidName:
            continue
        if name in INTERNAL_TOPICS:
            if context.broker.cluster.find_topic(name) is None and context.is_allowed_to(
                Operation.READ, ResourceKind.TOPIC, name
            ):
                found[each.name] = name
        elif (
            creates
            and context.broker.cluster.find_topic(name) is None
            and context.broker.namespaces.namespace_policies(
                name.namespace_name
            ).auto_creation.allowed
            and context.can_see(context.operation, ResourceKind.TOPIC, name)
        ):
            if not _is_creation_allowed(context, name):
                refused[each.name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            found[each.name] = name
            if len(found) >= context.gateway.settings.auto_create_per_request_max:
                break
    return found, refused


def _is_creation_allowed(context: RequestContext, name: TopicName) -> bool:
    return context.can_see(
        Operation.CREATE, ResourceKind.CLUSTER, "cluster"
    ) or context.is_allowed_to(Operation.CREATE, ResourceKind.TOPIC, name)


async def _create(
    context: RequestContext,
    request: MetadataRequest,
    missing: dict[str, TopicName],
    refused: dict[str, ErrorCode],
) -> BufferedReply:
    """Create missing topics, wait also for those in creation, then respond."""
    cluster = context.broker.cluster
    promises: dict[str, Promise[Topic]] = {}
    for count, (spelled, name) in enumerate(missing.items(), 1):
        if count % CREATED_PER_STEP == 0:
            await next_step()
        in_creation = cluster.pending_creation(name)
        try:
            promises[spelled] = in_creation or _start_creation(context, name)
        except BrokerError as problem:
            refused[spelled] = to_error_code(problem)
    try:
        async with asyncio.timeout(AUTO_CREATE_TIMEOUT_S):
            for promise in promises.values():
                await wait_until_settled(promise)
    except TimeoutError:
        pass
    if context.gateway.catch_up is not None and any(
        isinstance(each.error, TopicExists) for each in promises.values() if each.done
    ):
        await context.gateway.catch_up()  # another node created it first
    for spelled, promise in promises.items():
        if not promise.done:
            refused[spelled] = ErrorCode.LEADER_NOT_AVAILABLE
        elif promise.error is not None:
            refused[spelled] = to_error_code(promise.error)
    return await run_in_turns(_describe_requested(context, request, refused))


def _start_creation(context: RequestContext, name: TopicName) -> Promise[Topic]:
    cluster = context.broker.cluster
    new = cluster.check_create(name)
    context.gateway.name_collisions.check(name)
    return start_change(context, cluster.plan_create(new))


def _describe_all(
    context: RequestContext, request: MetadataRequest, topics: list[Topic]
) -> Steps[BufferedReply]:
    """Describe all topics in steps; one deleted meanwhile is still described."""
    rows: list[bytes] = []
    for topic in topics:
        rows.append(_encode_known(context, request, topic, format_kafka(topic.name)))
        if len(rows) % TOPICS_PER_STEP == 0:
            yield
    return _respond(context, request, rows)


def _start_steps(
    context: RequestContext, request: MetadataRequest, refused: dict[str, ErrorCode]
) -> BufferedReply | Coroutine[Any, Any, BufferedReply]:
    return begin_steps(_describe_requested(context, request, refused))


def _describe_requested(
    context: RequestContext, request: MetadataRequest, refused: dict[str, ErrorCode]
) -> Steps[BufferedReply]:
    """Describe the requested topics in steps."""
    requested = {(each.name, each.topic_id): each for each in request.topics or ()}
    rows: list[bytes] = []
    for each in requested.values():
        rows.append(_encode_requested(context, request, each, refused))
        if len(rows) % TOPICS_PER_STEP == 0:
            yield
    return _respond(context, request, rows)


def _encode_requested(
    context: RequestContext,
    request: MetadataRequest,
    requested: MetadataRequestTopic,
    refused: dict[str, ErrorCode],
) -> bytes:
    """Encode one topic, by its id if the request has one, else by name."""
    try:
        if requested.name is None or requested.topic_id != ZERO_UUID:
            if context.version < IDS_SINCE:
                return _encode_error(context, requested, ErrorCode.INVALID_REQUEST)
            topic = context.gateway.topic_by_id(requested.topic_id)
            if not context.is_allowed(topic.name):
                return _encode_error(context, requested, ErrorCode.UNKNOWN_TOPIC_ID)
            return _encode_known(context, request, topic, format_kafka(topic.name))
        if not context.is_allowed(parse_kafka(requested.name)):
            return _encode_error(context, requested, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _encode_known(
            context, request, context.gateway.topic(requested.name), requested.name
        )
    except BrokerError as problem:
        return _encode_error(
            context, requested, refused.get(requested.name or "", to_error_code(problem))
        )


def _encode_error(
    context: RequestContext, requested: MetadataRequestTopic, code: ErrorCode
) -> bytes:
    by_id = code == ErrorCode.UNKNOWN_TOPIC_ID
    topic = MetadataResponseTopic(
        error_code=code,
        name=None if by_id else requested.name or "",
        topic_id=requested.topic_id,
    )
    return encode_topic(context.version, topic)


def _encode_known(
    context: RequestContext, request: MetadataRequest, topic: Topic, spelled: str
) -> bytes:
    if not request.include_topic_authorized_operations:
        make = partial(_describe_topic, context, topic, spelled)
        generation = context.broker.cluster.ownership.generation
        return context.gateway.encoded_topics.encode(
            context.version, spelled, topic, make, generation
        )
    row = _describe_topic(context, topic, spelled)
    row.topic_authorized_operations = authorized_operations(context, ResourceKind.TOPIC, topic.name)
    return encode_topic(context.version, row)


def _describe_topic(context: RequestContext, topic: Topic, spelled: str) -> MetadataResponseTopic:
    ownership = context.broker.cluster.ownership
    leader_of, copies = ownership.partition_leader, ownership.copies_by_owner()
    owned = [(partition, leader_of(partition.partition_id)) for partition in topic.partitions]
    return MetadataResponseTopic(
        name=spelled,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=owner,
                leader_epoch=partition.owner_epoch,
                replica_nodes=copies[owner],
                isr_nodes=copies[owner],
            )
            for index, (partition, owner) in enumerate(owned)
        ],
        topic_authorized_operations=NOT_REQUESTED,
    )


def _respond(
    context: RequestContext, request: MetadataRequest, topics: list[bytes]
) -> BufferedReply:
    cluster = context.broker.cluster
    first, last = CLUSTER_OPERATIONS
    requested = request.include_cluster_authorized_operations and first <= context.version <= last
    response = MetadataResponse(
        throttle_time_ms=context.throttle_ms,
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port)
            for each in context.brokers()
        ],
        cluster_id=cluster_id_text(cluster.cluster_id),
        controller_id=cluster.node_id,
        cluster_authorized_operations=authorized_operations(
            context, ResourceKind.CLUSTER, "cluster"
        )
        if requested
        else NOT_REQUESTED,
    )
    return BufferedReply([assemble(context.version, context.correlation_id, response, topics)])


def cluster_id_text(cluster_id: bytes) -> str:
    """Return the cluster id as Kafka writes ids: 22 characters of base64."""
    return urlsafe_b64encode(cluster_id).decode().rstrip("=")
