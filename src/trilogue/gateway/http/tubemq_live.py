"""TubeMQ's groups as they are now: who is in them and who reads what."""

from __future__ import annotations

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.balance import GroupView, MemberView
from trilogue.broker.balance_terms import Kind
from trilogue.broker.errors import UnknownMember
from trilogue.broker.names import spelled_tubemq
from trilogue.gateway.http.tubemq_asked import Answer, Asked, Row, Wrong, ok

# What a real master calls the ways of sharing out partitions.
BINDINGS = {Kind.SERVER: "unbound", Kind.BOUND: "bound", Kind.CLIENT: "clientBalance"}


def subscriptions(asked: Asked) -> Answer:
    """Tell which groups there are, of how many members, and what they read."""
    wanted = {str(name) for name in asked.topics}
    names = set(asked.groups)
    data = []
    for view in _views(asked):
        topics = sorted(view.terms.topics)
        if (names and view.name not in names) or (
            wanted and not wanted & {str(topic) for topic in topics}
        ):
            continue
        data.append(
            {
                "consumeGroup": view.name,
                "topicSet": [spelled_tubemq(topic) for topic in topics],
                "consumerNum": len(view.members),
            }
        )
    return ok(data)


def detail(asked: Asked) -> Answer:
    """Tell all of one group."""
    groups = asked.groups
    if not groups:
        raise Wrong("Parameter consumeGroup is missing or value is blank!")
    group = groups[0]
    asked.check(ResourceKind.GROUP, group)
    answer: Answer = {"result": True, "errCode": 0, "errMsg": "OK"}
    try:
        view = asked.door.master.balances.view(group)
    except UnknownMember:
        return {
            **answer,
            "count": 0,
            "topicSet": [],
            "consumeGroup": group,
            "re-rebalance": {},
            "isBandConsume": "unbound",
            "rebInfo": {"isRebalanced": False},
            "filterConds": {},
            "data": [],
        }
    terms = view.terms
    answer |= {
        "count": len(view.members),
        "topicSet": [spelled_tubemq(topic) for topic in sorted(terms.topics)],
        "consumeGroup": group,
        "re-rebalance": {},
        "isBandConsume": BINDINGS[terms.kind],
    }
    if terms.kind is Kind.BOUND:
        answer |= {
            "isNotAllocate": len(view.members) < terms.source_count,
            "sessionKey": terms.session_key,
            "isSelectBig": terms.select_big,
            "reqSourceCount": terms.source_count,
            "curSourceCount": len(view.members),
        }
    filters = {
        spelled_tubemq(topic): sorted(some) for topic, some in sorted(terms.filters.items()) if some
    }
    data = [_member(asked, member) for member in view.members]
    return {**answer, "rebInfo": {"isRebalanced": True}, "filterConds": filters, "data": data}


def _member(asked: Asked, member: MemberView) -> Answer:
    address = asked.door.broker_info
    parts = [
        {
            "partId": part.number,
            "brokerAddr": address,
            "topicName": spelled_tubemq(part.topic),
        }
        for part in member.parts
    ]
    return {
        "consumerId": member.member_id,
        "receivedFrom": member.host,
        "isOverTLS": False,
        "parCount": len(parts),
        "parInfo": parts,
    }


def of_topics(asked: Asked) -> Answer:
    """Tell which groups read topics now."""
    views = _views(asked)
    data = []
    for topic in asked.needed_topics:
        groups = [view.name for view in views if topic in view.terms.topics]
        named = spelled_tubemq(topic)
        data.append({"topicName": named, "groupSet": groups, "groupCnt": len(groups)})
    return ok(data)


def self_balanced(asked: Asked) -> Answer:
    """Name the groups whose members share out partitions among themselves."""
    return ok([view.name for view in _views(asked) if view.terms.kind is Kind.CLIENT])


def _views(asked: Asked) -> list[GroupView]:
    return [
        view
        for view in asked.door.master.balances.groups()
        if asked.allowed(ResourceKind.GROUP, view.name)
    ]


GROUP, DESCRIBE = ResourceKind.GROUP, Operation.DESCRIBE
ROWS = (
    Row("admin_query_sub_info", subscriptions, GROUP, DESCRIBE),
    Row("admin_query_consume_group_detail", detail, GROUP, DESCRIBE),
    Row("admin_query_group_info_by_topic", of_topics, GROUP, DESCRIBE),
    Row("admin_query_client_balance_group_set", self_balanced, GROUP, DESCRIBE),
)
