"""Topics over HTTP: what is below /admin/v2/persistent/{tenant}/{namespace}/{topic}.

Created and deleted, partitioned or not; more partitions; statistics; terminated, truncated,
unloaded; a topic's policies, permissions and properties. Topics that are not persistent are in
non_persistent.py.

A topic is not deleted while producers or consumers are connected (412) unless `force` is given;
then they are closed, and do not find it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.granted_actions import GrantedActions, without_operation
from trilogue.broker.errors import InvalidName, PolicyViolation, TopicExists, UnknownTopic
from trilogue.broker.names import parse_pulsar
from trilogue.broker.topics.delete_records import delete_records
from trilogue.broker.topics.lookup import (
    check_persistent,
    coordinators,
    is_coordinator_topic,
)
from trilogue.broker.topics.policies import (
    PERMISSIONS,
    PROPERTIES,
    TERMINATED,
    terminated_partitions,
)
from trilogue.broker.topics.retention import find_trimmed_start, list_extents
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute
from trilogue.gateway.http.pulsar.messages import (
    examine_message,
    get_by_id,
    get_id_by_time,
    last_message_id,
)
from trilogue.gateway.http.pulsar.namespaces import (
    check_actions,
    join_actions,
    namespace_permissions,
)
from trilogue.gateway.http.pulsar.policies import topic_policy_routes
from trilogue.gateway.http.pulsar.stats import (
    get_backlog_size,
    get_internal_info,
    get_internal_stats,
    get_partitioned_internal_stats,
    get_partitioned_stats,
    get_stats,
)
from trilogue.gateway.http.pulsar.topic_clients import count_clients, unload_partition
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.steps import wait_until_settled

SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"  # the property by which a shadow topic is created
EXISTS = "This topic already exists"
PROPERTIES_MAX, PERMISSIONS_MAX = 1_000, 1_000
NOTES_SIZE_MAX = 1 << 20  # of a topic's properties, and of its permissions, as JSON
DIGITS_MAX = 9


# -- made


async def create_topic(request: AdminRequest) -> None:
    """Create a topic that is not partitioned; the body may be its properties."""
    properties = parse_properties(request.any_json() if request.body else {})
    if SHADOW_SOURCE in properties:
        raise HttpError(412, "there are no shadow topics")
    await _create_topic(request, 0, properties)


def parse_properties(value: Any) -> dict[str, str]:
    """Return properties; raises HttpError 400 for malformed ones."""
    try:
        return msgspec.convert(value or {}, dict[str, str])
    except msgspec.ValidationError as error:
        raise HttpError(400, f"properties are texts: {error}") from error


async def create_partitioned_topic(request: AdminRequest) -> None:
    """Create a partitioned topic."""
    body = request.any_json()
    texts: object = None
    if isinstance(body, dict):  # with properties
        texts, body = body.get("properties"), body.get("partitions", 0)
    count = parse_count(body)
    if count <= 0:
        raise HttpError(406, "Number of partitions should be more than 0")
    await _create_topic(request, count, parse_properties(texts))


def parse_count(body: object) -> int:
    """Return a count of partitions: a number, or its digits in a string, as from pulsar-rs."""
    if isinstance(body, str) and body.isascii() and body.isdigit() and len(body) <= DIGITS_MAX:
        return int(body)
    if not isinstance(body, int) or isinstance(body, bool):
        raise HttpError(400, "the number of partitions is a number")
    return body


async def _create_topic(request: AdminRequest, partitions: int, texts: dict[str, str]) -> None:
    name, cluster = request.name, request.broker.cluster
    check_persistent(name)
    if not request.broker.namespaces.exists(name.topic.namespace_name):
        raise HttpError(404, "Namespace not found")
    if name.partition is not None:
        there = cluster.find_topic(name.topic)
        if there is None or not there.partitioned or partitions:
            raise InvalidName(
                'no topic is called like this: "-partition-" and a number mean a part of another'
            )
        if name.partition < len(there.partitions):
            raise HttpError(409, EXISTS)
        raise InvalidName(f"{name.topic} has {len(there.partitions)} partitions")
    try:
        new = cluster.check_create(
            name.topic, partition_count=max(1, partitions), partitioned=partitions > 0
        )
    except TopicExists as error:
        raise HttpError(409, EXISTS) from error
    except PolicyViolation as error:
        if partitions:
            raise
        raise HttpError(409, str(error)) from error
    if texts:
        kept: dict[str, str] = {}
        _json_change(PROPERTIES, lambda there: there.update(texts), PROPERTIES_MAX)(kept)
        new = replace(new, settings={**new.settings, **kept})
    await request.gateway.write_metadata(cluster.plan_create(new))


async def find_or_create_topic(request: AdminRequest) -> Topic:
    """Return the topic of the path; creates it where the namespace allows that."""
    try:
        return request.topic
    except UnknownTopic:
        await request.gateway.create_topic(request.name)
    return request.topic


# -- partitions


async def get_partitions(request: AdminRequest) -> object:
    """Return the number of partitions; 0 for a topic that is not partitioned."""
    cluster = request.broker.cluster
    if is_coordinator_topic(cluster, request.name):
        return {"partitions": coordinators(cluster), "deleted": False}
    try:
        topic = request.topic
    except UnknownTopic:
        if not request.may_create_topic():
            raise
        topic = await find_or_create_topic(request)
    count = len(topic.partitions) if topic.partitioned and request.name.partition is None else 0
    return {"partitions": count, "deleted": False}


async def add_partitions(request: AdminRequest) -> None:
    """Add partitions, which get the durable subscriptions of the topic."""
    body = parse_count(request.any_json())
    topic, cluster = request.topic, request.broker.cluster
    if not topic.partitioned:
        raise HttpError(409, f"Topic {request.name} is not the partitioned topic.")
    while (pending := cluster.pending_change(topic.name)) is not None:
        await wait_until_settled(pending)
    now = len(request.topic.partitions)
    if body < now:
        raise HttpError(
            422, f"Desired partitions {body} can't be less than the current partitions {now}."
        )
    await request.grow_topic(lambda: request.topic, body)


# -- deleted


async def delete_topic(request: AdminRequest) -> None:
    """Delete a topic that is not partitioned."""
    topic = request.topic
    if request.name.partition is not None:
        raise HttpError(412, "a partition is deleted with its topic")
    if topic.partitioned:
        raise HttpError(
            409,
            f"{request.name} is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic.",
        )
    count = count_clients(request.gateway, topic.partitions)
    if count and not request.flag("force"):
        raise HttpError(412, f"Topic has {count} connected producers/consumers")
    await request.delete_topic(topic.name)


def create_missed_partitions(request: AdminRequest) -> None:
    """Succeed without effect: a topic always has all of its partitions."""
    topic = request.topic
    if not topic.partitioned:
        raise UnknownTopic(f"Topic {request.name} not found")


async def delete_partitioned_topic(request: AdminRequest) -> None:
    """Delete a partitioned topic."""
    topic = request.topic
    if not topic.partitioned or request.name.partition is not None:
        raise HttpError(
            409,
            f"{request.name} is a non-partitioned topic. Instead of calling delete-partitioned-"
            "topic please call delete.",
        )
    if count_clients(request.gateway, topic.partitions) and not request.flag("force"):
        raise HttpError(412, "Topic has active producers/subscriptions")
    await request.delete_topic(topic.name)


# -- ended, emptied, unloaded


async def terminate_topic(request: AdminRequest) -> object:
    """Make a partition accept no more messages; return its last message id."""
    if request.topic.partitioned and request.name.partition is None:
        raise HttpError(405, "Termination of a partitioned topic is not allowed")
    topic, partition = request.partition
    index = topic.partitions.index(partition)
    await _terminate_indexes(request, [index])
    return await last_message_id(request, partition, index if topic.partitioned else -1)


async def terminate_partitions(request: AdminRequest) -> object:
    """Do the same for all partitions of a topic."""
    topic = request.topic
    if not topic.partitioned or request.name.partition is not None:
        raise HttpError(
            409, f"Termination of a non-partitioned topic {request.name} is not allowed"
        )
    await _terminate_indexes(request, range(len(topic.partitions)))
    return {
        str(index): await last_message_id(request, partition, index)
        for index, partition in enumerate(topic.partitions)
    }


async def _terminate_indexes(request: AdminRequest, indexes: Any) -> None:
    def change(settings: dict[str, str]) -> None:
        over = sorted({*terminated_partitions(settings), *indexes})
        settings[TERMINATED] = msgspec.json.encode(over).decode()

    await request.alter_topic(lambda: request.topic, change)
    await _wait_until_durable(request)


async def _wait_until_durable(request: AdminRequest) -> None:
    """Wait until earlier appends are durable: one may be the last message."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    request.gateway.journal.on_commit(lambda _: None if done.done() else done.set_result(None))
    await done


async def truncate_topic(request: AdminRequest) -> None:
    """Delete all present messages; subscriptions are at the end then."""
    topic = request.topic
    there = {max(0, index): partition for index, partition in request.partitions}
    await request.gateway.write_metadata(delete_records(topic, dict.fromkeys(there)))
    for partition in there.values():
        request.broker.subscriptions.follow_start(partition.partition_id)
        for name in list(request.gateway.subscriptions.of(partition.partition_id)):
            request.gateway.subscriptions.mark_moved(partition.partition_id, name)


async def trim_topic(request: AdminRequest) -> None:
    """Apply retention now: remove segments' messages that are due, of all partitions."""
    topic, subscriptions = request.topic, request.broker.subscriptions
    starts: dict[int, int | None] = {}
    for index, partition in request.partitions:
        needed = subscriptions.lowest_mark(partition.partition_id)
        extents = list_extents(partition)
        start = find_trimmed_start(partition, extents, request.gateway.now_ms(), needed)
        if start > partition.log.start_offset:
            starts[max(0, index)] = start
    if starts:
        await request.gateway.write_metadata(delete_records(topic, starts))
        for _, partition in request.partitions:
            subscriptions.follow_start(partition.partition_id)


def unload_topic(request: AdminRequest) -> None:
    """Close producers and consumers; they look the topic up again."""
    for _, partition in request.partitions:
        unload_partition(request.gateway, partition)


# -- compacted on request


def trigger_compaction(request: AdminRequest) -> None:
    """Start to build the view with the last message of each key."""
    topic = request.topic
    for index, _ in request.partitions:
        request.gateway.compaction.trigger(topic, max(0, index))


def get_compaction_status(request: AdminRequest) -> object:
    """Return the status of the compaction."""
    topic, partition = request.partition
    status, problem = request.gateway.compaction.status(topic, topic.partitions.index(partition))
    return {"status": status, "lastError": problem}


# -- messages


async def get_last_message_id(request: AdminRequest) -> object:
    """Return the id of the last message."""
    topic, partition = request.partition
    index = topic.partitions.index(partition) if topic.partitioned else -1
    return await last_message_id(request, partition, index)


def reject_offload(request: AdminRequest) -> object:
    """Reject: the node's settings decide about object storage."""
    _ = request.topic
    raise HttpError(405, "segments are moved to object storage by the node's own settings")


# -- notes and permissions


def _stored_json(topic: Topic, key: str) -> dict[str, Any]:
    text = topic.settings.get(key)
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _json_change(key: str, change: Callable[[dict[str, Any]], object], most: int) -> Any:
    def changed(settings: dict[str, str]) -> None:
        text = settings.get(key)
        kept = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
        change(kept)
        if len(kept) > most:
            raise HttpError(412, f"at most {most} are kept")
        settings.pop(key, None)
        if kept:
            settings[key] = msgspec.json.encode(kept).decode()
        if len(settings.get(key, "")) > NOTES_SIZE_MAX:
            raise HttpError(412, f"at most {NOTES_SIZE_MAX} bytes are kept")

    return changed


def get_properties(request: AdminRequest) -> object:
    """Return a topic's properties."""
    return _stored_json(request.topic, PROPERTIES)


async def add_properties(request: AdminRequest) -> None:
    """Add properties."""
    added = request.json(dict[str, str])
    await request.alter_topic(
        lambda: request.topic,
        _json_change(PROPERTIES, lambda kept: kept.update(added), PROPERTIES_MAX),
    )


async def delete_property(request: AdminRequest) -> None:
    """Delete one property."""
    key = request.http.query_params.get("key", "")
    await request.alter_topic(
        lambda: request.topic,
        _json_change(PROPERTIES, lambda kept: kept.pop(key, None), PROPERTIES_MAX),
    )


def get_permissions(request: AdminRequest) -> object:
    """Return the permissions by role, with those of the namespace."""
    topic = request.topic
    granted = GrantedActions(request.broker.acls, topic.name).by_role()
    stored = _stored_json(topic, PERMISSIONS)
    return join_actions(namespace_permissions(request), granted, stored)


async def grant_permission(request: AdminRequest) -> None:
    """Grant actions on one topic to a role."""
    await _grant(request, request.params["role"], check_actions(request.any_json()))


async def _grant(request: AdminRequest, role: str, actions: list[str]) -> None:
    name = request.topic.name
    request.check_grant(ResourceKind.TOPIC, name)
    view = GrantedActions(request.broker.acls, name)
    await request.change_acls(view.acls_to_grant(role, actions), ())
    others = without_operation(actions)

    def change(kept: dict[str, Any]) -> None:
        kept[role] = sorted({*kept.get(role, []), *others})

    if others:
        await request.alter_topic(
            lambda: request.topic, _json_change(PERMISSIONS, change, PERMISSIONS_MAX)
        )


async def revoke_permission(request: AdminRequest) -> None:
    """Revoke the permissions of a role on one topic."""
    role, topic = request.params["role"], request.topic
    request.check_grant(ResourceKind.TOPIC, topic.name)
    acls = GrantedActions(request.broker.acls, topic.name).acls_to_revoke(role)
    is_stored = role in _stored_json(topic, PERMISSIONS)
    await request.change_acls((), acls)
    if is_stored:
        await request.alter_topic(
            lambda: request.topic,
            _json_change(PERMISSIONS, lambda kept: kept.pop(role, None), PERMISSIONS_MAX),
        )


class TopicGrant(msgspec.Struct):
    """One topic, a role, and the actions that it may do there."""

    topic: str
    role: str
    actions: list[str] = []


def _select_topic(request: AdminRequest, grant: TopicGrant) -> None:
    """Make the request one about the topic and role of a grant, which it may change."""
    name = parse_pulsar(grant.topic)
    request.check_grant(ResourceKind.TOPIC, name.topic)
    space = name.topic.namespace_name
    request.params = {
        "domain": "persistent" if name.persistent else "non-persistent",
        "tenant": space.tenant,
        "namespace": space.namespace,
        "topic": name.topic.name,
        "role": grant.role,
    }


async def grant_permissions(request: AdminRequest) -> None:
    """Grant actions on topics to roles: a list in the body; of the first problem on, nothing."""
    for grant in request.json(list[TopicGrant])[:PERMISSIONS_MAX]:
        _select_topic(request, grant)
        await _grant(request, grant.role, check_actions(grant.actions))


async def revoke_permissions(request: AdminRequest) -> None:
    """Revoke the permissions of roles on topics: a list in the body."""
    for grant in request.json(list[TopicGrant])[:PERMISSIONS_MAX]:
        _select_topic(request, grant)
        await revoke_permission(request)


KIND = ResourceKind.TOPIC
DESCRIBE, ALTER, READ = Operation.DESCRIBE, Operation.ALTER, Operation.READ
CREATE, DELETE = Operation.CREATE, Operation.DELETE
SHOW, SET = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS

PATHS = (
    ("GET", "/partitions", get_partitions, DESCRIBE),
    ("PUT", "/partitions", create_partitioned_topic, CREATE),
    ("POST", "/partitions", add_partitions, ALTER),
    ("DELETE", "/partitions", delete_partitioned_topic, DELETE),
    ("POST", "/createMissedPartitions", create_missed_partitions, ALTER),
    ("GET", "/stats", get_stats, DESCRIBE),
    ("GET", "/partitioned-stats", get_partitioned_stats, DESCRIBE),
    ("GET", "/internalStats", get_internal_stats, DESCRIBE),
    ("GET", "/partitioned-internalStats", get_partitioned_internal_stats, DESCRIBE),
    ("PUT", "/backlogSize", get_backlog_size, DESCRIBE),
    ("GET", "/internal-info", get_internal_info, DESCRIBE),
    ("GET", "/lastMessageId", get_last_message_id, DESCRIBE),
    ("GET", "/ledger/{ledger}/entry/{entry}", get_by_id, READ),
    ("GET", "/examinemessage", examine_message, READ),
    ("GET", "/messageid/{timestamp}", get_id_by_time, DESCRIBE),
    ("POST", "/terminate", terminate_topic, ALTER),
    ("POST", "/terminate/partitions", terminate_partitions, ALTER),
    ("DELETE", "/truncate", truncate_topic, DELETE),
    ("POST", "/trim", trim_topic, DELETE),
    ("PUT", "/unload", unload_topic, ALTER),
    ("GET", "/compaction", get_compaction_status, DESCRIBE),
    ("PUT", "/compaction", trigger_compaction, ALTER),
    ("GET PUT", "/offload", reject_offload, ALTER),
    ("GET", "/properties", get_properties, SHOW),
    ("PUT", "/properties", add_properties, SET),
    ("DELETE", "/properties", delete_property, SET),
    ("GET", "/permissions", get_permissions, SHOW),
    ("POST", "/permissions/{role}", grant_permission, SET),
    ("DELETE", "/permissions/{role}", revoke_permission, SET),
    ("PUT", "", create_topic, CREATE),
    ("DELETE", "", delete_topic, DELETE),
)


def routes(one: str) -> list[AdminRoute]:
    """Return the routes of topics, below the path of one."""
    return [
        *(
            AdminRoute(
                methods,
                one + path,
                handler,
                KIND,
                operation,
                finds_coordinators=handler is get_partitions,
            )
            for methods, path, handler, operation in PATHS
        ),
        *(route.below(one) for route in topic_policy_routes()),
    ]
