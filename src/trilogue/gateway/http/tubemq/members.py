"""The members of TubeMQ's groups and their partitions at present."""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import UnknownMember
from trilogue.broker.names import format_tubemq
from trilogue.broker.tubemq.group_balancer import TubeGroupView, TubeMemberView
from trilogue.broker.tubemq.group_terms import BalanceMode
from trilogue.gateway.http.tubemq.web_api_request import (
    Answer,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    master_response,
)

# A real master's names for the ways to assign partitions.
BINDINGS = {
    BalanceMode.SERVER: "unbound",
    BalanceMode.BOUND: "bound",
    BalanceMode.CLIENT: "clientBalance",
}


def query_subscriptions(request: WebApiRequest) -> Answer:
    """Return the groups, the number of their members, and their topics."""
    wanted = {str(name) for name in request.topics}
    names = set(request.groups)
    data = []
    for view in _group_views(request):
        topics = [name for name in sorted(view.terms.topics) if request.shows_topic(name)]
        if (names and view.name not in names) or (
            wanted and not wanted & {str(topic) for topic in topics}
        ):
            continue
        data.append(
            {
                "consumeGroup": view.name,
                "topicSet": [format_tubemq(topic) for topic in topics],
                "consumerNum": len(view.members),
            }
        )
    return master_response(data)


def query_group_detail(request: WebApiRequest) -> Answer:
    """Return the members and partitions of one group."""
    groups = request.groups
    if not groups:
        raise WebApiError("Parameter consumeGroup is missing or value is blank!")
    group = groups[0]
    request.check_access(ResourceKind.GROUP, group)
    answer: Answer = {"result": True, "errCode": 0, "errMsg": "OK"}
    try:
        view = request.gateway.master.balances.view(group)
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
        "topicSet": [
            format_tubemq(topic) for topic in sorted(terms.topics) if request.shows_topic(topic)
        ],
        "consumeGroup": group,
        "re-rebalance": {},
        "isBandConsume": BINDINGS[terms.kind],
    }
    if terms.kind is BalanceMode.BOUND:
        answer |= {
            "isNotAllocate": len(view.members) < terms.source_count,
            "sessionKey": terms.session_key,
            "isSelectBig": terms.select_big,
            "reqSourceCount": terms.source_count,
            "curSourceCount": len(view.members),
        }
    filters = {
        format_tubemq(topic): sorted(some)
        for topic, some in sorted(terms.filters.items())
        if some and request.shows_topic(topic)
    }
    data = [_describe_member(request, member) for member in view.members]
    return {**answer, "rebInfo": {"isRebalanced": True}, "filterConds": filters, "data": data}


def _describe_member(request: WebApiRequest, member: TubeMemberView) -> Answer:
    directory = request.gateway.brokers
    brokers = directory.brokers()
    parts = []
    for part in member.parts:
        location = directory.locate(part.topic, part.number)
        if location is not None and request.shows_topic(part.topic):
            broker_id, partition_id = location
            address = str(brokers.get(broker_id, ""))
            name = format_tubemq(part.topic)
            parts.append({"partId": partition_id, "brokerAddr": address, "topicName": name})
    return {
        "consumerId": member.member_id,
        "receivedFrom": member.host,
        "isOverTLS": member.is_tls,
        "parCount": len(parts),
        "parInfo": parts,
    }


def query_groups_of_topics(request: WebApiRequest) -> Answer:
    """Return the groups that read topics at present."""
    views = _group_views(request)
    data = []
    for topic in request.needed_topics:
        seen = request.shows_topic(topic)
        groups = [view.name for view in views if seen and topic in view.terms.topics]
        named = format_tubemq(topic)
        data.append({"topicName": named, "groupSet": groups, "groupCnt": len(groups)})
    return master_response(data)


def query_client_balanced(request: WebApiRequest) -> Answer:
    """Return the groups whose members assign partitions among themselves."""
    return master_response(
        [view.name for view in _group_views(request) if view.terms.kind is BalanceMode.CLIENT]
    )


def _group_views(request: WebApiRequest) -> list[TubeGroupView]:
    return [
        view
        for view in request.gateway.master.balances.groups()
        if request.can_see(ResourceKind.GROUP, view.name)
    ]


GROUP, DESCRIBE = ResourceKind.GROUP, Operation.DESCRIBE
METHODS = (
    WebApiMethod("admin_query_sub_info", query_subscriptions, GROUP, DESCRIBE),
    WebApiMethod("admin_query_consume_group_detail", query_group_detail, GROUP, DESCRIBE),
    WebApiMethod("admin_query_group_info_by_topic", query_groups_of_topics, GROUP, DESCRIBE),
    WebApiMethod("admin_query_client_balance_group_set", query_client_balanced, GROUP, DESCRIBE),
)
