"""Requests that go on to other nodes, with the credentials of their client.

They are sent over HTTP or HTTPS, as they came.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trilogue.client.errors import InvalidOption
from trilogue.client.tls import make_client_context
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, Reply, error_reply

AT_ONCE: Final = 8
TIMEOUT_S: Final = 10.0
BODY_MAX: Final = 16 << 20
FORWARDED: Final = ("authorization", "content-type")


class ForwardedRequest(NamedTuple):
    """A request for one node."""

    node_id: int
    method: str
    path: str  # with its query
    body: bytes = b""


class ForwardedReply(NamedTuple):
    """The response of a node."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the node did what was requested."""
        return 200 <= self.status < 300


async def forward(
    request: AdminRequest, wanted: Sequence[ForwardedRequest]
) -> list[ForwardedReply]:
    """Send requests to their nodes, a few at a time; 503 where one does not answer."""
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
    turns = asyncio.Semaphore(AT_ONCE)

    async def send(one: ForwardedRequest) -> ForwardedReply:
        address = ownership.listeners(one.node_id).get(scheme)
        if not address:
            return _failed(503, f"node {one.node_id} has no address for {scheme}")
        async with turns:
            return await asyncio.to_thread(_send, address, one, headers, tls=tls)

    return await asyncio.gather(*map(send, wanted))


def worst_reply(failed: Sequence[ForwardedReply]) -> Reply:
    """Return the reply with the highest status."""
    worst = max(failed, key=lambda each: each.status)
    return Reply(worst.status, worst.body, "application/json")


def _send(
    address: str, one: ForwardedRequest, headers: Mapping[str, str], *, tls: ssl.SSLContext | None
) -> ForwardedReply:
    connection = (
        http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        if tls is None
        else http.client.HTTPSConnection(address, timeout=TIMEOUT_S, context=tls)
    )
    try:
        connection.request(one.method, one.path, one.body or None, dict(headers))
        response = connection.getresponse()
        body = response.read(BODY_MAX)
        if 300 <= response.status < 400:
            return _failed(503, f"the node at {address} is not the owner any more")
        return ForwardedReply(response.status, body)
    except (OSError, http.client.HTTPException) as error:
        return _failed(503, f"the node at {address} does not answer: {error}")
    finally:
        connection.close()


def _failed(status: int, reason: str) -> ForwardedReply:
    return ForwardedReply(status, error_reply(status, reason).content)
