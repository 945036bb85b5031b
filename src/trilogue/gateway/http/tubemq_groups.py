"""How fast TubeMQ's groups may read: the default, and what is said of single groups.

Older methods (`..._flow_control_rule`, `..._consume_group_setting`) and newer ones
(`..._group_resctrl_info`) say and show the same. With the flow control of the cluster comes the
largest message of topics that set none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.commit import Commit
from trilogue.broker.flow_control import parse_rules
from trilogue.broker.group_rules import (
    MIB,
    ClusterSaid,
    FlowText,
    GroupSaid,
    check_message_mib,
    flow_said,
)
from trilogue.gateway.http.changing import carry_out
from trilogue.gateway.http.tubemq_asked import (
    EXISTS,
    NOT_FOUND,
    UNCHANGED,
    UNDEFINED,
    VALUE_SIZE_MAX,
    Answer,
    Asked,
    Failed,
    Row,
    Wrong,
    batch,
    each,
    ok,
    single,
    stamped,
)
from trilogue.gateway.http.tubemq_topic_views import stored
from trilogue.gateway.http.tubemq_topics import FILE_BOUNDS

PRIORITY = 301  # what real servers have as the default of qryPriorityId
OF_THE_NODE = (  # what the cluster's defaults of a real master say, and the settings of a node here
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


def query_default(asked: Asked) -> Answer:
    """Tell the default flow control."""
    return ok(_told_default(asked))


async def set_default(asked: Asked) -> Answer:
    """Say it."""
    _check_priority(asked)

    def change(said: ClusterSaid) -> ClusterSaid:
        flow = _flow(asked, said.flow, asked.number("statusId", int(said.flow.holds), high=1) == 1)
        return msgspec.structs.replace(said, flow=flow, message_mib_max=_size(asked, said))

    await _change_cluster(asked, change)
    return ok(_told_default(asked))


async def remove_default(asked: Asked) -> Answer:
    """Say nothing any more."""

    def change(said: ClusterSaid) -> ClusterSaid:
        flow = flow_said(said.flow, "", holds=False, now_ms=asked.door.now_ms())
        return msgspec.structs.replace(said, flow=flow)

    await _change_cluster(asked, change)
    return ok(_told_default(asked))


def query_cluster(asked: Asked) -> Answer:
    """Tell what holds where nothing else is said."""
    return ok(_told_cluster(asked))


async def set_cluster(asked: Asked) -> Answer:
    """Say it: the largest message, and flow control."""
    _check_priority(asked)
    for name in OF_THE_NODE:
        if asked.has(name):
            raise Wrong(f"{name}: the settings of the node say it, not the web API")

    def change(said: ClusterSaid) -> ClusterSaid:
        flow = _flow(asked, said.flow, asked.flag("flowCtrlEnable", default=said.flow.holds))
        return msgspec.structs.replace(said, flow=flow, message_mib_max=_size(asked, said))

    await _change_cluster(asked, change)
    return ok(_told_cluster(asked))


async def _change_cluster(asked: Asked, change: Callable[[ClusterSaid], ClusterSaid]) -> None:
    rules = asked.rules

    def decide() -> Commit[None]:
        said = change(rules.cluster)
        stamp = asked.stamp(rules.cluster.stamp)
        return rules.plan_cluster(msgspec.structs.replace(said, stamp=stamp))

    await carry_out(asked.door, decide)


def _size(asked: Asked, said: ClusterSaid) -> int:
    if not asked.has("maxMsgSizeInMB"):
        return said.message_mib_max
    return check_message_mib(asked.number("maxMsgSizeInMB", low=1, high=20))


def _size_now(asked: Asked) -> int:
    return max(1, asked.door.message_bytes_max // MIB)


def _told_default(asked: Asked) -> list[Answer]:
    said = asked.rules.cluster
    if not said.stamp.made_ms:
        return []
    rules = _rules(said.flow)
    told = {
        "statusId": int(said.flow.holds),
        "maxMsgSizeInMB": _size_now(asked),
        "qryPriorityId": PRIORITY,
        "ruleCnt": len(rules),
        "flowCtrlInfo": rules,
    }
    return [{**told, **stamped(said.stamp)}]


def _told_cluster(asked: Asked) -> list[Answer]:
    said = asked.rules.cluster
    if not said.stamp.made_ms:
        return []
    rules = _rules(said.flow)
    told = {
        "brokerPort": int(asked.door.broker_address.rpartition(":")[2]),
        "brokerTLSPort": UNDEFINED,
        "brokerWebPort": asked.web_port,
        "maxMsgSizeInMB": _size_now(asked),
        "qryPriorityId": PRIORITY,
        "flowCtrlEnable": said.flow.holds,
        "flowCtrlRuleCount": len(rules),
        "flowCtrlInfo": rules,
        "numTopicStores": 1,
        "numPartitions": 1,
        **FILE_BOUNDS,
        "acceptPublish": True,
        "acceptSubscribe": True,
        **stored(asked.broker.cluster.defaults.retention_ms),
    }
    return [{**told, **stamped(said.stamp)}]


# -- for one


def query_flow(asked: Asked) -> Answer:
    """Tell the flow control of groups, in the older shape."""
    data = []
    for group, said in _wanted(asked):
        rules = _rules(said.flow)
        if asked.has("statusId") and asked.number("statusId", high=1) != int(said.flow.holds):
            continue
        told = {
            "groupName": group,
            "statusId": int(said.flow.holds),
            "qryPriorityId": PRIORITY,
            "ruleCnt": len(rules),
            "flowCtrlInfo": rules,
        }
        data.append({**told, **stamped(said.stamp)})
    return ok(data)


def query_groups(asked: Asked) -> Answer:
    """Tell all that is said of groups, in the newer shape."""
    data = []
    for group, said in _wanted(asked):
        rules = _rules(said.flow)
        told = {
            "groupName": group,
            "resCheckEnable": said.checks_rate,
            "alwdBrokerClientRate": said.rate,
            "qryPriorityId": PRIORITY,
            "flowCtrlEnable": said.flow.holds,
            "flowCtrlRuleCount": len(rules),
            "flowCtrlInfo": rules,
        }
        data.append({**told, **stamped(said.stamp)})
    return ok(data)


def query_settings(asked: Asked) -> Answer:
    """Tell the rates of groups, in the oldest shape."""
    data = []
    for group, said in _wanted(asked):
        told = {
            "groupName": group,
            "enableBind": 1,
            "allowedBClientRate": said.rate,
            "attributes": "",
            "lastBindUsedDate": "-",
        }
        data.append({**told, **stamped(said.stamp, serial=False)})
    return ok(data)


def query_names(asked: Asked) -> Answer:
    """Name the groups of which something is said."""
    return ok([group for group, _ in _wanted(asked)])


def _wanted(asked: Asked) -> list[tuple[str, GroupSaid]]:
    wanted, groups = set(asked.groups), asked.rules.groups
    return [
        (group, groups[group])
        for group in sorted(wanted & set(groups) if wanted else groups)
        if asked.allowed(ResourceKind.GROUP, group)
    ]


async def set_flow(asked: Asked) -> list[Answer]:
    """Say the flow control of groups."""
    _check_priority(asked)
    return [await each(_set_flow(asked, group), groupName=group) for group in asked.needed_groups]


async def _set_flow(asked: Asked, group: str) -> None:
    def change(said: GroupSaid) -> GroupSaid:
        flow = _flow(asked, said.flow, asked.number("statusId", int(said.flow.holds), high=1) == 1)
        return msgspec.structs.replace(said, flow=flow)

    await _change(asked, group, change, may_make=True)


async def update_flow(asked: Asked) -> list[Answer]:
    """Change the flow control of groups that have one."""
    _check_priority(asked)
    return [await each(_update(asked, group), groupName=group) for group in asked.needed_groups]


async def remove_flow(asked: Asked) -> list[Answer]:
    """Let the flow control of groups hold no more; what it was is still shown."""
    return [await each(_remove(asked, group), groupName=group) for group in asked.needed_groups]


async def _remove(asked: Asked, group: str) -> None:
    def change(said: GroupSaid) -> GroupSaid:
        flow = flow_said(said.flow, said.flow.text, holds=False, now_ms=asked.door.now_ms())
        return msgspec.structs.replace(said, flow=flow)

    if group in asked.rules.groups:
        await _change(asked, group, change, may_make=False)


async def add(asked: Asked) -> list[Answer]:
    """Say something of groups of which nothing was said."""
    _check_priority(asked)
    return [await each(_add(asked, group), groupName=group) for group in asked.needed_groups]


async def _add(asked: Asked, group: str) -> None:
    if group in asked.rules.groups:
        raise Failed(EXISTS, f"Existed record found for groupName({group})!")
    await _change(asked, group, lambda said: _said(asked, said), may_make=True)


async def update(asked: Asked) -> list[Answer]:
    """Change what is said of groups."""
    _check_priority(asked)
    return [await each(_update(asked, group), groupName=group) for group in asked.needed_groups]


async def _update(asked: Asked, group: str) -> None:
    before = asked.rules.groups.get(group)
    if before is None:
        raise Failed(NOT_FOUND, f"Not found group control configure for groupName({group})!")
    if _said(asked, before) == before:
        raise Failed(UNCHANGED, "Group resource configure not changed!")
    await _change(asked, group, lambda said: _said(asked, said), may_make=False)


async def delete(asked: Asked) -> list[Answer]:
    """Forget what was said of groups."""
    return [await each(_delete(asked, group), groupName=group) for group in asked.needed_groups]


async def _delete(asked: Asked, group: str) -> None:
    asked.check(ResourceKind.GROUP, group)
    if group in asked.rules.groups:
        await carry_out(asked.door, lambda: asked.rules.plan_group(group, None))


async def _change(
    asked: Asked, group: str, change: Callable[[GroupSaid], GroupSaid], *, may_make: bool
) -> None:
    asked.check(ResourceKind.GROUP, group)
    rules = asked.rules

    def decide() -> Commit[None]:
        before = rules.groups.get(group)
        if before is None and not may_make:
            raise Failed(NOT_FOUND, f"Not found group control configure for groupName({group})!")
        said = change(before or GroupSaid())
        stamp = asked.stamp(before.stamp if before else None)
        return rules.plan_group(group, msgspec.structs.replace(said, stamp=stamp))

    await carry_out(asked.door, decide)


def _said(asked: Asked, before: GroupSaid) -> GroupSaid:
    """What a request says of a group, on top of what was said."""
    if asked.has("enableBind") and not asked.flag("enableBind"):
        raise Wrong("enableBind: groups cannot be kept from bound consumption here")
    holds = asked.flag("flowCtrlEnable", default=before.flow.holds)
    if asked.has("statusId"):
        holds = asked.number("statusId", high=1) == 1
    rate = asked.number("alwdBrokerClientRate", before.rate)
    return msgspec.structs.replace(
        before,
        flow=_flow(asked, before.flow, holds),
        checks_rate=asked.flag("resCheckEnable", default=before.checks_rate),
        rate=asked.number("allowedBClientRate", rate),
    )


# -- the text of a flow control


def _flow(asked: Asked, before: FlowText, holds: bool) -> FlowText:
    text = asked.text("flowCtrlInfo", before.text, most=VALUE_SIZE_MAX)
    parse_rules(text)
    return flow_said(before, text, holds=holds, now_ms=asked.door.now_ms())


def _rules(flow: FlowText) -> list[Any]:
    return msgspec.json.decode(flow.text, type=list[Any]) if flow.text else []


def _check_priority(asked: Asked) -> None:
    """Refuse what a real server would read with another priority: nothing here has one."""
    if asked.number("qryPriorityId", PRIORITY) != PRIORITY:
        raise Wrong(f"qryPriorityId: reads have no priorities here, {PRIORITY} is what holds")


CLUSTER, GROUP = ResourceKind.CLUSTER, ResourceKind.GROUP
SHOW, SET = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS
ROWS = (
    Row("admin_query_def_flow_control_rule", query_default, CLUSTER, SHOW),
    Row("admin_set_def_flow_control_rule", set_default, CLUSTER, SET, changes=True),
    Row("admin_upd_def_flow_control_rule", set_default, CLUSTER, SET, changes=True),
    Row("admin_rmv_def_flow_control_rule", remove_default, CLUSTER, SET, changes=True),
    Row("admin_query_cluster_default_setting", query_cluster, CLUSTER, SHOW),
    Row("admin_set_cluster_default_setting", set_cluster, CLUSTER, SET, changes=True),
    Row("admin_update_cluster_default_setting", set_cluster, CLUSTER, SET, changes=True),
    Row("admin_query_group_flow_control_rule", query_flow, GROUP, SHOW),
    Row("admin_set_group_flow_control_rule", single(set_flow), GROUP, SET, changes=True),
    Row("admin_upd_group_flow_control_rule", single(update_flow), GROUP, SET, changes=True),
    Row("admin_rmv_group_flow_control_rule", single(remove_flow), GROUP, SET, changes=True),
    Row("admin_query_group_resctrl_info", query_groups, GROUP, SHOW),
    Row("admin_query_booked_resctrl_groups", query_names, GROUP, SHOW),
    Row("admin_add_group_resctrl_info", single(add), GROUP, SET, changes=True),
    Row(
        "admin_batch_add_group_resctrl_info",
        batch("groupResCtrlJsonSet", add),
        GROUP,
        SET,
        changes=True,
    ),
    Row("admin_update_group_resctrl_info", single(update), GROUP, SET, changes=True),
    Row(
        "admin_batch_update_group_resctrl_info",
        batch("groupResCtrlJsonSet", update),
        GROUP,
        SET,
        changes=True,
    ),
    Row("admin_delete_group_resctrl_info", single(delete), GROUP, SET, changes=True),
    Row("admin_query_consume_group_setting", query_settings, GROUP, SHOW),
    Row("admin_add_consume_group_setting", single(add), GROUP, SET, changes=True),
    Row(
        "admin_bath_add_consume_group_setting",
        batch("groupNameJsonSet", add),
        GROUP,
        SET,
        changes=True,
    ),
    Row("admin_upd_consume_group_setting", single(update), GROUP, SET, changes=True),
    Row("admin_del_consume_group_setting", single(delete), GROUP, SET, changes=True),
)
