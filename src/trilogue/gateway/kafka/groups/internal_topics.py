"""Creates the internal topics of streams groups: changelogs and repartition topics.

A heartbeat that finds topics missing starts their creation and does not wait for it; later
heartbeats find them, or report why they could not be created. The client needs CREATE on the
cluster or on each of the topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.groups.streams.topology import InternalTopic
from trilogue.broker.names import format_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.settings.topic_settings import Change
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.metadata_changes import start_change
from trilogue.gateway.kafka.topics.replication import check_min_in_sync, check_replication_factor

SHOWN_MAX = 3  # errors in a status
BROKER_DEFAULT = -1


def create_internal_topics(context: RequestContext, topics: Sequence[InternalTopic]) -> str:
    """Start to create missing topics; returns what a status says of it beside their names."""
    if not topics:
        return ""
    if not context.can_see(Operation.CREATE, ResourceKind.CLUSTER, "cluster"):
        denied = [
            format_kafka(each.name)
            for each in topics
            if not context.is_allowed_to(Operation.CREATE, ResourceKind.TOPIC, each.name)
        ]
        if denied:
            return f"; Unauthorized to CREATE on topics {', '.join(denied)}."
    errors = context.broker.streams_groups.creation.errors(topics)
    for topic in topics:
        _start(context, topic)
    if not errors:
        return ""
    more = len(errors) - SHOWN_MAX
    listed = ", ".join(errors[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"; Creation failed: {listed}."


def _start(context: RequestContext, topic: InternalTopic) -> None:
    """Start to create a topic, unless that is in progress."""
    creation, name = context.broker.streams_groups.creation, topic.name
    if creation.is_pending(name):
        return
    try:
        promise = _create(context, topic)
    except BrokerError as error:
        creation.finish(name, error)
        return
    creation.begin(name)
    promise.then(lambda done: creation.finish(name, done.error))


def _create(context: RequestContext, topic: InternalTopic) -> Promise[Topic]:
    cluster, spelled = context.broker.cluster, format_kafka(topic.name)
    factor = check_replication_factor(context, spelled, topic.replication_factor or BROKER_DEFAULT)
    changes = ((key, Change.SET, value) for key, value in topic.settings)
    settings = {key: value for key, _, value in check_min_in_sync(context, spelled, changes)}
    new = cluster.check_create(
        topic.name,
        partition_count=topic.partition_count,
        replication_factor=factor,
        settings=settings,
    )
    context.gateway.name_collisions.check(topic.name)
    context.count_mutations(new.partition_count, strict=False)
    return start_change(context, cluster.plan_create(new))
