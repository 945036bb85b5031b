"""Version 3: consumer groups, their members, and their lag."""

from __future__ import annotations

from typing import Any

import msgspec

from trilogue.client.kafka.admin.model import GroupDescription, MemberDescription
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import LATEST, Partition, granted
from trilogue.gateway.http.kafka_rest.links import (
    MEDIA_TYPE,
    ROOT,
    check_cluster,
    make_head,
    make_link,
    make_list,
)
from trilogue.gateway.http.kafka_rest.rest_errors import RestError
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
)


def routes() -> list[RestRoute]:
    """Return the routes of groups."""
    groups = f"{ROOT}/{{cluster}}/consumer-groups"
    group, place = f"{groups}/{{group}}", "{topic}/partitions/{partition}"
    member = f"{group}/consumers/{{member}}"
    return [
        RestRoute("GET", groups, list_groups),
        RestRoute("GET", group, get_group),
        RestRoute("GET", f"{group}/consumers", list_consumers),
        RestRoute("GET", member, get_consumer),
        RestRoute("GET", f"{member}/assignments", list_assignments),
        RestRoute("GET", f"{member}/assignments/{place}", get_assignment),
        RestRoute("GET", f"{group}/lags", list_lags),
        RestRoute("GET", f"{group}/lags/{place}", get_lag),
        RestRoute("GET", f"{group}/lag-summary", get_lag_summary),
    ]


async def list_groups(request: RestRequest) -> RestReply:
    """Return the groups that the client may describe."""
    found = await check_cluster(request)
    admin = request.client.admin
    names = [each.name for each in await admin.list_groups(types=("classic", "consumer"))]
    groups = granted(await admin.describe_groups(names)) if names else {}
    listed = [_describe_group(request, groups[name]) for name in sorted(groups)]
    path = f"{ROOT}/{found.cluster_id}/consumer-groups"
    return make_list(request, "KafkaConsumerGroup", listed, path)


async def get_group(request: RestRequest) -> RestReply:
    """Return one group."""
    return RestReply(_describe_group(request, await _find_group(request)), MEDIA_TYPE)


async def list_consumers(request: RestRequest) -> RestReply:
    """Return the members of a group."""
    group = await _find_group(request)
    path = f"{_group_path(request, group.name)}/consumers"
    members = [_describe_member(request, group, member) for member in group.members]
    return make_list(request, "KafkaConsumer", members, path)


async def get_consumer(request: RestRequest) -> RestReply:
    """Return one member of a group."""
    group = await _find_group(request)
    return RestReply(_describe_member(request, group, _find_member(request, group)), MEDIA_TYPE)


def _find_member(request: RestRequest, group: GroupDescription) -> MemberDescription:
    for each in group.members:
        if each.member_id == request.params["member"]:
            return each
    raise RestError(404, f"Consumer {request.params['member'][:100]} could not be found.")


def _describe_member(
    request: RestRequest, group: GroupDescription, member: MemberDescription
) -> dict[str, Any]:
    path = f"{_group_path(request, group.name)}/consumers/{member.member_id}"
    return {
        **make_head(request, "KafkaConsumer", path),
        "cluster_id": request.params["cluster"],
        "consumer_group_id": group.name,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "assignments": {"related": make_link(request, f"{path}/assignments")},
    }


async def list_assignments(request: RestRequest) -> RestReply:
    """Return the partitions of a member."""
    group = await _find_group(request)
    member = _find_member(request, group)
    path = f"{_group_path(request, group.name)}/consumers/{member.member_id}/assignments"
    listed = [_describe_assignment(request, member, *each) for each in sorted(member.assignment)]
    return make_list(request, "KafkaConsumerAssignment", listed, path)


async def get_assignment(request: RestRequest) -> RestReply:
    """Return one partition of a member."""
    member = _find_member(request, await _find_group(request))
    wanted = (request.params["topic"], request.number("partition"))
    if wanted not in member.assignment:
        raise RestError(404, "Consumer Assignment could not be found.")
    return RestReply(_describe_assignment(request, member, *wanted), MEDIA_TYPE)


def _describe_assignment(
    request: RestRequest, member: MemberDescription, topic: str, number: int
) -> dict[str, Any]:
    name = request.params["group"]
    path, place = _group_path(request, name), f"{topic}/partitions/{number}"
    topics = f"{ROOT}/{request.params['cluster']}/topics"
    self_path = f"{path}/consumers/{member.member_id}/assignments/{place}"
    return {
        **make_head(request, "KafkaConsumerAssignment", self_path),
        "cluster_id": request.params["cluster"],
        "consumer_group_id": name,
        "consumer_id": member.member_id,
        "topic_name": topic,
        "partition_id": number,
        "partition": {"related": make_link(request, f"{topics}/{place}")},
        "lag": {"related": make_link(request, f"{path}/lags/{place}")},
    }


# -- lag


class Lag(msgspec.Struct, frozen=True):
    """A committed offset, the end of its partition, and the member that has the partition."""

    partition: Partition
    member: MemberDescription | None
    current: int
    end: int

    @property
    def lag(self) -> int:
        """The number of offsets between."""
        return max(0, self.end - self.current)


async def list_lags(request: RestRequest) -> RestReply:
    """Return the lag of a group by partition, the largest first."""
    lags = await _find_lags(request)
    path = f"{_group_path(request, request.params['group'])}/lags"
    listed = [_describe_lag(request, each) for each in lags]
    return make_list(request, "KafkaConsumerLag", listed, path)


async def get_lag(request: RestRequest) -> RestReply:
    """Return the lag of a group in one partition."""
    wanted = (request.params["topic"], request.number("partition"))
    for each in await _find_lags(request):
        if each.partition == wanted:
            return RestReply(_describe_lag(request, each), MEDIA_TYPE)
    raise RestError(404, "Consumer lag not found.")


async def get_lag_summary(request: RestRequest) -> RestReply:
    """Return the sum of the lags of a group, and the largest one."""
    lags = await _find_lags(request)
    name, largest = request.params["group"], lags[0]
    path, member = _group_path(request, name), largest.member
    topic, number = largest.partition
    place = f"{ROOT}/{request.params['cluster']}/topics/{topic}/partitions/{number}"
    member_id = "" if member is None else member.member_id
    summary = {
        **make_head(request, "KafkaConsumerGroupLagSummary", f"{path}/lag-summary"),
        "cluster_id": request.params["cluster"],
        "consumer_group_id": name,
        "max_lag_consumer_id": member_id,
        "max_lag_instance_id": None if member is None else member.instance_id,
        "max_lag_client_id": "" if member is None else member.client_id,
        "max_lag_topic_name": topic,
        "max_lag_partition_id": number,
        "max_lag": largest.lag,
        "total_lag": sum(each.lag for each in lags),
        "max_lag_consumer": {"related": make_link(request, f"{path}/consumers/{member_id}")},
        "max_lag_partition": {"related": make_link(request, place)},
    }
    return RestReply(summary, MEDIA_TYPE)


async def _find_lags(request: RestRequest) -> list[Lag]:
    """Return the lags of the group of the path, at least one; raises RestError 404."""
    group, admin = await _find_group(request), request.client.admin
    offsets = granted(await admin.group_offsets(group.name))
    ends = granted(await admin.list_offsets(dict.fromkeys(offsets, LATEST))) if offsets else {}
    owners = {place: each for each in group.members for place in each.assignment}
    lags = [
        Lag(place, owners.get(place), offset.offset, ends[place].offset)
        for place, offset in offsets.items()
    ]
    if not lags:
        raise RestError(404, "Consumer lags not found.")
    return sorted(lags, key=lambda each: (-each.lag, each.partition))


def _describe_lag(request: RestRequest, lag: Lag) -> dict[str, Any]:
    name, member = request.params["group"], lag.member
    topic, number = lag.partition
    path = f"{_group_path(request, name)}/lags/{topic}/partitions/{number}"
    return {
        **make_head(request, "KafkaConsumerLag", path),
        "cluster_id": request.params["cluster"],
        "consumer_group_id": name,
        "topic_name": topic,
        "partition_id": number,
        "consumer_id": "" if member is None else member.member_id,
        "instance_id": None if member is None else member.instance_id,
        "client_id": "" if member is None else member.client_id,
        "current_offset": lag.current,
        "log_end_offset": lag.end,
        "lag": lag.lag,
    }


# -- inside


async def _find_group(request: RestRequest) -> GroupDescription:
    await check_cluster(request)
    name = request.params["group"]
    try:
        found = granted(await request.client.admin.describe_groups([name]))[name]
    except KafkaError as problem:
        if problem.error.name == "GROUP_ID_NOT_FOUND":
            raise RestError(404, f"Consumer Group {name[:100]} could not be found.") from problem
        raise
    if found.state == "Dead":
        raise RestError(404, f"Consumer Group {name[:100]} could not be found.")
    return found


def _describe_group(request: RestRequest, group: GroupDescription) -> dict[str, Any]:
    path = _group_path(request, group.name)
    return {
        **make_head(request, "KafkaConsumerGroup", path),
        "cluster_id": request.params["cluster"],
        "consumer_group_id": group.name,
        "is_simple": not group.protocol_type,
        "partition_assignor": group.assignor,
        "state": _state_name(group.state),
        "consumers": {"related": make_link(request, f"{path}/consumers")},
        "lag_summary": {"related": make_link(request, f"{path}/lag-summary")},
    }


def _state_name(state: str) -> str:
    """Return `PreparingRebalance` as PREPARING_REBALANCE."""
    parts = "".join(f"_{each}" if each.isupper() else each for each in state)
    return parts.strip("_").upper()


def _group_path(request: RestRequest, name: str) -> str:
    return f"{ROOT}/{request.params['cluster']}/consumer-groups/{name}"
