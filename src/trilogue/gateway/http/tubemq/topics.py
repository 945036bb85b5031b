"""Topics in TubeMQ's web API: added, modified, deleted, removed.

A topic that is added here exists for all protocols at once. As with a real master there are two
steps to delete one: `delete` hides it from TubeMQ's clients and can be undone (`redo`); `remove`
deletes it for all protocols, with its messages. Both need that it accepts no requests any more.

What a real server stores for its files (unflushThreshold, memCacheMsgSizeInMB, ...) are limits on
what is not on disk yet. Here every message is on disk before it is confirmed, which is within any
of them: they are accepted and not stored.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec.structs import replace

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidPartitions, TopicExists
from trilogue.broker.names import TopicName, format_tubemq
from trilogue.broker.settings.topic_settings import (
    TUBEMQ_DELETED,
    TUBEMQ_PUBLISH,
    TUBEMQ_STAMP,
    TUBEMQ_SUBSCRIBE,
    check_settings,
)
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.group_rules import (
    MIB,
    SIZE_KEY,
    ChangeStamp,
    check_message_mib,
)
from trilogue.gateway.http.tubemq.web_api_request import (
    BAD_VALUE,
    EXISTS,
    NOT_FOUND,
    NOT_NOW,
    UNCHANGED,
    Answer,
    ItemError,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    for_records,
    for_request,
    run_item,
)
from trilogue.gateway.tubemq.broker_map import BROKER_ID

POLICY = re.compile(r"delete,([0-9]{1,9})([smh]?)")
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "": 3_600_000}
RETENTION = "retention.ms"
ACCEPTS = {"acceptPublish": TUBEMQ_PUBLISH, "acceptSubscribe": TUBEMQ_SUBSCRIBE}
FILE_BOUNDS = {  # settings without meaning here: a real server's defaults
    "unflushThreshold": 1_000,
    "unflushInterval": 10_000,
    "unflushDataHold": 0,
    "memCacheMsgSizeInMB": 3,
    "memCacheMsgCntInK": 10,
    "memCacheFlushIntvl": 20_000,
}


# -- made and changed


async def add_topics(request: WebApiRequest) -> list[Answer]:
    """Create topics; an existing one is left as it is."""
    return [
        await run_item(
            _add_topic(request, broker_id, name), brokerId=broker_id, topicName=format_tubemq(name)
        )
        for broker_id in _needed_brokers(request)
        for name in request.needed_topics
    ]


async def _add_topic(request: WebApiRequest, broker_id: int, name: TopicName) -> None:
    _check_broker(broker_id)
    request.check_access(ResourceKind.TOPIC, name)
    count = request.number("numPartitions", 1, low=1)
    change = _read_changes(request)
    cluster = request.broker.cluster
    try:
        new = cluster.check_create(name, partition_count=count, partitioned=True)
    except TopicExists:
        text = f"Existed record found for brokerId-topicName({broker_id}:{format_tubemq(name)})!"
        raise ItemError(EXISTS, text) from None
    except InvalidPartitions as error:
        raise ItemError(BAD_VALUE, str(error)) from error
    settings = dict(new.settings)
    change(settings)
    settings[TUBEMQ_STAMP] = _encode_stamp(request.stamp())
    await request.gateway.write_metadata(cluster.plan_create(replace(new, settings=settings)))


async def modify_topics(request: WebApiRequest) -> list[Answer]:
    """Change topics: more partitions, what they accept, the size and age of messages."""
    return [
        await run_item(
            _modify_topic(request, broker_id, name),
            brokerId=broker_id,
            topicName=format_tubemq(name),
        )
        for broker_id in _needed_brokers(request)
        for name in request.needed_topics
    ]


async def _modify_topic(request: WebApiRequest, broker_id: int, name: TopicName) -> None:
    spelled = format_tubemq(name)
    here = f"brokerId-topicName({broker_id}:{spelled})"
    find_existing = _make_finder(
        request, broker_id, name, f"Not found topic deploy configure for {here}!"
    )
    change, now = _read_changes(request), len(find_existing().partitions)
    count = request.number("numPartitions", now, low=1)
    if count < now:
        text = f"Partition number less than before, new value is {count}, current value is {now}"
        raise ItemError(BAD_VALUE, f"{text} in {here} record!")
    before = dict(find_existing().settings)
    after = dict(before)
    change(after)
    if after == before and count == now:
        raise ItemError(UNCHANGED, "Topic deploy configure not changed!")
    await request.grow_topic(find_existing, count)
    await _alter_topic(request, find_existing, change, stamps=count > now)


def _read_changes(request: WebApiRequest) -> Callable[[dict[str, str]], None]:
    """Return the changes of a topic's settings; raises WebApiError for invalid ones."""
    _check_stores(request)
    kept: dict[str, str] = {}
    if request.has("deletePolicy"):
        kept[RETENTION] = str(_parse_retention_ms(request.text("deletePolicy")))
    if request.has("maxMsgSizeInMB"):
        size = request.number("maxMsgSizeInMB", low=1, high=20)
        kept[SIZE_KEY] = str(check_message_mib(size) * MIB)
    checked = check_settings(kept)
    accepts = {key: request.flag(name) for name, key in ACCEPTS.items() if request.has(name)}

    def change(settings: dict[str, str]) -> None:
        settings |= checked
        for key, accepted in accepts.items():
            settings.pop(key, None)
            if not accepted:
                settings[key] = "false"

    return change


def _check_stores(request: WebApiRequest) -> None:
    """Reject another layout of files than the one here; file limits are always kept."""
    if request.number("numTopicStores", 1, low=1) != 1:
        raise WebApiError(
            "numTopicStores: a topic has one store, and as many partitions as it needs"
        )
    if request.has("dataPath"):
        raise WebApiError("dataPath: set by the settings of the node, not by the web API")
    for name in FILE_BOUNDS:
        request.number(name, 0)


def _parse_retention_ms(policy: str) -> int:
    found = POLICY.fullmatch(policy)
    if found is None:
        raise WebApiError(
            "Value must include one and only one comma character, the format of deletePolicy must "
            "like delete,{digital}[m|s|h]"
        )
    retention_ms = int(found[1]) * UNIT_MS[found[2]]
    if retention_ms <= 0:
        raise WebApiError("deletePolicy: a time that is not zero is needed")
    return retention_ms


# -- taken away


async def delete_topics(request: WebApiRequest) -> list[Answer]:
    """Hide topics from TubeMQ's clients."""
    return await _change_status(request, _hide_topic)


async def restore_topics(request: WebApiRequest) -> list[Answer]:
    """Undo that."""
    return await _change_status(request, _restore_topic)


async def remove_topics(request: WebApiRequest) -> list[Answer]:
    """Delete topics for all protocols."""
    return await _change_status(request, _remove_topic)


async def _change_status(
    request: WebApiRequest,
    work: Callable[[WebApiRequest, int, Callable[[], Topic]], Awaitable[None]],
) -> list[Answer]:
    found = []
    for broker_id in _needed_brokers(request):
        for name in request.needed_topics:
            spelled = format_tubemq(name)
            text = (
                f"Not found the topic {spelled}'s deploy configure in broker={broker_id}, "
                "please confirm the configure first!"
            )
            done = work(request, broker_id, _make_finder(request, broker_id, name, text))
            found.append(await run_item(done, brokerId=broker_id, topicName=spelled))
    return found


async def _hide_topic(
    request: WebApiRequest, broker_id: int, find_existing: Callable[[], Topic]
) -> None:
    topic = find_existing()
    _check_accepts_nothing(broker_id, topic)
    if TUBEMQ_DELETED not in topic.settings:
        await _alter_topic(
            request, find_existing, lambda settings: settings.update({TUBEMQ_DELETED: "true"})
        )


async def _restore_topic(
    request: WebApiRequest, _broker_id: int, find_existing: Callable[[], Topic]
) -> None:
    if TUBEMQ_DELETED in find_existing().settings:
        await _alter_topic(
            request, find_existing, lambda settings: settings.pop(TUBEMQ_DELETED, None)
        )


async def _remove_topic(
    request: WebApiRequest, broker_id: int, find_existing: Callable[[], Topic]
) -> None:
    topic = find_existing()
    _check_accepts_nothing(broker_id, topic)
    await request.delete_topic(topic.name)


def _check_accepts_nothing(broker_id: int, topic: Topic) -> None:
    if any(topic.settings.get(key) != "false" for key in (TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE)):
        raise ItemError(
            NOT_NOW,
            "The values of acceptPublish and acceptSubscribe must be false before change status of "
            f"brokerId-topicName({broker_id}:{format_tubemq(topic.name)}) record!",
        )


def _make_finder(
    request: WebApiRequest, broker_id: int, name: TopicName, text: str
) -> Callable[[], Topic]:
    """Return a function that finds a topic which the principal may change, or raises."""

    def find_existing() -> Topic:
        request.check_access(ResourceKind.TOPIC, name)
        topic = request.broker.cluster.find_topic(name)
        if topic is None or broker_id != BROKER_ID:
            raise ItemError(NOT_FOUND, text)
        return topic

    return find_existing


async def _alter_topic(
    request: WebApiRequest,
    find_existing: Callable[[], Topic],
    change: Callable[[dict[str, str]], object],
    *,
    stamps: bool = False,
) -> None:
    """Change a topic's settings and its stamp; `stamps`: the stamp changes in any case."""

    def changed(settings: dict[str, str]) -> None:
        before = dict(settings)
        change(settings)
        if stamps or settings != before:
            settings[TUBEMQ_STAMP] = _encode_stamp(request.stamp(read_stamp(settings)))

    await request.alter_topic(find_existing, changed)


def _needed_brokers(request: WebApiRequest) -> list[int]:
    request.names("brokerId", needed=True)
    return request.broker_ids


def _check_broker(broker_id: int) -> None:
    if broker_id != BROKER_ID:
        raise ItemError(
            NOT_FOUND,
            f"Not found broker configure record by brokerId={broker_id}, please create the "
            "broker's configure first!",
        )


def _encode_stamp(stamp: ChangeStamp) -> str:
    return msgspec.json.encode(stamp).decode()


def read_stamp(settings: Mapping[str, str]) -> ChangeStamp:
    """Return who created and changed a topic by this API, and when."""
    text = settings.get(TUBEMQ_STAMP)
    return msgspec.json.decode(text, type=ChangeStamp) if text else ChangeStamp()


TOPIC = ResourceKind.TOPIC
ADD, MODIFY, DELETE, REDO, REMOVE = map(
    for_request, (add_topics, modify_topics, delete_topics, restore_topics, remove_topics)
)
ADD_ALL, MODIFY_ALL = (
    for_records("topicJsonSet", add_topics),
    for_records("topicJsonSet", modify_topics),
)

METHODS = tuple(
    WebApiMethod(name, handler, TOPIC, operation, changes=True)
    for handler, operation, names in (
        (ADD, Operation.CREATE, ("admin_add_new_topic_record", "admin_add_topic_deploy_info")),
        (
            ADD_ALL,
            Operation.CREATE,
            ("admin_bath_add_new_topic_record", "admin_bath_add_topic_deploy_info"),
        ),
        (MODIFY, Operation.ALTER, ("admin_modify_topic_info", "admin_update_topic_deploy_info")),
        (MODIFY_ALL, Operation.ALTER, ("admin_batch_update_topic_deploy_info",)),
        (DELETE, Operation.ALTER, ("admin_delete_topic_info", "admin_delete_topic_deploy_info")),
        (
            REDO,
            Operation.ALTER,
            ("admin_redo_deleted_topic_info", "admin_redo_deleted_topic_deploy_info"),
        ),
        (REMOVE, Operation.DELETE, ("admin_remove_topic_info", "admin_remove_topic_deploy_info")),
    )
    for name in names
)
