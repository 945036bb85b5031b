"""Requests for a whole partitioned topic whose partitions are on several nodes.

The node that gets one sends a request for each partition to the node that owns it (forwarding.py),
and puts the responses together:

    GET /subscriptions                         all names
    GET /partitioned-stats, -internalStats     the sum, and each partition
    changes of a subscription                  done where it is; 404 if it is nowhere
    POST /terminate/partitions                 each partition's last message id

A change is not atomic: when a node does not answer, the partitions of others may have changed, and
the response is the error of the one that failed. Repeating the request completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.pulsar.admin_request import (
    AdminRequest,
    AdminRoute,
    Reply,
    encode_reply,
)
from trilogue.gateway.http.pulsar.forwarding import ForwardedRequest, forward, worst_reply
from trilogue.gateway.http.pulsar.stats import add_up_stats

V2: Final = "/admin/v2"
ONE: Final = "/subscription/{subscription}"
OF_PARTITIONS: Final = {  # of a whole topic -> of one partition, where they differ
    "/partitioned-stats": "/stats",
    "/partitioned-internalStats": "/internalStats",
    "/terminate/partitions": "/terminate",
}
CHANGES: Final = frozenset(
    {
        ("PUT", ONE),
        ("DELETE", ONE),
        ("POST", f"{ONE}/skip_all"),
        ("POST", f"{ONE}/resetcursor/{{timestamp}}"),
        ("POST", f"{ONE}/expireMessages/{{seconds}}"),
        ("POST", "/all_subscription/expireMessages/{seconds}"),
        ("PUT", f"{ONE}/properties"),
        ("PUT", "/unload"),
        ("PUT", "/compaction"),
        ("DELETE", "/truncate"),
    }
)


async def answer_for_partitions(request: AdminRequest, route: AdminRoute) -> Reply | None:
    """Return the reply for all partitions of a topic; None for what is not served so."""
    begin, found, below = route.path.partition("/{topic}")
    if not found:
        return None
    method = request.http.method
    topic = request.broker.cluster.find_topic(request.name.topic)
    is_whole = topic is not None and topic.partitioned and request.name.partition is None
    if topic is None or not is_whole or not begin.startswith(V2):
        return None
    if method == "GET" and below == "/subscriptions":
        combine: Callable[[AdminRequest, Topic, list[bytes]], object] = _join_names
    elif method == "GET" and below == "/partitioned-stats":
        combine = _join_stats
    elif method == "GET" and below == "/partitioned-internalStats":
        combine = _join_internal_stats
    elif (method, below) == ("POST", "/terminate/partitions"):
        combine = _join_ids
    elif (method, below) in CHANGES:
        combine = _join_nothing
    else:
        return None
    suffix = _fill(OF_PARTITIONS.get(below, below), request.params)
    query = request.http.url.query
    suffix += f"?{query}" if query else ""
    owner_of = request.broker.cluster.ownership.partition_owner
    base = f"{V2}/persistent/{request.namespace}/{quote(request.params['topic'], safe='')}"
    wanted = [
        ForwardedRequest(
            owner_of(each.partition_id), method, f"{base}-partition-{index}{suffix}", request.body
        )
        for index, each in enumerate(topic.partitions)
    ]
    replies = await forward(request, wanted)
    is_change = combine is _join_nothing
    failed = [each for each in replies if not each.is_success]
    if is_change and len(failed) < len(replies):
        failed = [each for each in failed if each.status != 404]  # it is not in each partition
    if failed:
        return worst_reply(failed)
    return encode_reply(combine(request, topic, [each.body for each in replies]))


def _fill(path: str, params: Mapping[str, str]) -> str:
    for name, value in params.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


# -- responses put together


def _join_nothing(_request: AdminRequest, _topic: Topic, _bodies: list[bytes]) -> object:
    return None


def _join_names(_request: AdminRequest, _topic: Topic, bodies: list[bytes]) -> object:
    return sorted({name for body in bodies for name in msgspec.json.decode(body, type=list[str])})


def _join_ids(_request: AdminRequest, _topic: Topic, bodies: list[bytes]) -> object:
    return {str(index): msgspec.json.decode(body) for index, body in enumerate(bodies)}


def _join_stats(request: AdminRequest, topic: Topic, bodies: list[bytes]) -> object:
    each = _by_name(request, bodies)
    total = add_up_stats(list(each.values()))
    total["metadata"] = {"partitions": len(topic.partitions), "deleted": False}
    total["partitions"] = each if request.flag("perPartition", default=True) else {}
    return total


def _join_internal_stats(request: AdminRequest, topic: Topic, bodies: list[bytes]) -> object:
    partitions = {"partitions": len(topic.partitions)}
    return {"metadata": partitions, "partitions": _by_name(request, bodies)}


def _by_name(request: AdminRequest, bodies: list[bytes]) -> dict[str, Any]:
    return {
        f"{request.name}-partition-{index}": msgspec.json.decode(body, type=dict[str, Any])
        for index, body in enumerate(bodies)
    }
