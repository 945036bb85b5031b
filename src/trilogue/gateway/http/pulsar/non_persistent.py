"""Non-persistent topics over HTTP: what is below /admin/v2/non-persistent/{tenant}/{namespace}.

Created and deleted, partitioned or not; statistics with what was dropped; subscriptions; unloaded.
What needs stored messages or a position is refused with 405, and so are policies and permissions of
one topic: those of its namespace hold.
"""

from __future__ import annotations

from typing import Any, cast

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import NotServed, TopicExists, UnknownSubscription, UnknownTopic
from trilogue.broker.names import PulsarName
from trilogue.broker.non_persistent.counters import TrafficCounter
from trilogue.broker.non_persistent.topics import NonPersistentTopic
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute
from trilogue.gateway.http.pulsar.namespaces import (
    BUNDLE,
    find_namespace,
    visible_non_persistent,
)
from trilogue.gateway.http.pulsar.stats import add_up_stats
from trilogue.gateway.http.pulsar.topic_clients import format_time, producer_stats
from trilogue.gateway.http.pulsar.topics import parse_count, parse_properties
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.pulsar.non_persistent.dispatcher import (
    NonPersistentConsumer,
    NonPersistentDispatcher,
)
from trilogue.gateway.pulsar.non_persistent.topics import (
    close_clients,
    count_partitions,
)
from trilogue.gateway.pulsar.producer import Producer
from trilogue.gateway.pulsar.subscriptions import TYPE_NAMES

EXISTS = "This topic already exists"
ACTIVE = 412


def _name(request: AdminRequest) -> PulsarName:
    return request.name._replace(persistent=False)


def _check_namespace(request: AdminRequest, name: PulsarName) -> None:
    if not request.broker.namespaces.exists(name.topic.namespace_name):
        raise HttpError(404, "Namespace not found")


def _find(request: AdminRequest) -> NonPersistentTopic:
    """Return the topic or partition of the path; loads a partition that is not in use."""
    name, topics = _name(request), request.broker.non_persistent
    topics.check_owner(name.topic)
    if not topics.exists(name) or (name.partition is None and topics.find_topic(name) is None):
        raise UnknownTopic(f"Topic {name} not found")
    return topics.load(name, request.gateway.loop.time())


def _partitions(request: AdminRequest) -> dict[str, NonPersistentTopic]:
    """Return the partitions of the partitioned topic of the path that are in use, by name."""
    name, topics = _name(request), request.broker.non_persistent
    count = topics.partition_count(name.topic)
    if not count or name.partition is not None:
        raise HttpError(404, f"Partitioned Topic {name} not found")
    topics.check_owner(name.topic)
    names = [name._replace(partition=index) for index in range(count)]
    loaded = ((str(each), topics.find_topic(each)) for each in names)
    return {each: topic for each, topic in loaded if topic is not None}


def _in_use(request: AdminRequest) -> list[NonPersistentTopic]:
    """Return the topics in memory that the path stands for, all partitions for a bare name."""
    name, topics = _name(request), request.broker.non_persistent
    if name.partition is None and topics.partition_count(name.topic):
        return list(_partitions(request).values())
    return [_find(request)]


# -- created and deleted


async def create_topic(request: AdminRequest) -> None:
    """Create a topic without numbered partitions; it lasts while it is used, a minute at least."""
    name, topics = _name(request), request.broker.non_persistent
    _check_namespace(request, name)
    if topics.exists(name):
        raise HttpError(409, EXISTS)
    topics.load(name, request.gateway.loop.time())


async def create_partitioned_topic(request: AdminRequest) -> None:
    """Create a topic with numbered partitions."""
    body: Any = request.any_json()
    texts: object = None
    if isinstance(body, dict):
        texts, body = body.get("properties"), body.get("partitions", 0)
    count, name = parse_count(body), _name(request)
    if count <= 0:
        raise HttpError(406, "Number of partitions should be more than 0")
    _check_namespace(request, name)
    topics, properties = request.broker.non_persistent, parse_properties(texts)
    if name.partition is not None:
        raise HttpError(412, "a partitioned topic is not named like a partition")
    try:
        await request.commit_change(lambda: topics.plan_create(name.topic, count, properties))
    except TopicExists as error:
        raise HttpError(409, EXISTS) from error


async def add_partitions(request: AdminRequest) -> None:
    """Add partitions."""
    wanted, name = parse_count(request.any_json()), _name(request)
    topics = request.broker.non_persistent
    present = topics.partition_count(name.topic)
    if not present:
        raise HttpError(409, f"Topic {name} is not the partitioned topic.")
    if wanted < present:
        raise HttpError(
            422, f"Desired partitions {wanted} can't be less than the current partitions {present}."
        )
    await request.commit_change(lambda: topics.plan_grow(name.topic, wanted))


async def get_partitions(request: AdminRequest) -> object:
    """Return the number of partitions; 0 for a topic that is not partitioned."""
    name, may_create = _name(request), request.may_create_topic()
    _check_namespace(request, name)
    request.broker.non_persistent.check_owner(name.topic)
    count = await count_partitions(request.gateway, name, may_create=may_create)
    if may_create and not count:
        request.broker.non_persistent.load(name, request.gateway.loop.time())
    return {"partitions": count, "deleted": False}


async def delete_topic(request: AdminRequest) -> None:
    """Delete a topic without numbered partitions; one that does not exist is deleted too."""
    name, topics = _name(request), request.broker.non_persistent
    if topics.partition_count(name.topic):
        if name.partition is not None:
            raise HttpError(412, "a partition is deleted with its topic")
        raise HttpError(
            409,
            f"{name} is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic.",
        )
    topics.check_owner(name.topic)
    found = topics.find_topic(name)
    if found is not None:
        _discard(request, [found])


async def delete_partitioned_topic(request: AdminRequest) -> None:
    """Delete a topic with numbered partitions."""
    name, topics = _name(request), request.broker.non_persistent
    topics.check_owner(name.topic)
    if not topics.partition_count(name.topic) or name.partition is not None:
        raise UnknownTopic(f"Topic {name} not found.")
    loaded = list(_partitions(request).values())
    _check_unused(request, loaded)
    await request.commit_change(lambda: topics.plan_delete(name.topic))
    _discard(request, loaded)


def _check_unused(request: AdminRequest, topics: list[NonPersistentTopic]) -> None:
    count = sum(len(each.writers) + each.consumer_count for each in topics)
    if count and not request.flag("force"):
        raise HttpError(ACTIVE, f"Topic has {count} connected producers/consumers")


def _discard(request: AdminRequest, topics: list[NonPersistentTopic]) -> None:
    _check_unused(request, topics)
    for each in topics:
        request.broker.non_persistent.discard(each)
        close_clients(each)


def unload_topic(request: AdminRequest) -> None:
    """Close producers and consumers; they look the topic up again."""
    for each in _in_use(request):
        close_clients(each)


# -- subscriptions


def list_subscriptions(request: AdminRequest) -> object:
    """Return the names of the subscriptions."""
    return sorted({name for each in _in_use(request) for name in each.subscriptions})


def delete_subscription(request: AdminRequest) -> None:
    """Delete a subscription; `force` disconnects its consumers."""
    name, subscription = _name(request), request.params["subscription"]
    found = [each for each in _in_use(request) if subscription in each.subscriptions]
    if not found:
        raise UnknownSubscription(f"Subscription {subscription} not found for topic {name}")
    if any(each.subscriptions[subscription].members for each in found) and not request.flag(
        "force"
    ):
        raise HttpError(ACTIVE, "Subscription has active connected consumers")
    for each in found:
        cast("NonPersistentDispatcher", each.subscriptions[subscription]).close_all()
        each.subscriptions.pop(subscription, None)


def refuse_subscription(request: AdminRequest) -> object:
    """Refuse to create a subscription."""
    del request
    raise HttpError(
        400, "Create subscription on non-persistent topic can only be done through client"
    )


# -- statistics


def get_stats(request: AdminRequest) -> object:
    """Return the statistics of a topic without numbered partitions, or of one partition."""
    return _topic_stats(request, _find(request))


def get_partitioned_stats(request: AdminRequest) -> object:
    """Return the statistics of a partitioned topic, in total and by partition."""
    topics, name = request.broker.non_persistent, _name(request)
    count, loaded = topics.partition_count(name.topic), _partitions(request)
    parts = {each: _topic_stats(request, topic) for each, topic in loaded.items()}
    idle = NonPersistentTopic(name, request.broker.namespaces, request.gateway.loop.time())
    total = add_up_stats([_topic_stats(request, idle), *parts.values()])
    total["metadata"] = {"partitions": count, "deleted": False}
    total["partitions"] = parts if request.flag("perPartition", default=True) else {}
    return total


def get_internal_stats(request: AdminRequest) -> object:
    """Return that nothing is stored."""
    _find(request)
    return {
        "entriesAddedCounter": 0,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "cursors": {},
    }


def _topic_stats(request: AdminRequest, topic: NonPersistentTopic) -> dict[str, Any]:
    now_s = request.gateway.loop.time()
    subscriptions = {
        name: _subscription_stats(cast("NonPersistentDispatcher", each), now_s)
        for name, each in sorted(topic.subscriptions.items())
    }
    rate_in, size_in = topic.received.rates(now_s)
    count = topic.received.messages
    limiter = None if topic.rates is None else topic.rates.publish
    return {
        "msgRateIn": rate_in,
        "msgThroughputIn": size_in,
        "msgRateOut": sum(each["msgRateOut"] for each in subscriptions.values()),
        "msgThroughputOut": sum(each["msgThroughputOut"] for each in subscriptions.values()),
        "bytesInCounter": topic.received.size,
        "msgInCounter": count,
        "bytesOutCounter": sum(each["bytesOutCounter"] for each in subscriptions.values()),
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "averageMsgSize": topic.received.size / count if count else 0.0,
        "msgChunkPublished": False,
        "storageSize": 0,
        "backlogSize": 0,
        "publishRateLimitedTimes": 0 if limiter is None else limiter.waits,
        "offloadedStorageSize": 0,
        "waitingPublishers": topic.writers.waiting,
        "msgDropRate": sum(each["msgDropRate"] for each in subscriptions.values()),
        "msgDropCounter": sum(each["msgDropCounter"] for each in subscriptions.values()),
        "publishers": [
            {**producer_stats(each), "msgDropRate": 0.0}
            for each in topic.writers
            if isinstance(each, Producer)
        ],
        "subscriptions": subscriptions,
        "replication": {},
        "ownerBroker": request.http.url.netloc,
    }


def _subscription_stats(subscription: NonPersistentDispatcher, now_s: float) -> dict[str, Any]:
    kind, active = subscription.kind, subscription.active
    found = {
        **_sent(subscription.sent, now_s),
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "msgBacklog": 0,
        "backlogSize": 0,
        "msgBacklogNoDelayed": 0,
        "blockedSubscriptionOnUnackedMsgs": False,
        "msgDelayed": 0,
        "unackedMessages": 0,
        "type": "None" if kind is None or not subscription.members else TYPE_NAMES[kind],
        "msgDropRate": subscription.dropped.rates(now_s)[0],
        "msgDropCounter": subscription.dropped.messages,
        "bytesDropCounter": subscription.dropped.size,
        "consumers": [_consumer_stats(each) for each in subscription.consumers],
        "isDurable": False,
        "durable": False,
        "isReplicated": False,
        "replicated": False,
        "allowOutOfOrderDelivery": False,
        "subscriptionProperties": {},
    }
    if active is not None:
        found["activeConsumerName"] = active.name
    return found


def _sent(counter: TrafficCounter, now_s: float) -> dict[str, Any]:
    messages, size = counter.rates(now_s)
    return {
        "msgRateOut": messages,
        "msgThroughputOut": size,
        "bytesOutCounter": counter.size,
        "msgOutCounter": counter.messages,
    }


def _consumer_stats(consumer: NonPersistentConsumer) -> dict[str, Any]:
    return {
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "consumerName": consumer.name,
        "availablePermits": consumer.demand,
        "unackedMessages": 0,
        "blockedConsumerOnUnackedMsgs": False,
        "address": consumer.address,
        "connectedSince": format_time(consumer.connected_ms),
        "clientVersion": consumer.connection.client_version,
        "metadata": consumer.metadata,
    }


# -- lists


def list_topics(request: AdminRequest) -> object:
    """Return the non-persistent topics of a namespace, by partition."""
    find_namespace(request)
    return visible_non_persistent(request, request.namespace)


def list_bundle(request: AdminRequest) -> object:
    """Return the same for the one bundle; any other name is a topic, which has no GET."""
    if request.params["topic"] != BUNDLE:
        raise HttpError(405, "a topic itself is not read: its stats are")
    return list_topics(request)


def list_partitioned_topics(request: AdminRequest) -> object:
    """Return the non-persistent topics with numbered partitions."""
    find_namespace(request)
    return [
        str(PulsarName(each, None, persistent=False))
        for each in request.broker.non_persistent.partitioned_in(request.namespace)
        if request.can_see(ResourceKind.TOPIC, each)
    ]


def refuse_request(request: AdminRequest) -> object:
    """Refuse what needs stored messages, or is of the namespace."""
    raise NotServed(
        f"{request.params['rest']}: not for a non-persistent topic, which stores nothing; "
        "policies and permissions are those of its namespace"
    )


TOPIC, NAMESPACE = ResourceKind.TOPIC, ResourceKind.NAMESPACE
DESCRIBE, ALTER, READ = Operation.DESCRIBE, Operation.ALTER, Operation.READ
CREATE, DELETE = Operation.CREATE, Operation.DELETE

PATHS = (
    ("GET", "/partitions", get_partitions, DESCRIBE),
    ("PUT", "/partitions", create_partitioned_topic, CREATE),
    ("POST", "/partitions", add_partitions, ALTER),
    ("DELETE", "/partitions", delete_partitioned_topic, DELETE),
    ("GET", "/stats", get_stats, DESCRIBE),
    ("GET", "/partitioned-stats", get_partitioned_stats, DESCRIBE),
    ("GET", "/internalStats", get_internal_stats, DESCRIBE),
    ("PUT", "/unload", unload_topic, ALTER),
    ("GET", "/subscriptions", list_subscriptions, DESCRIBE),
    ("PUT", "/subscription/{subscription}", refuse_subscription, READ),
    ("DELETE", "/subscription/{subscription}", delete_subscription, READ),
    ("GET PUT POST DELETE", "/{rest:path}", refuse_request, DESCRIBE),
    ("GET", "", list_bundle, DESCRIBE),
    ("PUT", "", create_topic, CREATE),
    ("DELETE", "", delete_topic, DELETE),
)


def routes(namespace: str) -> list[AdminRoute]:
    """Return the routes below the path of a namespace's non-persistent topics."""
    one = namespace + "/{topic}"
    return [
        AdminRoute("GET", namespace, list_topics, NAMESPACE, DESCRIBE),
        AdminRoute("GET", f"{namespace}/partitioned", list_partitioned_topics, NAMESPACE, DESCRIBE),
        *(
            AdminRoute(methods, one + path, handler, TOPIC, operation)
            for methods, path, handler, operation in PATHS
        ),
    ]
