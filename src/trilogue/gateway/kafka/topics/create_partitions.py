"""CreatePartitions v0-v3: add partitions to topics.

v1, v3 unchanged · v2 flexible. Each topic has its own result: 3 no such topic; 37 a count that is
no increase, too large, or of a topic without numbered partitions; 39 assignments other than one per
new partition to this node. Existing partitions keep their indexes and records. Pulsar subscriptions
of the topic get the new partitions before the response, at all nodes. The change goes on after the
client's timeout (7). New partitions count against the mutation quota (KIP-599): from v3 on an
excess is refused (89).
"""

from __future__ import annotations

from collections import Counter

from trilogue.broker.errors import InvalidName, UnknownTopic
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.promise import Promise
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, set_error
from trilogue.gateway.kafka.metadata_changes import check_named_topic, wait_for_all
from trilogue.gateway.kafka.topics.topics import YIELD_EVERY
from trilogue.gateway.steps import next_step, wait_until_settled
from trilogue.wire.kafka.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE = 3  # KIP-599: an excess is an error


async def handle_create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each valid topic."""
    mentioned = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    waiting: list[tuple[CreatePartitionsTopicResult, Promise[None]]] = []
    for requested in request.topics:
        if requested.name in results:
            continue
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await next_step()
        result = results[requested.name] = CreatePartitionsTopicResult(name=requested.name)
        try:
            check_named_topic(context, len(results) - 1, mentioned[requested.name])
            if request.validate_only:
                _check(context, requested)
            else:
                waiting.append((result, await _start_growth(context, requested)))
        except EXPECTED as problem:
            set_error(result, problem)
    outcomes = await wait_for_all(context, [promise for _, promise in waiting], request.timeout_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            set_error(result, outcome)
    return CreatePartitionsResponse(results=list(results.values()))


async def _start_growth(context: RequestContext, requested: CreatePartitionsTopic) -> Promise[None]:
    """Plan and start the change once no other change of the topic is in progress."""
    cluster = context.broker.cluster
    topic = _check(context, requested)
    while (pending := cluster.pending_change(topic.name)) is not None:
        await wait_until_settled(pending)
        topic = _check(context, requested)
    more = requested.count - len(topic.partitions)
    context.count_mutations(more, strict=context.version >= STRICT_SINCE)
    change = cluster.plan_add_partitions(topic.name, requested.count)
    grown: Promise[None] = Promise()
    context.gateway.spawn(_add_partitions(context, change, len(topic.partitions), grown))
    return grown


async def _add_partitions(
    context: RequestContext, change: MetadataChange[Topic], first: int, grown: Promise[None]
) -> None:
    try:
        await context.gateway.write_metadata(change)
        subscribed = context.broker.added_partitions.subscribe(change.done.result(), first)
        await wait_until_settled(subscribed)
        subscribed.result()
    except EXPECTED as problem:
        grown.set_error(problem)
    else:
        grown.set_result(None)


def _check(context: RequestContext, requested: CreatePartitionsTopic) -> Topic:
    """Return the topic if it may grow as requested."""
    try:
        topic = context.require_topic(context.operation, requested.name)
    except InvalidName as error:
        raise UnknownTopic("no topic can have this name") from error
    assignments = requested.assignments
    nodes = None if assignments is None else [each.broker_ids for each in assignments]
    context.broker.cluster.check_add_partitions(topic.name, requested.count, nodes)
    return topic
