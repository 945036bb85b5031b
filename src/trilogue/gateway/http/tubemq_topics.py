"""Topics as TubeMQ's administrators make, change, take away and see them.

A topic that is made here is at once there for all protocols. Taking it away has two steps, as with
a real master: `delete` takes it from TubeMQ's clients only and can be taken back (`redo`); `remove`
deletes it for everybody, with its messages. Both need that it accepts nothing any more.

What a real server keeps for its files (unflushThreshold, memCacheMsgSizeInMB, ...) are bounds on
what is not on disk yet. Here every message is on disk before it is confirmed, which is within any
of them: they are accepted, and there is nothing to keep.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import InvalidPartitions, TopicExists
from trilogue.broker.group_rules import (
    MIB,
    SIZE_KEY,
    Stamp,
    check_message_mib,
)
from trilogue.broker.names import TopicName, spelled_tubemq
from trilogue.broker.settings import (
    TUBEMQ_DELETED,
    TUBEMQ_PUBLISH,
    TUBEMQ_STAMP,
    TUBEMQ_SUBSCRIBE,
    check_settings,
)
from trilogue.broker.topic import Topic
from trilogue.gateway.http.changing import alter_topic, delete_topic, grow_topic
from trilogue.gateway.http.tubemq_asked import (
    BAD_VALUE,
    EXISTS,
    NOT_FOUND,
    NOT_NOW,
    UNCHANGED,
    Answer,
    Asked,
    Failed,
    Row,
    Wrong,
    batch,
    each,
    single,
)
from trilogue.gateway.tubemq.door import BROKER_ID

POLICY = re.compile(r"delete,([0-9]{1,9})([smh]?)")
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "": 3_600_000}
RETENTION = "retention.ms"
ACCEPTS = {"acceptPublish": TUBEMQ_PUBLISH, "acceptSubscribe": TUBEMQ_SUBSCRIBE}
FILE_BOUNDS = {  # what is shown of what has no meaning here: a real server's defaults
    "unflushThreshold": 1_000,
    "unflushInterval": 10_000,
    "unflushDataHold": 0,
    "memCacheMsgSizeInMB": 3,
    "memCacheMsgCntInK": 10,
    "memCacheFlushIntvl": 20_000,
}


# -- made and changed


async def add(asked: Asked) -> list[Answer]:
    """Make topics; one that is there already is left as it is."""
    return [
        await each(_add(asked, broker_id, name), brokerId=broker_id, topicName=spelled_tubemq(name))
        for broker_id in _needed_brokers(asked)
        for name in asked.needed_topics
    ]


async def _add(asked: Asked, broker_id: int, name: TopicName) -> None:
    _check_broker(broker_id)
    asked.check(ResourceKind.TOPIC, name)
    count = asked.number("numPartitions", 1, low=1)
    change = _change(asked)
    cluster = asked.broker.cluster
    try:
        new = cluster.check_create(name, partition_count=count, partitioned=True)
    except TopicExists:
        text = f"Existed record found for brokerId-topicName({broker_id}:{spelled_tubemq(name)})!"
        raise Failed(EXISTS, text) from None
    except InvalidPartitions as error:
        raise Failed(BAD_VALUE, str(error)) from error
    settings = dict(new.settings)
    change(settings)
    settings[TUBEMQ_STAMP] = _text(asked.stamp())
    await asked.door.commit(cluster.plan_create(replace(new, settings=settings)))


async def modify(asked: Asked) -> list[Answer]:
    """Change topics: more partitions, whether they accept, how large and how old messages get."""
    return [
        await each(
            _modify(asked, broker_id, name), brokerId=broker_id, topicName=spelled_tubemq(name)
        )
        for broker_id in _needed_brokers(asked)
        for name in asked.needed_topics
    ]


async def _modify(asked: Asked, broker_id: int, name: TopicName) -> None:
    spelled = spelled_tubemq(name)
    here = f"brokerId-topicName({broker_id}:{spelled})"
    find = _finder(asked, broker_id, name, f"Not found topic deploy configure for {here}!")
    change, now = _change(asked), len(find().partitions)
    count = asked.number("numPartitions", now, low=1)
    if count < now:
        text = f"Partition number less than before, new value is {count}, current value is {now}"
        raise Failed(BAD_VALUE, f"{text} in {here} record!")
    before = dict(find().settings)
    after = dict(before)
    change(after)
    if after == before and count == now:
        raise Failed(UNCHANGED, "Topic deploy configure not changed!")
    await grow_topic(asked.door, find, count)
    await _alter(asked, find, change, stamps=count > now)


def _change(asked: Asked) -> Callable[[dict[str, str]], None]:
    """What a request says of a topic's settings; Wrong for what nobody would keep."""
    _check_stores(asked)
    kept: dict[str, str] = {}
    if asked.has("deletePolicy"):
        kept[RETENTION] = str(_retention_ms(asked.text("deletePolicy")))
    if asked.has("maxMsgSizeInMB"):
        size = asked.number("maxMsgSizeInMB", low=1, high=20)
        kept[SIZE_KEY] = str(check_message_mib(size) * MIB)
    checked = check_settings(kept)
    accepts = {key: asked.flag(name) for name, key in ACCEPTS.items() if asked.has(name)}

    def change(settings: dict[str, str]) -> None:
        settings |= checked
        for key, accepted in accepts.items():
            settings.pop(key, None)
            if not accepted:
                settings[key] = "false"

    return change


def _check_stores(asked: Asked) -> None:
    """Refuse what would be another layout of files than ours; bounds of theirs are kept anyhow."""
    if asked.number("numTopicStores", 1, low=1) != 1:
        raise Wrong("numTopicStores: a topic has one store, and as many partitions as it needs")
    if asked.has("dataPath"):
        raise Wrong("dataPath: where data is, the settings of the node say")
    for name in FILE_BOUNDS:
        asked.number(name, 0)


def _retention_ms(policy: str) -> int:
    found = POLICY.fullmatch(policy)
    if found is None:
        raise Wrong(
            "Value must include one and only one comma character, the format of deletePolicy must "
            "like delete,{digital}[m|s|h]"
        )
    retention_ms = int(found[1]) * UNIT_MS[found[2]]
    if retention_ms <= 0:
        raise Wrong("deletePolicy: a time that is not zero is needed")
    return retention_ms


# -- taken away


async def delete(asked: Asked) -> list[Answer]:
    """Take topics from TubeMQ's clients."""
    return await _status(asked, _delete)


async def redo(asked: Asked) -> list[Answer]:
    """Give them back."""
    return await _status(asked, _redo)


async def remove(asked: Asked) -> list[Answer]:
    """Delete topics for good, for all protocols."""
    return await _status(asked, _remove)


async def _status(
    asked: Asked, work: Callable[[Asked, int, Callable[[], Topic]], Awaitable[None]]
) -> list[Answer]:
    found = []
    for broker_id in _needed_brokers(asked):
        for name in asked.needed_topics:
            spelled = spelled_tubemq(name)
            text = (
                f"Not found the topic {spelled}'s deploy configure in broker={broker_id}, "
                "please confirm the configure first!"
            )
            done = work(asked, broker_id, _finder(asked, broker_id, name, text))
            found.append(await each(done, brokerId=broker_id, topicName=spelled))
    return found


async def _delete(asked: Asked, broker_id: int, find: Callable[[], Topic]) -> None:
    topic = find()
    _check_accepts_nothing(broker_id, topic)
    if TUBEMQ_DELETED not in topic.settings:
        await _alter(asked, find, lambda settings: settings.update({TUBEMQ_DELETED: "true"}))


async def _redo(asked: Asked, _broker_id: int, find: Callable[[], Topic]) -> None:
    if TUBEMQ_DELETED in find().settings:
        await _alter(asked, find, lambda settings: settings.pop(TUBEMQ_DELETED, None))


async def _remove(asked: Asked, broker_id: int, find: Callable[[], Topic]) -> None:
    topic = find()
    _check_accepts_nothing(broker_id, topic)
    await delete_topic(asked.door, topic.name)


def _check_accepts_nothing(broker_id: int, topic: Topic) -> None:
    if any(topic.settings.get(key) != "false" for key in (TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE)):
        raise Failed(
            NOT_NOW,
            "The values of acceptPublish and acceptSubscribe must be false before change status of "
            f"brokerId-topicName({broker_id}:{spelled_tubemq(topic.name)}) record!",
        )


def _finder(asked: Asked, broker_id: int, name: TopicName, text: str) -> Callable[[], Topic]:
    """What finds a topic that is there and that the administrator may change, or raises."""

    def find() -> Topic:
        asked.check(ResourceKind.TOPIC, name)
        topic = asked.broker.cluster.find(name)
        if topic is None or broker_id != BROKER_ID:
            raise Failed(NOT_FOUND, text)
        return topic

    return find


async def _alter(
    asked: Asked,
    find: Callable[[], Topic],
    change: Callable[[dict[str, str]], object],
    *,
    stamps: bool = False,
) -> None:
    """Change a topic's settings, and say who did; `stamps`: something else of it was changed."""

    def changed(settings: dict[str, str]) -> None:
        before = dict(settings)
        change(settings)
        if stamps or settings != before:
            settings[TUBEMQ_STAMP] = _text(asked.stamp(stamp_of(settings)))

    await alter_topic(asked.door, find, changed)


def _needed_brokers(asked: Asked) -> list[int]:
    asked.names("brokerId", needed=True)
    return asked.broker_ids


def _check_broker(broker_id: int) -> None:
    if broker_id != BROKER_ID:
        raise Failed(
            NOT_FOUND,
            f"Not found broker configure record by brokerId={broker_id}, please create the "
            "broker's configure first!",
        )


def _text(stamp: Stamp) -> str:
    return msgspec.json.encode(stamp).decode()


def stamp_of(settings: Mapping[str, str]) -> Stamp:
    """Who made a topic and who changed it, as far as TubeMQ's administration was used for that."""
    text = settings.get(TUBEMQ_STAMP)
    return msgspec.json.decode(text, type=Stamp) if text else Stamp()


TOPIC = ResourceKind.TOPIC
ADD, MODIFY, DELETE, REDO, REMOVE = map(single, (add, modify, delete, redo, remove))
ADD_ALL, MODIFY_ALL = batch("topicJsonSet", add), batch("topicJsonSet", modify)

ROWS = tuple(
    Row(name, handler, TOPIC, operation, changes=True)
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
