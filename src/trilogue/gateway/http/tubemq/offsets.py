"""Offsets of TubeMQ's groups: what a real broker serves at its own web port, here at both paths.

An offset is where a group reads on. Moving it drops what a consumer received and has not confirmed;
the response is sent when the move is durable. Offsets count messages, where a real broker counts 28
bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.facts import Protocol
from trilogue.broker.names import TopicName, format_tubemq
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.registrations import Registration
from trilogue.gateway.http.administration import await_promise
from trilogue.gateway.http.tubemq.web_api_request import (
    VALUE_SIZE_MAX,
    Answer,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    broker_response,
    change_response,
    error_response,
    format_date,
    parse_topic_name,
)
from trilogue.gateway.steps import next_step
from trilogue.gateway.tubemq.broker_map import BROKER_ID

NO_TOPIC = "Invalid parameter: not found the topicName configure!"
NO_PARTITION = "Invalid parameter: not found the store by topicName!"
NO_OFFSET = -1  # an offset that does not exist
KEY_PARTS = 3
MOVES_MAX = 100_000  # of one request
MOVES_AT_ONCE = 1_000


# -- one partition


def query_group_offset(request: WebApiRequest) -> Answer:
    """Return the offset of a group in one partition."""
    group, partition = _needed_group(request), _needed_partition(request)
    reader = request.broker.registrations.find_registration(partition.partition_id, group)
    fields: Answer = {
        "result": True,
        "errCode": 0,
        "errMsg": "OK!",
        "tmpOffset": reader.temporary if reader is not None else 0,
        "minOffset": partition.log.start_offset,
        "maxOffset": partition.log.high_watermark,
        "zkOffset": _find_offset(request, partition, group),
    }
    if request.flag("requireRealOffset", default=False):
        fields |= {"curReadDataOffset": NO_OFFSET, "curRdDltDataOffset": NO_OFFSET}
    return fields


async def set_group_offset(request: WebApiRequest) -> Answer:
    """Move a group in one partition to an offset in the log."""
    group, partition = _needed_group(request), _needed_partition(request)
    offset = request.number("manualOffset", low=0, high=(1 << 63) - 1)
    low, high = partition.log.start_offset, partition.log.high_watermark
    if offset < low:
        return error_response(
            f"Invalid parameter: manualOffset lower than Current MinOffset:({offset} < {low})"
        )
    if offset > high:
        return error_response(
            f"Invalid parameter: manualOffset bigger than Current MaxOffset:({offset} > {high})"
        )
    before = _find_offset(request, partition, group)
    await await_promise(request.broker.registrations.reset(partition, group, offset))
    fields = {"errMsg": "Manual update current Offset success!", "oldOffset": before}
    return {**change_response(), **fields}


# -- many


async def query_offsets(request: WebApiRequest) -> Answer:
    """Return the offsets of groups in topics."""
    wanted, rows = {str(each) for each in request.topics}, []
    here = _GroupOffsets(request)
    for group in request.groups or _booked_groups(request):
        if not request.can_see(ResourceKind.GROUP, group):
            continue
        topics = []
        for topic, ids in here.of_group(group).items():
            if (wanted and str(topic.name) not in wanted) or not request.shows_topic(topic.name):
                continue
            offsets = [_describe_offset(request, topic, number, group) for number in ids]
            named = format_tubemq(topic.name)
            topics.append({"topicName": named, "offsets": offsets, "partCount": len(offsets)})
        await next_step()
        if topics:
            rows.append({"groupName": group, "subInfo": topics, "topicCount": len(topics)})
    return broker_response(rows)


def _describe_offset(request: WebApiRequest, topic: Topic, number: int, group: str) -> Answer:
    partition = topic.partitions[number]
    reader = request.broker.registrations.find_registration(partition.partition_id, group)
    offset, end = _find_offset(request, partition, group), partition.log.high_watermark
    return {
        "partitionId": number,
        "curOffset": offset,
        "flightOffset": reader.next_offset if reader is not None else offset,
        "offsetLag": end - offset if offset >= 0 else end - partition.log.start_offset,
        "offsetMax": end,
    }


async def set_offsets(request: WebApiRequest) -> Answer:
    """Move groups: to the offsets in a JSON object, or to the end of topics."""
    groups = request.needed_groups
    if request.flag("manualSet"):
        places = _parse_offsets(request)
    else:
        places = [
            (partition, partition.log.high_watermark)
            for topic in _find_topics(request, request.needed_topics)
            for partition in topic.partitions
        ]
    await _move_groups(request, groups, places)
    return change_response()


def _parse_offsets(request: WebApiRequest) -> list[tuple[Partition, int]]:
    """Parse and check `{"brokerId:topic:partitionId": offset}`."""
    text = request.text("offsetJsonInfo", most=VALUE_SIZE_MAX)
    try:
        found = msgspec.json.decode(text, type=dict[str, int])
    except (msgspec.DecodeError, RecursionError) as error:
        raise WebApiError(
            f"Parameter offsetJsonInfo value parse failure, error is {error}!"
        ) from error
    places = []
    for key, offset in found.items():
        parts = key.split(":")
        if len(parts) != KEY_PARTS:
            raise WebApiError(
                f"Parameter offsetJsonInfo's key invalid: {key} must be "
                "brokerId:topicName:partitionId !"
            )
        one = request.of({"brokerId": parts[0], "topicName": parts[1], "partitionId": parts[2]})
        if one.number("brokerId") == BROKER_ID:  # the others belong to other brokers
            if not 0 <= offset < 1 << 63:
                raise WebApiError("Parameter offsetJsonInfo's value is invalid!")
            places.append((_needed_partition(one), offset))
    return places


async def clone_offsets(request: WebApiRequest) -> Answer:
    """Move other groups to the offsets of one."""
    source = request.text("sourceGroupName")
    if source not in _booked_groups(request):
        return error_response(
            f"Parameter sourceGroupName: {source} has not been registered on this Broker!"
        )
    wanted = {str(each) for each in request.topics}
    places = [
        (partition, _find_offset(request, partition, source))
        for topic, numbers in _GroupOffsets(request).of_group(source).items()
        for partition in (topic.partitions[number] for number in numbers)
        if not wanted or str(topic.name) in wanted
    ]
    if not places:
        return error_response(
            f"Parameter sourceGroupName: {source} unsubscribed to the specified topic set!"
        )
    targets = request.of({"groupName": request.text("targetGroupName")}).needed_groups
    await _move_groups(request, targets, places)
    return change_response()


async def remove_offsets(request: WebApiRequest) -> Answer:
    """Delete the offsets of groups; registered partitions keep theirs."""
    if request.flag("onlyMemory", default=False):
        raise WebApiError("onlyMemory: what a group knows is not kept in memory only")
    wanted = {str(each) for each in request.topics}
    registrations, here = request.broker.registrations, _GroupOffsets(request)
    for group in request.needed_groups:
        request.check_access(ResourceKind.GROUP, group)
        for topic, numbers in here.of_group(group).items():
            if wanted and str(topic.name) not in wanted:
                continue
            for number in numbers:
                partition = topic.partitions[number]
                if registrations.find_registration(partition.partition_id, group) is None:
                    await await_promise(registrations.forget(partition, group))
    return {**change_response(), "data": []}


async def _move_groups(
    request: WebApiRequest, groups: list[str], places: list[tuple[Partition, int]]
) -> None:
    """Move groups; many moves are in flight before the first is awaited."""
    if len(groups) * len(places) > MOVES_MAX:
        raise WebApiError(f"at most {MOVES_MAX} positions are moved at once")
    for group in groups:
        request.check_access(ResourceKind.GROUP, group)
    for group in groups:
        for at in range(0, len(places), MOVES_AT_ONCE):
            some = places[at : at + MOVES_AT_ONCE]
            moves = [
                request.broker.registrations.reset(part, group, offset) for part, offset in some
            ]
            for moved in moves:
                await await_promise(moved)


# -- who reads


def query_registrations(request: WebApiRequest) -> Answer:
    """Return the consumer of each registered partition."""
    data = [
        {
            "Partition": f"{reader.group}:{format_tubemq(topic.name)}:{number}",
            "Consumer": reader.client_id,
            "index": index,
        }
        for index, (reader, topic, number) in enumerate(_find_registrations(request), 1)
    ]
    return broker_response(data)


def query_consumers(request: WebApiRequest) -> Answer:
    """Return all data of registrations."""
    data = []
    for index, (reader, topic, number) in enumerate(_find_registrations(request), 1):
        log = reader.partition.log
        data.append(
            {
                "index": index,
                "groupName": reader.group,
                "topicName": format_tubemq(topic.name),
                "partitionId": number,
                "consumerId": reader.client_id,
                "isRegOk": True,
                "lastRegTime": format_date(reader.registered_ms),
                "isFilterConsume": bool(reader.filters),
                "isMessageStoreOk": True,
                "tmpOffset": reader.temporary,
                "minOffset": log.start_offset,
                "maxOffset": log.high_watermark,
                "zkOffset": reader.committed,
            }
        )
    return broker_response(data)


def query_booked_groups(request: WebApiRequest) -> Answer:
    """Return the groups with offsets, on request those with registrations apart."""
    every = [
        group for group in _booked_groups(request) if request.can_see(ResourceKind.GROUP, group)
    ]
    if not request.flag("divide", default=False):
        return broker_response([_describe_groups("all", every)], "dataCount")
    online = {reader.group for reader in request.broker.registrations.readers()}
    return broker_response(
        [
            _describe_groups("online", [group for group in every if group in online]),
            _describe_groups("offline", [group for group in every if group not in online]),
        ],
        "dataCount",
    )


def _describe_groups(kind: str, groups: list[str]) -> Answer:
    return {"type": kind, "groupName": groups, "groupCount": len(groups)}


# -- help


def _needed_group(request: WebApiRequest) -> str:
    group = request.needed_groups[0]
    request.check_access(ResourceKind.GROUP, group)
    return group


def _needed_partition(request: WebApiRequest) -> Partition:
    topic = _find_topics(request, [parse_topic_name(request.text("topicName"))])[0]
    number = request.number("partitionId")
    if number >= len(topic.partitions):
        raise WebApiError(NO_PARTITION)
    return topic.partitions[number]


def _find_topics(request: WebApiRequest, names: Iterable[TopicName]) -> list[Topic]:
    found = []
    for name in names:
        topic = request.broker.cluster.find_topic(name)
        if topic is None:
            raise WebApiError(NO_TOPIC)
        request.check_access(ResourceKind.TOPIC, name)
        found.append(topic)
    return found


def _find_offset(request: WebApiRequest, partition: Partition, group: str) -> int:
    found = request.broker.registrations.position(partition.partition_id, group)
    return NO_OFFSET if found is None else found


def _booked_groups(request: WebApiRequest) -> list[str]:
    broker = request.broker
    names = {reader.group for reader in broker.registrations.readers()}
    for group in broker.committed_offsets.names(Protocol.TUBEMQ):
        if group not in names:
            there = broker.committed_offsets.positions(Protocol.TUBEMQ, group)
            if any(position.mark >= 0 for position in there.values()):
                names.add(group)
    return sorted(names)


class _GroupOffsets:
    """The partitions in which groups have offsets, looked up once per request."""

    def __init__(self, request: WebApiRequest) -> None:
        self._request = request
        self._where = _partitions_by_id(request)
        self._read: dict[str, set[int]] = {}
        for reader in request.broker.registrations.readers():
            self._read.setdefault(reader.group, set()).add(reader.partition.partition_id)

    def of_group(self, group: str) -> dict[Topic, list[int]]:
        """Return the topics and partition numbers in which a group has an offset."""
        ids = {*self._request.broker.committed_offsets.positions(Protocol.TUBEMQ, group)}
        ids |= self._read.get(group, set())
        places = sorted(
            (self._where[each] for each in ids if each in self._where),
            key=lambda place: (place[0].name, place[1]),
        )
        found: dict[Topic, list[int]] = {}
        for topic, number in places:
            if _find_offset(self._request, topic.partitions[number], group) != NO_OFFSET:
                found.setdefault(topic, []).append(number)
        return found


def _partitions_by_id(request: WebApiRequest) -> dict[int, tuple[Topic, int]]:
    """Return topic and number of each partition, by partition id."""
    return {
        partition.partition_id: (topic, number)
        for topic in request.found_topics()
        for number, partition in enumerate(topic.partitions)
    }


def _find_registrations(request: WebApiRequest) -> list[tuple[Registration, Topic, int]]:
    wanted = set(request.groups)
    where = _partitions_by_id(request)
    found = [
        (reader, *where[reader.partition.partition_id])
        for reader in request.broker.registrations.readers()
        if (not wanted or reader.group in wanted)
        and reader.partition.partition_id in where
        and request.can_see(ResourceKind.GROUP, reader.group)
    ]
    return sorted(found, key=lambda each: (each[0].group, each[1].name, each[2]))


GROUP = ResourceKind.GROUP
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER
METHODS = (
    WebApiMethod("admin_query_group_offset", query_group_offset, GROUP, DESCRIBE, of_broker=True),
    WebApiMethod(
        "admin_manual_set_current_offset",
        set_group_offset,
        GROUP,
        ALTER,
        changes=True,
        of_broker=True,
    ),
    WebApiMethod("admin_query_offset", query_offsets, GROUP, DESCRIBE, of_broker=True),
    WebApiMethod("admin_set_offset", set_offsets, GROUP, ALTER, changes=True, of_broker=True),
    WebApiMethod("admin_clone_offset", clone_offsets, GROUP, ALTER, changes=True, of_broker=True),
    WebApiMethod("admin_rmv_offset", remove_offsets, GROUP, ALTER, changes=True, of_broker=True),
    WebApiMethod("admin_query_group", query_booked_groups, GROUP, DESCRIBE, of_broker=True),
    WebApiMethod(
        "admin_get_booked_groupname", query_booked_groups, GROUP, DESCRIBE, of_broker=True
    ),
    WebApiMethod(
        "admin_query_consumer_regmap", query_registrations, GROUP, DESCRIBE, of_broker=True
    ),
    WebApiMethod(
        "admin_get_partition_reginfo", query_registrations, GROUP, DESCRIBE, of_broker=True
    ),
    WebApiMethod(
        "admin_query_broker_all_consumer_info", query_consumers, GROUP, DESCRIBE, of_broker=True
    ),
    WebApiMethod("admin_get_group_detail_info", query_consumers, GROUP, DESCRIBE, of_broker=True),
)
