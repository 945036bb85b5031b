"""Where TubeMQ's groups are: what a real broker answers at its own web port, here at both paths.

A position is where a group reads on. Moving it takes what its reader was handed out and has not
confirmed from it, and is answered when it is durable. Offsets are plain numbers of messages, where
a real broker counts 28 bytes for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.facts import Protocol
from trilogue.broker.names import TopicName, spelled_tubemq
from trilogue.broker.partition import Partition
from trilogue.broker.readings import Reader
from trilogue.broker.topic import Topic
from trilogue.gateway.http.changing import kept
from trilogue.gateway.http.tubemq_asked import (
    VALUE_SIZE_MAX,
    Answer,
    Asked,
    Row,
    Wrong,
    date,
    done,
    refused,
    success,
    topic_name,
)
from trilogue.gateway.tubemq.door import BROKER_ID

NO_TOPIC = "Invalid parameter: not found the topicName configure!"
NO_PARTITION = "Invalid parameter: not found the store by topicName!"
NOWHERE = -1  # of a position that there is none of
KEY_PARTS = 3
MOVES_MAX = 100_000  # of one request
MOVES_AT_ONCE = 1_000


# -- one partition


def current(asked: Asked) -> Answer:
    """Tell where a group is in one partition."""
    group, partition = _group(asked), _partition(asked)
    reader = asked.broker.readings.find(partition.partition_id, group)
    told: Answer = {
        "result": True,
        "errCode": 0,
        "errMsg": "OK!",
        "tmpOffset": reader.temporary if reader is not None else 0,
        "minOffset": partition.log.start_offset,
        "maxOffset": partition.log.high_watermark,
        "zkOffset": _position(asked, partition, group),
    }
    if asked.flag("requireRealOffset", default=False):
        told |= {"curReadDataOffset": NOWHERE, "curRdDltDataOffset": NOWHERE}
    return told


async def set_current(asked: Asked) -> Answer:
    """Move a group in one partition, to a place that is there."""
    group, partition = _group(asked), _partition(asked)
    offset = asked.number("manualOffset", low=0, high=(1 << 63) - 1)
    low, high = partition.log.start_offset, partition.log.high_watermark
    if offset < low:
        return refused(
            f"Invalid parameter: manualOffset lower than Current MinOffset:({offset} < {low})"
        )
    if offset > high:
        return refused(
            f"Invalid parameter: manualOffset bigger than Current MaxOffset:({offset} > {high})"
        )
    before = _position(asked, partition, group)
    await kept(asked.broker.readings.reset(partition, group, offset))
    told = {"errMsg": "Manual update current Offset success!", "oldOffset": before}
    return {**done(), **told}


# -- many


async def positions(asked: Asked) -> Answer:
    """Tell where groups are in topics."""
    wanted, told = {str(each) for each in asked.topics}, []
    here = _Here(asked)
    for group in asked.groups or _booked(asked):
        if not asked.allowed(ResourceKind.GROUP, group):
            continue
        topics = []
        for topic, ids in here.of_group(group).items():
            if wanted and str(topic.name) not in wanted:
                continue
            offsets = [_told(asked, topic, number, group) for number in ids]
            named = spelled_tubemq(topic.name)
            topics.append({"topicName": named, "offsets": offsets, "partCount": len(offsets)})
        await asyncio.sleep(0)  # others have their turn
        if topics:
            told.append({"groupName": group, "subInfo": topics, "topicCount": len(topics)})
    return success(told)


def _told(asked: Asked, topic: Topic, number: int, group: str) -> Answer:
    partition = topic.partitions[number]
    reader = asked.broker.readings.find(partition.partition_id, group)
    offset, end = _position(asked, partition, group), partition.log.high_watermark
    return {
        "partitionId": number,
        "curOffset": offset,
        "flightOffset": reader.next_offset if reader is not None else offset,
        "offsetLag": end - offset if offset >= 0 else end - partition.log.start_offset,
        "offsetMax": end,
    }


async def set_positions(asked: Asked) -> Answer:
    """Move groups: where a JSON object of partitions says, or to the end of topics."""
    groups = asked.needed_groups
    if asked.flag("manualSet"):
        places = _places(asked)
    else:
        places = [
            (partition, partition.log.high_watermark)
            for topic in _topics(asked, asked.needed_topics)
            for partition in topic.partitions
        ]
    await _move(asked, groups, places)
    return done()


def _places(asked: Asked) -> list[tuple[Partition, int]]:
    """`{"brokerId:topic:partitionId": offset}`, checked."""
    text = asked.text("offsetJsonInfo", most=VALUE_SIZE_MAX)
    try:
        found = msgspec.json.decode(text, type=dict[str, int])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Wrong(f"Parameter offsetJsonInfo value parse failure, error is {error}!") from error
    places = []
    for key, offset in found.items():
        parts = key.split(":")
        if len(parts) != KEY_PARTS:
            raise Wrong(
                f"Parameter offsetJsonInfo's key invalid: {key} must be "
                "brokerId:topicName:partitionId !"
            )
        one = asked.of({"brokerId": parts[0], "topicName": parts[1], "partitionId": parts[2]})
        if one.number("brokerId") == BROKER_ID:  # others are other brokers' affair
            if not 0 <= offset < 1 << 63:
                raise Wrong("Parameter offsetJsonInfo's value is invalid!")
            places.append((_partition(one), offset))
    return places


async def clone(asked: Asked) -> Answer:
    """Put other groups where one is."""
    source = asked.text("sourceGroupName")
    if source not in _booked(asked):
        return refused(
            f"Parameter sourceGroupName: {source} has not been registered on this Broker!"
        )
    wanted = {str(each) for each in asked.topics}
    places = [
        (partition, _position(asked, partition, source))
        for topic, numbers in _Here(asked).of_group(source).items()
        for partition in (topic.partitions[number] for number in numbers)
        if not wanted or str(topic.name) in wanted
    ]
    if not places:
        return refused(
            f"Parameter sourceGroupName: {source} unsubscribed to the specified topic set!"
        )
    targets = asked.of({"groupName": asked.text("targetGroupName")}).needed_groups
    await _move(asked, targets, places)
    return done()


async def remove(asked: Asked) -> Answer:
    """Let groups forget where they are; who reads now goes on."""
    if asked.flag("onlyMemory", default=False):
        raise Wrong("onlyMemory: what a group knows is not kept in memory only")
    wanted = {str(each) for each in asked.topics}
    readings, here = asked.broker.readings, _Here(asked)
    for group in asked.needed_groups:
        asked.check(ResourceKind.GROUP, group)
        for topic, numbers in here.of_group(group).items():
            if wanted and str(topic.name) not in wanted:
                continue
            for number in numbers:
                partition = topic.partitions[number]
                if readings.find(partition.partition_id, group) is None:
                    await kept(readings.forget(partition, group))
    return {**done(), "data": []}


async def _move(asked: Asked, groups: list[str], places: list[tuple[Partition, int]]) -> None:
    """Move groups, many positions on their way before any of them is waited for."""
    if len(groups) * len(places) > MOVES_MAX:
        raise Wrong(f"at most {MOVES_MAX} positions are moved at once")
    for group in groups:
        asked.check(ResourceKind.GROUP, group)
    for group in groups:
        for at in range(0, len(places), MOVES_AT_ONCE):
            some = places[at : at + MOVES_AT_ONCE]
            moves = [asked.broker.readings.reset(part, group, offset) for part, offset in some]
            for moved in moves:
                await kept(moved)


# -- who reads


def registered(asked: Asked) -> Answer:
    """Tell which partition is read by whom."""
    data = [
        {
            "Partition": f"{reader.group}:{spelled_tubemq(topic.name)}:{number}",
            "Consumer": reader.client_id,
            "index": index,
        }
        for index, (reader, topic, number) in enumerate(_readers(asked), 1)
    ]
    return success(data)


def consumers(asked: Asked) -> Answer:
    """Tell all that is known of who reads."""
    data = []
    for index, (reader, topic, number) in enumerate(_readers(asked), 1):
        log = reader.partition.log
        data.append(
            {
                "index": index,
                "groupName": reader.group,
                "topicName": spelled_tubemq(topic.name),
                "partitionId": number,
                "consumerId": reader.client_id,
                "isRegOk": True,
                "lastRegTime": date(reader.registered_ms),
                "isFilterConsume": bool(reader.filters),
                "isMessageStoreOk": True,
                "tmpOffset": reader.temporary,
                "minOffset": log.start_offset,
                "maxOffset": log.high_watermark,
                "zkOffset": reader.committed,
            }
        )
    return success(data)


def booked(asked: Asked) -> Answer:
    """Name the groups that are somewhere, those that read now apart from the others if asked."""
    every = [group for group in _booked(asked) if asked.allowed(ResourceKind.GROUP, group)]
    if not asked.flag("divide", default=False):
        return success([_kind("all", every)], "dataCount")
    online = {reader.group for reader in asked.broker.readings.readers()}
    return success(
        [
            _kind("online", [group for group in every if group in online]),
            _kind("offline", [group for group in every if group not in online]),
        ],
        "dataCount",
    )


def _kind(kind: str, groups: list[str]) -> Answer:
    return {"type": kind, "groupName": groups, "groupCount": len(groups)}


# -- help


def _group(asked: Asked) -> str:
    group = asked.needed_groups[0]
    asked.check(ResourceKind.GROUP, group)
    return group


def _partition(asked: Asked) -> Partition:
    topic = _topics(asked, [topic_name(asked.text("topicName"))])[0]
    number = asked.number("partitionId")
    if number >= len(topic.partitions):
        raise Wrong(NO_PARTITION)
    return topic.partitions[number]


def _topics(asked: Asked, names: Iterable[TopicName]) -> list[Topic]:
    found = []
    for name in names:
        topic = asked.broker.cluster.find(name)
        if topic is None:
            raise Wrong(NO_TOPIC)
        asked.check(ResourceKind.TOPIC, name)
        found.append(topic)
    return found


def _position(asked: Asked, partition: Partition, group: str) -> int:
    found = asked.broker.readings.position(partition.partition_id, group)
    return NOWHERE if found is None else found


def _booked(asked: Asked) -> list[str]:
    broker = asked.broker
    names = {reader.group for reader in broker.readings.readers()}
    for group in broker.cursors.names(Protocol.TUBEMQ):
        if group not in names:
            there = broker.cursors.positions(Protocol.TUBEMQ, group)
            if any(position.offset >= 0 for position in there.values()):
                names.add(group)
    return sorted(names)


class _Here:
    """Where groups are, looked up once for a request."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._where = _where(asked)
        self._read: dict[str, set[int]] = {}
        for reader in asked.broker.readings.readers():
            self._read.setdefault(reader.group, set()).add(reader.partition.partition_id)

    def of_group(self, group: str) -> dict[Topic, list[int]]:
        """The topics, and the numbers of their partitions, in which a group is somewhere."""
        ids = {*self._asked.broker.cursors.positions(Protocol.TUBEMQ, group)}
        ids |= self._read.get(group, set())
        places = sorted(
            (self._where[each] for each in ids if each in self._where),
            key=lambda place: (place[0].name, place[1]),
        )
        found: dict[Topic, list[int]] = {}
        for topic, number in places:
            if _position(self._asked, topic.partitions[number], group) != NOWHERE:
                found.setdefault(topic, []).append(number)
        return found


def _where(asked: Asked) -> dict[int, tuple[Topic, int]]:
    """Partitions by their ids."""
    return {
        partition.partition_id: (topic, number)
        for topic in asked.found_topics()
        for number, partition in enumerate(topic.partitions)
    }


def _readers(asked: Asked) -> list[tuple[Reader, Topic, int]]:
    wanted = set(asked.groups)
    where = _where(asked)
    found = [
        (reader, *where[reader.partition.partition_id])
        for reader in asked.broker.readings.readers()
        if (not wanted or reader.group in wanted)
        and reader.partition.partition_id in where
        and asked.allowed(ResourceKind.GROUP, reader.group)
    ]
    return sorted(found, key=lambda each: (each[0].group, each[1].name, each[2]))


GROUP = ResourceKind.GROUP
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER
ROWS = (
    Row("admin_query_group_offset", current, GROUP, DESCRIBE, of_broker=True),
    Row("admin_manual_set_current_offset", set_current, GROUP, ALTER, changes=True, of_broker=True),
    Row("admin_query_offset", positions, GROUP, DESCRIBE, of_broker=True),
    Row("admin_set_offset", set_positions, GROUP, ALTER, changes=True, of_broker=True),
    Row("admin_clone_offset", clone, GROUP, ALTER, changes=True, of_broker=True),
    Row("admin_rmv_offset", remove, GROUP, ALTER, changes=True, of_broker=True),
    Row("admin_query_group", booked, GROUP, DESCRIBE, of_broker=True),
    Row("admin_get_booked_groupname", booked, GROUP, DESCRIBE, of_broker=True),
    Row("admin_query_consumer_regmap", registered, GROUP, DESCRIBE, of_broker=True),
    Row("admin_get_partition_reginfo", registered, GROUP, DESCRIBE, of_broker=True),
    Row("admin_query_broker_all_consumer_info", consumers, GROUP, DESCRIBE, of_broker=True),
    Row("admin_get_group_detail_info", consumers, GROUP, DESCRIBE, of_broker=True),
)
