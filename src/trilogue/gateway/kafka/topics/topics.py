"""CreateTopics v0-v7 and DeleteTopics v0-v6.

Create: v1 validate_only, error messages · v4 -1 for the broker's default of partitions or
replication factor (accepted in every version) · v5 flexible, settings in the response · v7 topic
id. Delete: v4 flexible · v5 error messages · v6 topic ids.

A change holds once `meta` has recorded it. The recording goes on after the client's timeout or
disconnect: the result is then 7, as in Kafka. Creating needs CREATE on the topic or on the cluster.
Partitions created or deleted count against the mutation quota (KIP-599): from v6 and v5 on an
excess is refused (89).
"""

from __future__ import annotations

from collections import Counter

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import (
    AccessDenied,
    InvalidAssignment,
    InvalidName,
    InvalidRequest,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from trilogue.broker.names import TopicName, format_kafka, parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.settings.topic_settings import Change
from trilogue.broker.settings.topic_table import TABLE as SETTINGS
from trilogue.broker.topics.ownership import COPIES_MAX
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.configs.config_entries import TopicDefaults, topic_defaults, topic_value
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, set_error
from trilogue.gateway.kafka.metadata_changes import (
    check_named_topic,
    start_change,
    wait_for_all,
)
from trilogue.gateway.kafka.topics.replication import check_min_in_sync, check_replication_factor
from trilogue.gateway.steps import next_step, wait_until_settled
from trilogue.wire.kafka.codec.schema import ZERO_UUID
from trilogue.wire.kafka.topics.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

IDS_SINCE = 6
STRICT_CREATE_SINCE, STRICT_DELETE_SINCE = 6, 5  # KIP-599: an excess is an error
YIELD_EVERY = 50  # topics per loop iteration


# ---- create


async def handle_create_topics(
    context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create every valid topic."""
    mentioned = Counter(topic.name for topic in request.topics)
    defaults = topic_defaults(context.broker.values)
    results: dict[str, CreatableTopicResult] = {}
    waiting: list[tuple[CreatableTopicResult, Promise[Topic]]] = []
    for topic in request.topics:
        if topic.name in results:
            continue
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await next_step()
        try:
            check_named_topic(context, len(results), mentioned[topic.name])
            result, promise = _create(context, topic, defaults, validate_only=request.validate_only)
            if promise is not None:
                waiting.append((result, promise))
        except EXPECTED as problem:
            result = _create_error(topic.name, problem)
        results[topic.name] = result
    outcomes = await wait_for_all(context, [promise for _, promise in waiting], request.timeout_ms)
    for (result, promise), outcome in zip(waiting, outcomes, strict=True):
        if outcome is None:
            result.topic_id = promise.result().topic_id
        else:
            _set_create_error(result, outcome)
    return CreateTopicsResponse(topics=list(results.values()))


def _create(
    context: RequestContext, topic: CreatableTopic, defaults: TopicDefaults, *, validate_only: bool
) -> tuple[CreatableTopicResult, Promise[Topic] | None]:
    name = parse_kafka(topic.name)
    _check_create(context, name)
    cluster = context.broker.cluster
    new = cluster.check_create(
        name,
        partition_count=topic.num_partitions,
        replication_factor=check_replication_factor(context, topic.name, topic.replication_factor),
        assignment=_assignment(topic),
        settings=_requested_settings(context, topic),
    )
    context.gateway.name_collisions.check(name)
    result = CreatableTopicResult(
        name=topic.name,
        num_partitions=new.partition_count,
        replication_factor=min(COPIES_MAX, cluster.ownership.copies_max),
        configs=_settings(new.settings, defaults),
        error_message=None,
    )
    if validate_only:
        return result, None
    context.count_mutations(new.partition_count, strict=context.version >= STRICT_CREATE_SINCE)
    return result, start_change(context, cluster.plan_create(new))


def _requested_settings(context: RequestContext, topic: CreatableTopic) -> dict[str, str | None]:
    changes = ((each.name, Change.SET, each.value) for each in topic.configs)
    return {key: value for key, _, value in check_min_in_sync(context, topic.name, changes)}


def _assignment(topic: CreatableTopic) -> dict[int, list[int]] | None:
    found = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(found) < len(topic.assignments):
        raise InvalidAssignment("an assignment names a partition more than once")
    return found or None


def _check_create(context: RequestContext, name: TopicName) -> None:
    cluster = context.can_see(Operation.CREATE, ResourceKind.CLUSTER, "cluster")
    if not cluster and not context.is_allowed_to(Operation.CREATE, ResourceKind.TOPIC, name):
        raise AccessDenied(Operation.CREATE, Resource(ResourceKind.TOPIC, str(name)))


def _settings(given: dict[str, str], defaults: TopicDefaults) -> list[CreatableTopicConfigs]:
    found = []
    for row in SETTINGS.values():
        value, source = topic_value(row, given, defaults)
        found.append(
            CreatableTopicConfigs(
                name=row.key, value=value, read_only=row.is_read_only, config_source=source
            )
        )
    return found


def _create_error(name: str, problem: BaseException) -> CreatableTopicResult:
    result = CreatableTopicResult(name=name, error_message=None)
    _set_create_error(result, problem)
    return result


def _set_create_error(result: CreatableTopicResult, problem: BaseException) -> None:
    set_error(result, problem)
    if isinstance(problem, TopicExists):
        result.error_message = f"Topic '{result.name}' already exists."  # scripts look for it
    result.num_partitions = result.replication_factor = -1
    result.configs = []


# ---- delete


async def handle_delete_topics(
    context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete every topic that may be deleted."""
    requested = request.topics
    if context.version < IDS_SINCE:
        requested = [DeleteTopicState(name=name) for name in request.topic_names]
    mentioned = Counter((each.name, each.topic_id) for each in requested)
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    waiting: list[tuple[DeletableTopicResult, Promise[None]]] = []
    for each in requested:
        key = each.name, each.topic_id
        if key in results:
            continue
        result = DeletableTopicResult(name=each.name, topic_id=each.topic_id)
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await next_step()
        try:
            check_named_topic(context, len(results), mentioned[key])
            topic = await _find_settled_topic(context, each)
            result.name = each.name or format_kafka(topic.name)
            result.topic_id = topic.topic_id
            context.count_mutations(
                len(topic.partitions), strict=context.version >= STRICT_DELETE_SINCE
            )
            waiting.append(
                (result, start_change(context, context.broker.cluster.plan_delete(topic.name)))
            )
        except EXPECTED as problem:
            set_error(result, problem)
        results[key] = result
    outcomes = await wait_for_all(context, [promise for _, promise in waiting], request.timeout_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            set_error(result, outcome)
    return DeleteTopicsResponse(responses=list(results.values()))


async def _find_settled_topic(context: RequestContext, requested: DeleteTopicState) -> Topic:
    """Return the topic once no change of its settings is in progress."""
    topic = _find_topic(context, requested)
    while (pending := context.broker.cluster.pending_change(topic.name)) is not None:
        await wait_until_settled(pending)
        topic = _find_topic(context, requested)
    return topic


def _find_topic(context: RequestContext, requested: DeleteTopicState) -> Topic:
    """Return the topic to delete, without revealing one that the client may not describe."""
    by_id = requested.topic_id != ZERO_UUID
    if by_id == (requested.name is not None):
        raise InvalidRequest("a topic is named by its name or by its id")
    cluster = context.broker.cluster
    topic: Topic | None
    if requested.name is not None:
        try:
            name = parse_kafka(requested.name)
        except InvalidName as error:
            raise UnknownTopic("no topic can have this name") from error
        topic = cluster.find_topic(name)
    else:
        topic = cluster.topic_by_id(requested.topic_id)
        name = topic.name
        if not context.is_allowed_to(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            raise UnknownTopicId("no topic has this id")
    if not context.is_allowed(name):
        raise AccessDenied(Operation.DELETE, Resource(ResourceKind.TOPIC, str(name)))
    return topic if topic is not None else cluster.topic(name)
