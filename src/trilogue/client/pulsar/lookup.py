"""Topic lookup: the broker of a topic, its partitions, the topics of a namespace.

Over the binary protocol or over HTTP. A redirect is followed with the `authoritative` that came
with it, a bounded number of times.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import urljoin, urlsplit

from trilogue.client.errors import (
    ClientError,
    ConnectionLost,
    ServerUnreachable,
    describe_unreachable,
)
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import PulsarError, TimedOut
from trilogue.client.pulsar.options import ClientOptions
from trilogue.client.pulsar.pool import BrokerPool, addresses
from trilogue.client.pulsar.topic_names import http_path
from trilogue.client.retry import retry
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
)

MAX_PARTITIONS: Final = 100_000
MAX_HTTP_BYTES: Final = 16 << 20
CONNECT: Final = CommandLookupTopicResponse.Connect
PORTS: Final = {"http": 80, "https": 443}
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
HTTP_ERRORS: Final = {
    400: ServerError.InvalidTopicName,
    401: ServerError.AuthenticationError,
    403: ServerError.AuthorizationError,
    404: ServerError.TopicNotFound,
    409: ServerError.NotAllowedError,
    412: ServerError.InvalidTopicName,
    429: ServerError.TooManyRequests,
}
"""What a refusal over HTTP would have been in the binary protocol; others are ServiceNotReady."""


class Lookup(Protocol):
    """A lookup service."""

    async def partitions(self, topic: str) -> int:
        """The number of partitions; 0 is a topic without."""

    async def broker(self, topic: str) -> PulsarConnection:
        """A connection to the broker that serves a topic, or a partition."""

    async def topics(self, namespace: str) -> list[str]:
        """The full names of the persistent topics of a namespace, partitions one by one."""

    async def service(self) -> PulsarConnection | None:
        """A connection for requests that any broker answers; None where there is none."""


def check_partition_count(partitions: int, topic: str) -> int:
    """A number of partitions that may be believed."""
    if not 0 <= partitions <= MAX_PARTITIONS:
        raise ClientError(f"{topic} with {partitions} partitions")
    return partitions


class BinaryLookup:
    """Lookup by commands to any of the service's addresses."""

    def __init__(self, pool: BrokerPool, url: str, options: ClientOptions) -> None:
        self._pool = pool
        self._options = options
        self._url = url.partition("://")[2]
        self._addresses = addresses(url)
        self._next = 0
        self._was_reached = False

    async def service(self) -> PulsarConnection:
        """A connection to one of the addresses: the one used last, or the next that answers."""
        problem: ClientError | None = None
        for _ in self._addresses:
            try:
                connection = await self._pool.get(self._addresses[self._next])
            except (ConnectionLost, TimedOut) as failed:
                problem = failed
                self._next = (self._next + 1) % len(self._addresses)
            else:
                self._was_reached = True
                return connection
        raise ServerUnreachable(describe_unreachable(self._url, problem)) from problem

    async def partitions(self, topic: str) -> int:
        """Request PARTITIONED_METADATA."""

        def make(request_id: int) -> BaseCommand:
            details = CommandPartitionedTopicMetadata(topic=topic, request_id=request_id)
            return BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=details)

        answer = await self._request(make, f"partitions of {topic}")
        return check_partition_count(answer.partitions, topic)

    async def broker(self, topic: str) -> PulsarConnection:
        """Request LOOKUP and connect to the broker it names."""
        connection, authoritative = await self.service(), False
        where = self._addresses[self._next]
        for _ in range(self._options.max_redirects + 1):
            details = CommandLookupTopic(
                topic=topic, request_id=connection.new_request_id(), authoritative=authoritative
            )
            if self._options.listener:
                details.advertised_listener_name = self._options.listener
            command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=details)
            answer = await connection.request(details.request_id, command, f"lookup of {topic}")
            led_to = self._pool.choose_address(
                answer.brokerServiceUrl, answer.brokerServiceUrlTls, f"lookup of {topic}"
            )
            if answer.response == CONNECT:
                if answer.proxy_through_service_url:
                    return await self._pool.get(where, "{}:{}".format(*led_to))
                return await self._pool.get(led_to)
            where, authoritative = led_to, answer.authoritative
            connection = await self._pool.get(where)
        raise ClientError(f"lookup of {topic}: more than {self._options.max_redirects} redirects")

    async def topics(self, namespace: str) -> list[str]:
        """Request GET_TOPICS_OF_NAMESPACE."""

        def make(request_id: int) -> BaseCommand:
            details = CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace)
            return BaseCommand(
                type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=details
            )

        answer = await self._request(make, f"topics of {namespace}")
        return sorted(answer.topics)

    async def _request(self, make: Callable[[int], BaseCommand], about: str) -> Any:
        """Send a request to one of the addresses.

        Once the service was reached, a lost connection (a broker that was started again, or that
        has closed an idle one) is opened again until the time-out.
        """

        async def attempt() -> Any:
            connection = await self.service()
            request_id = connection.new_request_id()
            return await connection.request(request_id, make(request_id), about)

        return await retry(
            attempt,
            about=about,
            server=self._url,
            total_s=self._options.request_timeout_s,
            may_pass=lambda problem: isinstance(problem, ConnectionLost) and self._was_reached,
        )


class HttpLookup:
    """Lookup over HTTP, each request in a thread of its own."""

    def __init__(self, pool: BrokerPool, url: str, options: ClientOptions) -> None:
        self._pool = pool
        self._options = options
        self._base = url.rstrip("/")
        if not urlsplit(self._base).hostname:
            raise ClientError(f"not an http:// or https:// address: {url!r}")

    async def service(self) -> None:
        """No broker speaks HTTP only, but none is known before a topic is."""
        return

    async def partitions(self, topic: str) -> int:
        """Request it from the admin API."""
        path = f"/admin/v2/{http_path(topic)}/partitions?checkAllowAutoCreation=true"
        answer = await self._get(path, f"partitions of {topic}")
        return check_partition_count(_field(answer, "partitions", int), topic)

    async def broker(self, topic: str) -> PulsarConnection:
        """Request /lookup/v2 and connect to the broker it names."""
        path = f"/lookup/v2/topic/{http_path(topic)}"
        if self._options.listener:
            path += f"?listenerName={self._options.listener}"
        answer = await self._get(path, f"lookup of {topic}")
        name = "brokerUrlTls" if self._pool.is_secure else "brokerUrl"
        url = _field(answer, name, str)
        return await self._pool.get(self._pool.choose_address(url, url, f"lookup of {topic}"))

    async def topics(self, namespace: str) -> list[str]:
        """Request it from the admin API."""
        path = f"/admin/v2/namespaces/{namespace}/topics?mode=PERSISTENT"
        answer = await self._get(path, f"topics of {namespace}")
        if not isinstance(answer, list):
            raise ClientError(f"topics of {namespace}: no list")
        return sorted(str(one) for one in answer)

    async def _get(self, path: str, about: str) -> Any:
        headers = {"Accept": "application/json", **self._options.security.make_header()}
        try:
            async with asyncio.timeout(self._options.request_timeout_s):
                return await asyncio.to_thread(self._follow, self._base + path, headers, about)
        except ClientError:
            raise
        except TimeoutError:
            limit_s = self._options.request_timeout_s
            raise ServerUnreachable(
                describe_unreachable(self._base, "no answer", within_s=limit_s)
            ) from None

    def _follow(self, url: str, headers: dict[str, str], about: str) -> Any:
        """GET, redirects included; runs in a thread."""
        for _ in range(self._options.max_redirects + 1):
            try:
                status, location, body = _get_once(url, headers, self._options)
            except (OSError, http.client.HTTPException) as problem:
                error = describe_unreachable(url, problem)
                raise ServerUnreachable(f"{about}: {error}") from problem
            if status in REDIRECTS and location:
                url = _check_redirect(url, urljoin(url, location), headers, about)
                continue
            if status != http.HTTPStatus.OK:
                code = HTTP_ERRORS.get(status, ServerError.ServiceNotReady)
                raise PulsarError(code, about, f"HTTP {status} {body[:200]!r}")
            try:
                return json.loads(body)
            except ValueError as problem:
                raise ClientError(f"{about}: no JSON: {body[:80]!r}") from problem
        raise ClientError(f"{about}: more than {self._options.max_redirects} redirects")


def _field(answer: Any, name: str, kind: type) -> Any:
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise ClientError(f"an answer over HTTP without {name}: {answer!r}")
    return value


def _check_redirect(url: str, led_to: str, headers: dict[str, str], about: str) -> str:
    """Return where a redirect leads; ClientError if a login would go to another server."""
    if "Authorization" in headers and _origin(led_to) != _origin(url):
        raise ClientError(
            f"{about}: {url} redirects to {led_to}, and a login is not sent to another server; "
            "if you trust it, use its address as the service URL"
        )
    return led_to


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)


def _get_once(
    url: str, headers: dict[str, str], options: ClientOptions
) -> tuple[int, str | None, bytes]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConnectionLost(f"led to {url!r}")
    limit_s = options.connect_timeout_s
    connection = (
        http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=limit_s, context=options.security.make_context()
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(parts.hostname, parts.port, timeout=limit_s)
    )
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read(MAX_HTTP_BYTES + 1)
        if len(body) > MAX_HTTP_BYTES:
            raise ConnectionLost(f"{url}: more than {MAX_HTTP_BYTES} bytes")
        return response.status, response.getheader("Location"), body
    finally:
        connection.close()
