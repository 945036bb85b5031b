"""Requests for a whole partitioned topic whose partitions are on several nodes.

The node that gets one sends a request for each partition to the node that owns it, over HTTP or
HTTPS as it came and with the credentials of its client, and puts the responses together:

    GET /subscriptions                         all names
    GET /partitioned-stats, -internalStats     the sum, and each partition
    changes of a subscription                  done where it is; 404 if it is nowhere

A change is not atomic: when a node does not answer, the partitions of others may have changed, and
the response is the error of the one that failed. Repeating the request completes it.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from trilogue.broker.topics.topic import Topic
from trilogue.client.errors import InvalidOption
from trilogue.client.tls import make_client_context
from trilogue.gateway.http.pulsar.admin_request import (
    AdminRequest,
    AdminRoute,
    Reply,
    encode_reply,
    error_reply,
)
from trilogue.gateway.http.pulsar.stats import add_up_stats

V2: Final = "/admin/v2"
AT_ONCE: Final = 8
TIMEOUT_S: Final = 10.0
BODY_MAX: Final = 16 << 20
FORWARDED: Final = ("authorization", "content-type")
ONE: Final = "/subscription/{subscription}"
STATS: Final = {
    "/partitioned-stats": "/stats",
    "/partitioned-internalStats": "/internalStats",
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


class PartitionRequest(NamedTuple):
    """A request for one partition, by its number."""

    number: int
    method: str
    suffix: str  # of the path, behind the partition's name
    body: bytes = b""


class PartitionReply(NamedTuple):
    """The response of a partition's owner."""

    status: int
    body: bytes


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
    elif method == "GET" and below in STATS:
        combine = _join_stats if below == "/partitioned-stats" else _join_internal_stats
    elif (method, below) in CHANGES:
        combine = _join_nothing
    else:
        return None
    suffix = _fill(STATS.get(below, below), request.params)
    query = request.http.url.query
    suffix += f"?{query}" if query else ""
    wanted = [
        PartitionRequest(index, method, suffix, request.body)
        for index in range(len(topic.partitions))
    ]
    replies = await _request_owners(request, topic, wanted)
    is_change = combine is _join_nothing
    failed = [each for each in replies if not 200 <= each.status < 300]
    if is_change and len(failed) < len(replies):
        failed = [each for each in failed if each.status != 404]  # it is not in each partition
    if failed:
        return _worst(failed)
    return encode_reply(combine(request, topic, [each.body for each in replies]))


def _worst(failed: list[PartitionReply]) -> Reply:
    worst = max(failed, key=lambda each: each.status)
    return Reply(worst.status, worst.body, "application/json")


def _fill(path: str, params: Mapping[str, str]) -> str:
    for name, value in params.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


async def _request_owners(
    request: AdminRequest, topic: Topic, wanted: Sequence[PartitionRequest]
) -> list[PartitionReply]:
    """Send requests to the owners of their partitions, a few at a time."""
    ownership, scheme = request.broker.cluster.ownership, request.http.url.scheme
    tls = None
    if scheme == "https":
        try:
            tls = await asyncio.to_thread(make_client_context, request.authority)
        except InvalidOption as problem:
            return [_failed(503, str(problem)) for _ in wanted]
    headers = {
        each: request.http.headers[each] for each in FORWARDED if each in request.http.headers
    }
    base = f"{V2}/persistent/{request.namespace}/{quote(request.params['topic'], safe='')}"
    turns = asyncio.Semaphore(AT_ONCE)

    async def send(one: PartitionRequest) -> PartitionReply:
        owner = ownership.partition_owner(topic.partitions[one.number].partition_id)
        address = ownership.listeners(owner).get(scheme)
        if not address:
            return _failed(503, f"node {owner} has no address for {scheme}")
        path = f"{base}-partition-{one.number}{one.suffix}"
        async with turns:
            return await asyncio.to_thread(
                _send, address, one.method, path, one.body, headers, tls=tls
            )

    return await asyncio.gather(*map(send, wanted))


def _send(
    address: str,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    tls: ssl.SSLContext | None,
) -> PartitionReply:
    connection = (
        http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        if tls is None
        else http.client.HTTPSConnection(address, timeout=TIMEOUT_S, context=tls)
    )
    try:
        connection.request(method, path, body or None, dict(headers))
        response = connection.getresponse()
        body = response.read(BODY_MAX)
        if 300 <= response.status < 400:
            return _failed(503, f"the node at {address} is not the owner any more")
        return PartitionReply(response.status, body)
    except (OSError, http.client.HTTPException) as error:
        return _failed(503, f"the node at {address} does not answer: {error}")
    finally:
        connection.close()


def _failed(status: int, reason: str) -> PartitionReply:
    return PartitionReply(status, error_reply(status, reason).content)


# -- responses put together


def _join_nothing(_request: AdminRequest, _topic: Topic, _bodies: list[bytes]) -> object:
    return None


def _join_names(_request: AdminRequest, _topic: Topic, bodies: list[bytes]) -> object:
    return sorted({name for body in bodies for name in msgspec.json.decode(body, type=list[str])})


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
