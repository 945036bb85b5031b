"""Flow control of TubeMQ's groups: the default rules, and those of single groups.

Older methods (`..._flow_control_rule`, `..._consume_group_setting`) and newer ones
(`..._group_resctrl_info`) change and return the same records. The flow control of the cluster comes
with the largest message of topics without a setting of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.tubemq.flow_control import parse_rules
from trilogue.broker.tubemq.group_rules import (
    MIB,
    ClusterRecord,
    FlowControlText,
    TubeGroupRecord,
    check_message_mib,
    next_flow_text,
)
from trilogue.gateway.http.tubemq.topic_views import describe_storage
from trilogue.gateway.http.tubemq.topics import FILE_BOUNDS
from trilogue.gateway.http.tubemq.web_api_request import (
    EXISTS,
    NOT_FOUND,
    UNCHANGED,
    UNDEFINED,
    VALUE_SIZE_MAX,
    Answer,
    ItemError,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    describe_stamp,
    for_records,
    for_request,
    master_response,
    run_item,
)

PRIORITY = 301  # real servers' default of qryPriorityId
NODE_SETTINGS = (  # defaults of a real master's cluster, here settings of the node
    "brokerPort",
    "brokerTLSPort",
    "brokerWebPort",
    "numTopicStores",
    "numPartitions",
    "deletePolicy",
    "acceptPublish",
    "acceptSubscribe",
    "dataPath",
)


# -- for all groups


def query_default_flow(request: WebApiRequest) -> Answer:
    """Return the default flow control."""
    return master_response(_describe_default(request))


async def set_default_flow(request: WebApiRequest) -> Answer:
    """Set the default flow control."""
    _check_priority(request)

    def change(record: ClusterRecord) -> ClusterRecord:
        flow = _read_flow(
            request, record.flow, request.number("statusId", int(record.flow.holds), high=1) == 1
        )
        return msgspec.structs.replace(
            record, flow=flow, message_mib_max=_read_message_mib(request, record)
        )

    await _change_cluster(request, change)
    return master_response(_describe_default(request))


async def remove_default_flow(request: WebApiRequest) -> Answer:
    """Remove the default flow control."""

    def change(record: ClusterRecord) -> ClusterRecord:
        flow = next_flow_text(record.flow, "", holds=False, now_ms=request.gateway.now_ms())
        return msgspec.structs.replace(record, flow=flow)

    await _change_cluster(request, change)
    return master_response(_describe_default(request))


def query_cluster_defaults(request: WebApiRequest) -> Answer:
    """Return the defaults of the cluster."""
    return master_response(_describe_cluster(request))


async def set_cluster_defaults(request: WebApiRequest) -> Answer:
    """Set the largest message and the default flow control."""
    _check_priority(request)
    for name in NODE_SETTINGS:
        if request.has(name):
            raise WebApiError(f"{name}: set by the settings of the node, not by the web API")

    def change(record: ClusterRecord) -> ClusterRecord:
        flow = _read_flow(
            request, record.flow, request.flag("flowCtrlEnable", default=record.flow.holds)
        )
        return msgspec.structs.replace(
            record, flow=flow, message_mib_max=_read_message_mib(request, record)
        )

    await _change_cluster(request, change)
    return master_response(_describe_cluster(request))


async def _change_cluster(
    request: WebApiRequest, change: Callable[[ClusterRecord], ClusterRecord]
) -> None:
    rules = request.rules

    def decide() -> MetadataChange[None]:
        record = change(rules.cluster)
        stamp = request.stamp(rules.cluster.stamp)
        return rules.plan_cluster(msgspec.structs.replace(record, stamp=stamp))

    await request.commit_change(decide)


def _read_message_mib(request: WebApiRequest, record: ClusterRecord) -> int:
    if not request.has("maxMsgSizeInMB"):
        return record.message_mib_max
    return check_message_mib(request.number("maxMsgSizeInMB", low=1, high=20))


def _message_mib(request: WebApiRequest) -> int:
    return max(1, request.gateway.message_bytes_max // MIB)


def _describe_default(request: WebApiRequest) -> list[Answer]:
    record = request.rules.cluster
    if not record.stamp.made_ms:
        return []
    rules = _parse_flow_rules(record.flow)
    fields = {
        "statusId": int(record.flow.holds),
        "maxMsgSizeInMB": _message_mib(request),
        "qryPriorityId": PRIORITY,
        "ruleCnt": len(rules),
        "flowCtrlInfo": rules,
    }
    return [{**fields, **describe_stamp(record.stamp)}]


def _describe_cluster(request: WebApiRequest) -> list[Answer]:
    record = request.rules.cluster
    if not record.stamp.made_ms:
        return []
    rules = _parse_flow_rules(record.flow)
    fields = {
        "brokerPort": request.gateway.broker_address()[1],
        "brokerTLSPort": UNDEFINED,
        "brokerWebPort": request.web_port,
        "maxMsgSizeInMB": _message_mib(request),
        "qryPriorityId": PRIORITY,
        "flowCtrlEnable": record.flow.holds,
        "flowCtrlRuleCount": len(rules),
        "flowCtrlInfo": rules,
        "numTopicStores": 1,
        "numPartitions": 1,
        **FILE_BOUNDS,
        "acceptPublish": True,
        "acceptSubscribe": True,
        **describe_storage(request.broker.cluster.defaults.retention_ms),
    }
    return [{**fields, **describe_stamp(record.stamp)}]


# -- for one


def query_group_flow(request: WebApiRequest) -> Answer:
    """Return the flow control of groups, in the older shape."""
    data = []
    for group, record in _find_groups(request):
        rules = _parse_flow_rules(record.flow)
        if request.has("statusId") and request.number("statusId", high=1) != int(record.flow.holds):
            continue
        fields = {
            "groupName": group,
            "statusId": int(record.flow.holds),
            "qryPriorityId": PRIORITY,
            "ruleCnt": len(rules),
            "flowCtrlInfo": rules,
        }
        data.append({**fields, **describe_stamp(record.stamp)})
    return master_response(data)


def query_group_records(request: WebApiRequest) -> Answer:
    """Return the records of groups, in the newer shape."""
    data = []
    for group, record in _find_groups(request):
        rules = _parse_flow_rules(record.flow)
        fields = {
            "groupName": group,
            "resCheckEnable": record.checks_rate,
            "alwdBrokerClientRate": record.rate,
            "qryPriorityId": PRIORITY,
            "flowCtrlEnable": record.flow.holds,
            "flowCtrlRuleCount": len(rules),
            "flowCtrlInfo": rules,
        }
        data.append({**fields, **describe_stamp(record.stamp)})
    return master_response(data)


def query_group_rates(request: WebApiRequest) -> Answer:
    """Return the rates of groups, in the oldest shape."""
    data = []
    for group, record in _find_groups(request):
        fields = {
            "groupName": group,
            "enableBind": 1,
            "allowedBClientRate": record.rate,
            "attributes": "",
            "lastBindUsedDate": "-",
        }
        data.append({**fields, **describe_stamp(record.stamp, serial=False)})
    return master_response(data)


def query_group_names(request: WebApiRequest) -> Answer:
    """Return the groups that have records."""
    return master_response([group for group, _ in _find_groups(request)])


def _find_groups(request: WebApiRequest) -> list[tuple[str, TubeGroupRecord]]:
    wanted, groups = set(request.groups), request.rules.groups
    return [
        (group, groups[group])
        for group in sorted(wanted & set(groups) if wanted else groups)
        if request.can_see(ResourceKind.GROUP, group)
    ]


async def set_group_flow(request: WebApiRequest) -> list[Answer]:
    """Set the flow control of groups."""
    _check_priority(request)
    return [
        await run_item(_set_flow_of(request, group), groupName=group)
        for group in request.needed_groups
    ]


async def _set_flow_of(request: WebApiRequest, group: str) -> None:
    def change(record: TubeGroupRecord) -> TubeGroupRecord:
        flow = _read_flow(
            request, record.flow, request.number("statusId", int(record.flow.holds), high=1) == 1
        )
        return msgspec.structs.replace(record, flow=flow)

    await _change_group(request, group, change, may_make=True)


async def update_group_flow(request: WebApiRequest) -> list[Answer]:
    """Change the flow control of groups that have one."""
    _check_priority(request)
    return [
        await run_item(_update_group(request, group), groupName=group)
        for group in request.needed_groups
    ]


async def remove_group_flow(request: WebApiRequest) -> list[Answer]:
    """Disable the flow control of groups; its text is still returned."""
    return [
        await run_item(_disable_flow_of(request, group), groupName=group)
        for group in request.needed_groups
    ]


async def _disable_flow_of(request: WebApiRequest, group: str) -> None:
    def change(record: TubeGroupRecord) -> TubeGroupRecord:
        flow = next_flow_text(
            record.flow, record.flow.text, holds=False, now_ms=request.gateway.now_ms()
        )
        return msgspec.structs.replace(record, flow=flow)

    if group in request.rules.groups:
        await _change_group(request, group, change, may_make=False)


async def add_groups(request: WebApiRequest) -> list[Answer]:
    """Add records for groups that have none."""
    _check_priority(request)
    return [
        await run_item(_add_group(request, group), groupName=group)
        for group in request.needed_groups
    ]


async def _add_group(request: WebApiRequest, group: str) -> None:
    if group in request.rules.groups:
        raise ItemError(EXISTS, f"Existed record found for groupName({group})!")
    await _change_group(
        request, group, lambda record: _apply_parameters(request, record), may_make=True
    )


async def update_groups(request: WebApiRequest) -> list[Answer]:
    """Change the records of groups."""
    _check_priority(request)
    return [
        await run_item(_update_group(request, group), groupName=group)
        for group in request.needed_groups
    ]


async def _update_group(request: WebApiRequest, group: str) -> None:
    before = request.rules.groups.get(group)
    if before is None:
        raise ItemError(NOT_FOUND, f"Not found group control configure for groupName({group})!")
    if _apply_parameters(request, before) == before:
        raise ItemError(UNCHANGED, "Group resource configure not changed!")
    await _change_group(
        request, group, lambda record: _apply_parameters(request, record), may_make=False
    )


async def delete_groups(request: WebApiRequest) -> list[Answer]:
    """Delete the records of groups."""
    return [
        await run_item(_delete_group(request, group), groupName=group)
        for group in request.needed_groups
    ]


async def _delete_group(request: WebApiRequest, group: str) -> None:
    request.check_access(ResourceKind.GROUP, group)
    if group in request.rules.groups:
        await request.commit_change(lambda: request.rules.plan_group(group, None))


async def _change_group(
    request: WebApiRequest,
    group: str,
    change: Callable[[TubeGroupRecord], TubeGroupRecord],
    *,
    may_make: bool,
) -> None:
    request.check_access(ResourceKind.GROUP, group)
    rules = request.rules

    def decide() -> MetadataChange[None]:
        before = rules.groups.get(group)
        if before is None and not may_make:
            raise ItemError(NOT_FOUND, f"Not found group control configure for groupName({group})!")
        record = change(before or TubeGroupRecord())
        stamp = request.stamp(before.stamp if before else None)
        return rules.plan_group(group, msgspec.structs.replace(record, stamp=stamp))

    await request.commit_change(decide)


def _apply_parameters(request: WebApiRequest, before: TubeGroupRecord) -> TubeGroupRecord:
    """Return the record of a group with the parameters of a request applied."""
    if request.has("enableBind") and not request.flag("enableBind"):
        raise WebApiError("enableBind: groups cannot be kept from bound consumption here")
    holds = request.flag("flowCtrlEnable", default=before.flow.holds)
    if request.has("statusId"):
        holds = request.number("statusId", high=1) == 1
    rate = request.number("alwdBrokerClientRate", before.rate)
    return msgspec.structs.replace(
        before,
        flow=_read_flow(request, before.flow, holds),
        checks_rate=request.flag("resCheckEnable", default=before.checks_rate),
        rate=request.number("allowedBClientRate", rate),
    )


# -- the text of a flow control


def _read_flow(request: WebApiRequest, before: FlowControlText, holds: bool) -> FlowControlText:
    text = request.text("flowCtrlInfo", before.text, most=VALUE_SIZE_MAX)
    parse_rules(text)
    return next_flow_text(before, text, holds=holds, now_ms=request.gateway.now_ms())


def _parse_flow_rules(flow: FlowControlText) -> list[Any]:
    return msgspec.json.decode(flow.text, type=list[Any]) if flow.text else []


def _check_priority(request: WebApiRequest) -> None:
    """Reject other read priorities than the default one: reads have none here."""
    if request.number("qryPriorityId", PRIORITY) != PRIORITY:
        raise WebApiError(f"qryPriorityId: reads have no priorities here, {PRIORITY} is what holds")


CLUSTER, GROUP = ResourceKind.CLUSTER, ResourceKind.GROUP
SHOW, SET = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS
METHODS = (
    WebApiMethod("admin_query_def_flow_control_rule", query_default_flow, CLUSTER, SHOW),
    WebApiMethod("admin_set_def_flow_control_rule", set_default_flow, CLUSTER, SET, changes=True),
    WebApiMethod("admin_upd_def_flow_control_rule", set_default_flow, CLUSTER, SET, changes=True),
    WebApiMethod(
        "admin_rmv_def_flow_control_rule", remove_default_flow, CLUSTER, SET, changes=True
    ),
    WebApiMethod("admin_query_cluster_default_setting", query_cluster_defaults, CLUSTER, SHOW),
    WebApiMethod(
        "admin_set_cluster_default_setting", set_cluster_defaults, CLUSTER, SET, changes=True
    ),
    WebApiMethod(
        "admin_update_cluster_default_setting", set_cluster_defaults, CLUSTER, SET, changes=True
    ),
    WebApiMethod("admin_query_group_flow_control_rule", query_group_flow, GROUP, SHOW),
    WebApiMethod(
        "admin_set_group_flow_control_rule", for_request(set_group_flow), GROUP, SET, changes=True
    ),
    WebApiMethod(
        "admin_upd_group_flow_control_rule",
        for_request(update_group_flow),
        GROUP,
        SET,
        changes=True,
    ),
    WebApiMethod(
        "admin_rmv_group_flow_control_rule",
        for_request(remove_group_flow),
        GROUP,
        SET,
        changes=True,
    ),
    WebApiMethod("admin_query_group_resctrl_info", query_group_records, GROUP, SHOW),
    WebApiMethod("admin_query_booked_resctrl_groups", query_group_names, GROUP, SHOW),
    WebApiMethod("admin_add_group_resctrl_info", for_request(add_groups), GROUP, SET, changes=True),
    WebApiMethod(
        "admin_batch_add_group_resctrl_info",
        for_records("groupResCtrlJsonSet", add_groups),
        GROUP,
        SET,
        changes=True,
    ),
    WebApiMethod(
        "admin_update_group_resctrl_info", for_request(update_groups), GROUP, SET, changes=True
    ),
    WebApiMethod(
        "admin_batch_update_group_resctrl_info",
        for_records("groupResCtrlJsonSet", update_groups),
        GROUP,
        SET,
        changes=True,
    ),
    WebApiMethod(
        "admin_delete_group_resctrl_info", for_request(delete_groups), GROUP, SET, changes=True
    ),
    WebApiMethod("admin_query_consume_group_setting", query_group_rates, GROUP, SHOW),
    WebApiMethod(
        "admin_add_consume_group_setting", for_request(add_groups), GROUP, SET, changes=True
    ),
    WebApiMethod(
        "admin_bath_add_consume_group_setting",
        for_records("groupNameJsonSet", add_groups),
        GROUP,
        SET,
        changes=True,
    ),
    WebApiMethod(
        "admin_upd_consume_group_setting", for_request(update_groups), GROUP, SET, changes=True
    ),
    WebApiMethod(
        "admin_del_consume_group_setting", for_request(delete_groups), GROUP, SET, changes=True
    ),
)
