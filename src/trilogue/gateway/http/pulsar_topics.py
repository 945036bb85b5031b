"""Topics over HTTP: what is below /admin/v2/persistent/{tenant}/{namespace}/{topic}.

Made and deleted, with numbered partitions or without; more partitions; numbers; ended, emptied,
unloaded; a topic's policies, permissions and notes. Topics that no disk would keep
(`non-persistent`) are refused with 405.

A topic cannot be deleted while producers or consumers are connected (412) unless `force` says so;
then they are closed, and do not find it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.delete_records import HIGH_WATERMARK, delete_records
from trilogue.broker.errors import InvalidName, TopicExists, UnknownTopic
from trilogue.broker.naming import check_auto_create, check_kept
from trilogue.broker.policies import PERMISSIONS, PROPERTIES, TERMINATED, terminated_partitions
from trilogue.broker.topic import Topic
from trilogue.gateway.http.changing import grow_topic, settled
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked, Row
from trilogue.gateway.http.pulsar_live import connected, unload_partition
from trilogue.gateway.http.pulsar_messages import (
    entry_of_id,
    examine,
    id_of_time,
    last_id,
)
from trilogue.gateway.http.pulsar_namespaces import check_actions
from trilogue.gateway.http.pulsar_policies import topic_rows
from trilogue.gateway.http.pulsar_stats import (
    backlog_size,
    internal_info,
    internal_stats,
    partitioned_internal_stats,
    partitioned_stats,
    stats,
)

EXISTS = "This topic already exists"
PROPERTIES_MAX, PERMISSIONS_MAX = 1_000, 1_000
NOTES_SIZE_MAX = 1 << 20  # of a topic's properties, and of its permissions, as JSON
DIGITS_MAX = 9


# -- made


async def put_topic(asked: Asked) -> None:
    """Make a topic without numbered partitions; the body may be its properties."""
    await _make(asked, 0, _texts(asked.any_json() if asked.body else {}))


def _texts(value: Any) -> dict[str, str]:
    """A topic's own notes; Problem 400 if they are none."""
    try:
        return msgspec.convert(value or {}, dict[str, str])
    except msgspec.ValidationError as error:
        raise Problem(400, f"properties are texts: {error}") from error


async def put_partitioned(asked: Asked) -> None:
    """Make a topic with numbered partitions."""
    body = asked.any_json()
    texts: object = None
    if isinstance(body, dict):  # with properties
        texts, body = body.get("properties"), body.get("partitions", 0)
    count = _count(body)
    if count <= 0:
        raise Problem(406, "Number of partitions should be more than 0")
    await _make(asked, count, _texts(texts))


def _count(body: object) -> int:
    """Partitions, as a number or as its digits in a string (pulsar-rs writes them so)."""
    if isinstance(body, str) and body.isascii() and body.isdigit() and len(body) <= DIGITS_MAX:
        return int(body)
    if not isinstance(body, int) or isinstance(body, bool):
        raise Problem(400, "the number of partitions is a number")
    return body


async def _make(asked: Asked, partitions: int, texts: dict[str, str]) -> None:
    name, cluster = asked.name, asked.broker.cluster
    check_kept(name)
    if not asked.broker.namespaces.exists(name.topic.home):
        raise Problem(404, "Namespace not found")
    if name.partition is not None:
        there = cluster.find(name.topic)
        if there is None or not there.partitioned or partitions:
            raise InvalidName(
                'no topic is called like this: "-partition-" and a number mean a part of another'
            )
        if name.partition < len(there.partitions):
            raise Problem(409, EXISTS)
        raise InvalidName(f"{name.topic} has {len(there.partitions)} partitions")
    try:
        new = cluster.check_create(
            name.topic, partition_count=max(1, partitions), partitioned=partitions > 0
        )
    except TopicExists as error:
        raise Problem(409, EXISTS) from error
    if texts:
        kept: dict[str, str] = {}
        _changing(PROPERTIES, lambda there: there.update(texts), PROPERTIES_MAX)(kept)
        new = replace(new, settings={**new.settings, **kept})
    await asked.door.commit(cluster.plan_create(new))


async def topic_or_made(asked: Asked) -> Topic:
    """The topic in the path; one that is not there is made, if its namespace says so."""
    cluster, name = asked.broker.cluster, asked.name
    try:
        return asked.topic
    except UnknownTopic:
        coming = cluster.creating(name.topic)
        if coming is None:
            allowed = asked.door.settings.auto_create_topics
            new = check_auto_create(asked.broker, name, allowed=allowed)
            await asked.door.commit(cluster.plan_create(new))
        else:
            await settled(coming)
    return asked.topic


# -- partitions


async def get_partitions(asked: Asked) -> object:
    """Tell how many numbered partitions there are; 0: it is reached by its bare name."""
    try:
        topic = asked.topic
    except UnknownTopic:
        if not asked.flag("checkAllowAutoCreation"):
            raise
        topic = await topic_or_made(asked)
    count = len(topic.partitions) if topic.partitioned and asked.name.partition is None else 0
    return {"partitions": count, "deleted": False}


async def post_partitions(asked: Asked) -> None:
    """Add partitions."""
    body = _count(asked.any_json())
    topic, cluster = asked.topic, asked.broker.cluster
    if not topic.partitioned:
        raise Problem(409, f"Topic {asked.name} is not the partitioned topic.")
    while (pending := cluster.altering(topic.name)) is not None:
        await settled(pending)
    now = len(asked.topic.partitions)
    if body < now:
        raise Problem(
            422, f"Desired partitions {body} can't be less than the current partitions {now}."
        )
    await grow_topic(asked.door, lambda: asked.topic, body)


# -- deleted


async def delete_topic(asked: Asked) -> None:
    """Delete a topic without numbered partitions."""
    topic = asked.topic
    if asked.name.partition is not None:
        raise Problem(412, "a partition is deleted with its topic")
    if topic.partitioned:
        raise Problem(
            409,
            f"{asked.name} is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic.",
        )
    count = connected(asked.door, topic.partitions)
    if count and not asked.flag("force"):
        raise Problem(412, f"Topic has {count} connected producers/consumers")
    await asked.delete_topic(topic.name)


async def delete_partitioned(asked: Asked) -> None:
    """Delete a topic with numbered partitions."""
    topic = asked.topic
    if not topic.partitioned or asked.name.partition is not None:
        raise UnknownTopic(f"Partitioned Topic {asked.name} not found")
    if connected(asked.door, topic.partitions) and not asked.flag("force"):
        raise Problem(412, "Topic has active producers/subscriptions")
    await asked.delete_topic(topic.name)


# -- ended, emptied, unloaded


async def terminate(asked: Asked) -> object:
    """Let a partition take no more messages, for ever; tell its last one."""
    topic, partition = asked.partition
    index = topic.partitions.index(partition)
    await _terminate(asked, [index])
    return await last_id(asked, partition, index if topic.partitioned else -1)


async def terminate_partitions(asked: Asked) -> object:
    """The same for all partitions of a topic."""
    topic = asked.topic
    if not topic.partitioned or asked.name.partition is not None:
        raise Problem(409, f"Termination of a non-partitioned topic {asked.name} is not allowed")
    await _terminate(asked, range(len(topic.partitions)))
    return {
        str(index): await last_id(asked, partition, index)
        for index, partition in enumerate(topic.partitions)
    }


async def _terminate(asked: Asked, indexes: Any) -> None:
    def change(settings: dict[str, str]) -> None:
        over = sorted({*terminated_partitions(settings), *indexes})
        settings[TERMINATED] = msgspec.json.encode(over).decode()

    await asked.alter_topic(change)
    await _durable(asked)


async def _durable(asked: Asked) -> None:
    """Wait for what was appended before: it may be the last message, and is told."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    asked.door.journal.on_commit(lambda _: None if done.done() else done.set_result(None))
    await done


async def truncate(asked: Asked) -> None:
    """Let go of all messages that are there now; subscriptions are at the end then."""
    topic = asked.topic
    there = {max(0, index): partition for index, partition in asked.partitions}
    await asked.door.commit(delete_records(topic, dict.fromkeys(there, HIGH_WATERMARK)))
    for partition in there.values():
        asked.broker.subscriptions.follow_start(partition.partition_id)
        for name in list(asked.door.readers.of(partition.partition_id)):
            asked.door.readers.moved(partition.partition_id, name)


def unload(asked: Asked) -> None:
    """Close producers and consumers; they look up the topic and come back."""
    for _, partition in asked.partitions:
        unload_partition(asked.door, partition)


# -- compacted on request


def compact(asked: Asked) -> None:
    """Begin to make the view that has of each key the last message only."""
    topic = asked.topic
    for index, _ in asked.partitions:
        asked.door.compacted.trigger(topic, max(0, index))


def compaction(asked: Asked) -> object:
    """Tell how that stands."""
    topic, partition = asked.partition
    status, problem = asked.door.compacted.status(topic, topic.partitions.index(partition))
    return {"status": status, "lastError": problem}


# -- messages


async def last_message(asked: Asked) -> object:
    """Tell the id of the last message."""
    topic, partition = asked.partition
    index = topic.partitions.index(partition) if topic.partitioned else -1
    return await last_id(asked, partition, index)


def no_offload(asked: Asked) -> object:
    """Refuse: segments go to object storage by the node's settings, not by request."""
    _ = asked.topic
    raise Problem(405, "segments are moved to object storage by the node's own settings")


# -- notes and permissions


def _kept_json(topic: Topic, key: str) -> dict[str, Any]:
    text = topic.settings.get(key)
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _changing(key: str, change: Callable[[dict[str, Any]], object], most: int) -> Any:
    def changed(settings: dict[str, str]) -> None:
        text = settings.get(key)
        kept = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
        change(kept)
        if len(kept) > most:
            raise Problem(412, f"at most {most} are kept")
        settings.pop(key, None)
        if kept:
            settings[key] = msgspec.json.encode(kept).decode()
        if len(settings.get(key, "")) > NOTES_SIZE_MAX:
            raise Problem(412, f"at most {NOTES_SIZE_MAX} bytes are kept")

    return changed


def properties(asked: Asked) -> object:
    """Tell a topic's own notes."""
    return _kept_json(asked.topic, PROPERTIES)


async def put_properties(asked: Asked) -> None:
    """Add to them."""
    added = asked.json(dict[str, str])
    await asked.alter_topic(_changing(PROPERTIES, lambda kept: kept.update(added), PROPERTIES_MAX))


async def delete_properties(asked: Asked) -> None:
    """Forget one of them."""
    key = asked.request.query_params.get("key", "")
    await asked.alter_topic(_changing(PROPERTIES, lambda kept: kept.pop(key, None), PROPERTIES_MAX))


def permissions(asked: Asked) -> object:
    """Tell who was said to be allowed what, with what holds for the namespace."""
    topic = asked.topic
    found = dict(asked.broker.namespaces.find(topic.name.home).permissions)
    for role, actions in _kept_json(topic, PERMISSIONS).items():
        found[role] = sorted({*found.get(role, []), *actions})
    return found


async def grant(asked: Asked) -> None:
    """Say what a role may do with one topic."""
    role, actions = asked.params["role"], check_actions(asked.any_json())

    def change(kept: dict[str, Any]) -> None:
        kept[role] = sorted({*kept.get(role, []), *actions})

    await asked.alter_topic(_changing(PERMISSIONS, change, PERMISSIONS_MAX))


async def revoke(asked: Asked) -> None:
    """Say that a role may do nothing with one topic any more."""
    role = asked.params["role"]
    if role not in _kept_json(asked.topic, PERMISSIONS):
        raise Problem(412, "Permissions are not set at the topic level")
    await asked.alter_topic(
        _changing(PERMISSIONS, lambda kept: kept.pop(role, None), PERMISSIONS_MAX)
    )


KIND = ResourceKind.TOPIC
DESCRIBE, ALTER, READ = Operation.DESCRIBE, Operation.ALTER, Operation.READ
CREATE, DELETE = Operation.CREATE, Operation.DELETE
SHOW, SET = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS

PATHS = (
    ("GET", "/partitions", get_partitions, DESCRIBE),
    ("PUT", "/partitions", put_partitioned, CREATE),
    ("POST", "/partitions", post_partitions, ALTER),
    ("DELETE", "/partitions", delete_partitioned, DELETE),
    ("GET", "/stats", stats, DESCRIBE),
    ("GET", "/partitioned-stats", partitioned_stats, DESCRIBE),
    ("GET", "/internalStats", internal_stats, DESCRIBE),
    ("GET", "/partitioned-internalStats", partitioned_internal_stats, DESCRIBE),
    ("PUT", "/backlogSize", backlog_size, DESCRIBE),
    ("GET", "/internal-info", internal_info, DESCRIBE),
    ("GET", "/lastMessageId", last_message, DESCRIBE),
    ("GET", "/ledger/{ledger}/entry/{entry}", entry_of_id, READ),
    ("GET", "/examinemessage", examine, READ),
    ("GET", "/messageid/{timestamp}", id_of_time, DESCRIBE),
    ("POST", "/terminate", terminate, ALTER),
    ("POST", "/terminate/partitions", terminate_partitions, ALTER),
    ("DELETE", "/truncate", truncate, DELETE),
    ("PUT", "/unload", unload, ALTER),
    ("GET", "/compaction", compaction, DESCRIBE),
    ("PUT", "/compaction", compact, ALTER),
    ("GET PUT", "/offload", no_offload, ALTER),
    ("GET", "/properties", properties, SHOW),
    ("PUT", "/properties", put_properties, SET),
    ("DELETE", "/properties", delete_properties, SET),
    ("GET", "/permissions", permissions, SHOW),
    ("POST", "/permissions/{role}", grant, SET),
    ("DELETE", "/permissions/{role}", revoke, SET),
    ("PUT", "", put_topic, CREATE),
    ("DELETE", "", delete_topic, DELETE),
)


def not_kept(asked: Asked) -> None:
    """Refuse whatever is asked of a topic that no disk would keep."""
    check_kept(asked.name._replace(persistent=False))


def rows_not_kept(one: str) -> list[Row]:
    """The rows of topics that are not persistent: there are none."""
    every = "GET PUT POST DELETE"
    return [
        Row(every, one, not_kept, KIND, DESCRIBE),
        Row(every, one + "/{rest:path}", not_kept, KIND, DESCRIBE),
    ]


def rows(one: str) -> list[Row]:
    """The rows of topics, below the path of one."""
    return [
        *(
            Row(methods, one + path, handler, KIND, operation)
            for methods, path, handler, operation in PATHS
        ),
        *(
            Row(row.methods, one + row.path, row.handler, row.resource, row.operation)
            for row in topic_rows()
        ),
    ]
