"""`trilogue doctor --server`: checks of a running server, among them of dangerous settings.

Each check gives one row: its subject, its finding and a verdict. The server is not changed; with
`write`, a check creates a topic, writes to it, reads it and deletes it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from trilogue import __version__
from trilogue.cli.cluster import read_http_options
from trilogue.cli.http_client import OFF, HttpConnection, HttpError
from trilogue.cli.tables import spell_count, spell_size
from trilogue.client.errors import ClientError
from trilogue.client.kafka.admin.model import LogDir, Resource, ResourceType, Setting
from trilogue.client.kafka.errors import KafkaError

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient

OK, WARN, FAIL = "ok", "warn", "fail"
USED_WARN = 0.85
FREE_FAIL = 1 << 30
SYNCED: Final = "each append is synced"
"""The beginning of a note on a setting by which another server would lose messages."""
MESSAGES: Final = 100
READ_S: Final = 10.0


class CheckResult(NamedTuple):
    """The result of one check."""

    look: str
    seen: str
    verdict: str = OK
    advice: str = ""


async def run_checks(
    client: KafkaClient, http: tuple[str, str, float], *, write: bool
) -> AsyncIterator[CheckResult]:
    """Run all checks and yield each result at once."""
    yield await _versions(client)
    nodes = 1
    for look in (_nodes, _topics, _groups, _disks):
        async for seen in _guarded(look, client):
            if seen.look == "nodes":
                nodes = int(seen.seen.split()[0])
            yield seen
    async for seen in _guarded(lambda client: _settings(client, nodes), client):
        yield seen
    for seen in await asyncio.to_thread(_http, http):
        yield seen
    if write:
        async for seen in _guarded(_round_trip, client):
            yield seen


async def _guarded(
    look: Callable[[KafkaClient], Awaitable[list[CheckResult]]], client: KafkaClient
) -> AsyncIterator[CheckResult]:
    """Run one check; an error is its finding."""
    try:
        for seen in await look(client):
            yield seen
    except ClientError as error:
        yield CheckResult(getattr(look, "__name__", "settings").strip("_"), str(error), FAIL)


async def _versions(client: KafkaClient) -> CheckResult:
    began = time.perf_counter()
    served = await client.admin.api_versions()
    took_ms = (time.perf_counter() - began) * 1000
    fetch = served.get(1, (0, -1))[1]
    return CheckResult(
        "kafka listener", f"responds in {took_ms:.0f} ms, {len(served)} APIs, Fetch v{fetch}"
    )


async def _nodes(client: KafkaClient) -> list[CheckResult]:
    cluster = await client.admin.describe_cluster()
    found = [
        CheckResult("cluster", f"id {cluster.cluster_id}, controller {cluster.controller_id}"),
        CheckResult(
            "nodes", f"{len(cluster.nodes)} ({', '.join(str(one.id) for one in cluster.nodes)})"
        ),
    ]
    for node in cluster.nodes:
        where = f"{node.host}:{node.port}"
        try:
            await client.cluster.connect((node.host, node.port))
        except ClientError as error:
            advice = (
                "clients are given this address: change it (`serve --advertise kafka=HOST:PORT`)"
            )
            found.append(CheckResult(f"node {node.id}", f"{where}: {error}", FAIL, advice))
        else:
            found.append(CheckResult(f"node {node.id}", f"{where} answers"))
    return found


async def _topics(client: KafkaClient) -> list[CheckResult]:
    topics = await client.admin.describe_topics()
    good = [one for one in topics.values() if not isinstance(one, KafkaError)]
    partitions = [(one.name, part) for one in good for part in one.partitions]
    found = [CheckResult("topics", f"{len(topics)}, {spell_count(len(partitions), 'partition')}")]
    orphans = [f"{name}-{one.number}" for name, one in partitions if one.leader < 0]
    if orphans:
        detail = f"{len(orphans)} without a leader: {', '.join(orphans[:5])}"
        found.append(CheckResult("leaders", detail, FAIL, "start the servers that hold them"))
    behind = [f"{name}-{p.number}" for name, p in partitions if len(p.in_sync) < len(p.replicas)]
    if behind:
        detail = f"{len(behind)} with copies behind: {', '.join(behind[:5])}"
        found.append(CheckResult("copies", detail, WARN, "check the servers that hold them"))
    return found


async def _groups(client: KafkaClient) -> list[CheckResult]:
    groups = await client.admin.list_groups()
    states: dict[str, int] = {}
    for one in groups:
        states[one.state or "unknown"] = states.get(one.state or "unknown", 0) + 1
    detail = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return [CheckResult("groups", f"{len(groups)}" + (f" ({detail})" if detail else ""))]


async def _disks(client: KafkaClient) -> list[CheckResult]:
    found = []
    for node, dirs in (await client.admin.log_dirs()).items():
        for one in dirs:
            if isinstance(one, LogDir):
                found.append(check_disk(node, one))
            else:
                found.append(CheckResult(f"disk of node {node}", str(one), FAIL))
    return found


def check_disk(node: int, one: LogDir) -> CheckResult:
    """Whether a log directory has room: warns from 85 % on, fails below 1 GiB of free space."""
    used = spell_size(sum(size.size_bytes for size in one.partitions.values()))
    look = f"disk of node {node}"
    if one.total_bytes <= 0:
        return CheckResult(look, f"{one.path}: {used} of messages; free space unknown")
    full = 1 - one.usable_bytes / one.total_bytes
    detail = (
        f"{one.path}: {used} of messages, {spell_size(one.usable_bytes)} of "
        f"{spell_size(one.total_bytes)} free"
    )
    if full < USED_WARN:
        return CheckResult(look, detail)
    advice = "`trilogue topics list --long` shows what is large; shorten retention or add disk"
    return CheckResult(look, detail, FAIL if one.usable_bytes < FREE_FAIL else WARN, advice)


async def _settings(client: KafkaClient, nodes: int) -> list[CheckResult]:
    cluster = await client.admin.describe_cluster()
    found = []
    for node in cluster.nodes:
        resource = Resource(ResourceType.BROKER, str(node.id))
        body = (await client.admin.describe_configs([resource], documentation=True))[resource]
        if isinstance(body, KafkaError):
            found.append(CheckResult(f"settings of node {node.id}", str(body), WARN))
            continue
        seen = [CheckResult(f"settings of node {node.id}", *one) for one in dangers(body, nodes)]
        found += seen or [CheckResult(f"settings of node {node.id}", "nothing looks dangerous")]
    return found


def dangers(body: Mapping[str, Setting], nodes: int) -> list[tuple[str, str, str]]:
    """Yield settings that may lose messages or admit unknown clients: name, verdict and reason."""
    values = {name: one.value or "" for name, one in body.items()}

    flushing = body.get("log.flush.interval.messages")
    is_synced = flushing is not None and SYNCED in (flushing.documentation or "")

    def number(name: str, default: int) -> int:
        return int(values[name]) if values.get(name, "").lstrip("-").isdecimal() else default

    rules = (
        (
            values.get("unclean.leader.election.enable") == "true",
            "unclean.leader.election.enable",
            "a copy that is behind may lead, and what was acknowledged is lost",
        ),
        (
            nodes == 1 and not is_synced and number("log.flush.interval.messages", 1) > 1,
            "log.flush.interval.messages",
            "one server, and messages are acknowledged before they are on disk",
        ),
        (
            nodes > 1 and number("min.insync.replicas", 2) < 2,
            "min.insync.replicas",
            "acks=all is content with one copy",
        ),
        (
            nodes > 1 and number("default.replication.factor", 2) < 2,
            "default.replication.factor",
            "topics are made with one copy",
        ),
        (
            nodes > 1 and number("offsets.topic.replication.factor", 2) < 2,
            "offsets.topic.replication.factor",
            "positions of groups have one copy",
        ),
        (
            values.get("auto.create.topics.enable") == "true",
            "auto.create.topics.enable",
            "a misspelt name makes a topic",
        ),
        (
            any(one.startswith("/tmp") for one in values.get("log.dirs", "").split(",")),  # noqa: S108
            "log.dirs",
            "a restart of the machine may empty it",
        ),
        (
            any(_is_open(one) for one in values.get("listeners", "").split(",")),
            "listeners",
            "any client that reaches this address reads and writes everything",
        ),
    )
    return [(f"{name}={values.get(name, '')}", WARN, why) for holds, name, why in rules if holds]


def _is_open(listener: str) -> bool:
    """Return whether other machines reach it without TLS and without a password."""
    name, found, _ = listener.partition("://")
    if not found or not name.upper().startswith("PLAINTEXT"):
        return False
    host = urlsplit(listener).hostname or ""
    return not (host == "localhost" or host.startswith("127.") or host == "::1")


def _http(http: tuple[str, str, float]) -> list[CheckResult]:
    where, server, timeout_s = http
    if where == OFF:
        return []
    with HttpConnection(where, server, timeout_s, read_http_options(where)) as connection:
        try:
            status, body = connection.get("/healthz")
            if not isinstance(body, dict) or "state" not in body:
                return [CheckResult("http listener", f"{connection.where} is not Trilogue's")]
            found = [_health(connection.where, status, body)]
            if lost := body.get("missing_segments"):
                found.append(_missing_segments(lost))
            if body["version"] != __version__:
                found.append(
                    CheckResult("versions", f"here {__version__}, there {body['version']}", WARN)
                )
            return found + _pulsar(connection, timeout_s) + _tubemq(connection, timeout_s)
        except HttpError as error:
            if connection.is_guess:
                return [
                    CheckResult("http listener", f"none found ({error}); --http HOST:PORT names it")
                ]
            return [
                CheckResult("http listener", str(error), FAIL, "`serve --listen http=HOST:PORT`")
            ]


def _health(where: str, status: int, body: Mapping[str, Any]) -> CheckResult:
    detail = f"{where}: {body['state']}, version {body['version']}, up {body['uptime_s']:.0f} s"
    return CheckResult("http listener", detail, OK if status == 200 else FAIL)


def _missing_segments(names: Sequence[str]) -> CheckResult:
    detail = f"{spell_count(len(names), 'segment')} missing: {', '.join(names[:5])}"
    advice = "put the files back into DATA/segments: docs/how-to/corrupt-log.md"
    return CheckResult("segments", detail, FAIL, advice)


def _pulsar(connection: HttpConnection, timeout_s: float) -> list[CheckResult]:
    """Check that the address that Pulsar clients are given accepts connections."""
    _, body = connection.get("/lookup/v2/topic/persistent/public/default/trilogue-doctor")
    url = body.get("brokerUrl") if isinstance(body, dict) else None
    if not url:
        return [CheckResult("pulsar listener", "closed")]
    place = urlsplit(url)
    advice = "Pulsar clients are given this address: `serve --advertise pulsar=HOST:PORT`"
    return [
        _knock(
            "pulsar listener", url, (place.hostname or "", place.port or 6650), timeout_s, advice
        )
    ]


def _tubemq(connection: HttpConnection, timeout_s: float) -> list[CheckResult]:
    """Check that the address that TubeMQ's master gives to clients accepts connections."""
    _, body = connection.get("/webapi.htm?type=op_query&method=admin_query_broker_run_status")
    rows = body.get("data") if isinstance(body, dict) else None
    if not rows or not rows[0].get("brokerPort"):
        return [CheckResult("tubemq listener", "closed")]
    host, port = rows[0]["brokerIp"], int(rows[0]["brokerPort"])
    advice = "TubeMQ clients are given this address: `serve --advertise tubemq-broker=HOST:PORT`"
    return [_knock("tubemq listener", f"{host}:{port}", (host, port), timeout_s, advice)]


def _knock(
    look: str, where: str, place: tuple[str, int], timeout_s: float, advice: str
) -> CheckResult:
    """Return whether an address accepts connections."""
    import socket

    try:
        socket.create_connection(place, timeout_s).close()
    except OSError as error:
        return CheckResult(look, f"{where}: {error}", FAIL, advice)
    return CheckResult(look, f"{where} answers")


async def _round_trip(client: KafkaClient) -> list[CheckResult]:
    """Create a topic, write, read and compare; delete it also after an error."""
    topic = f"trilogue-doctor-{secrets.token_hex(4)}"
    sent = [b"%d %s" % (number, os.urandom(100)) for number in range(MESSAGES)]
    began = time.perf_counter()
    try:
        await client.admin.create_topic(topic, 1)
        made = time.perf_counter()
        producer = await client.producer()
        for future in [await producer.submit(topic, one) for one in sent]:
            await future
        written = time.perf_counter()
        consumer = await client.consumer()
        await consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        got: list[bytes | None] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while len(got) < MESSAGES:
                    got += [one.value for one in await consumer.poll()]
        read = time.perf_counter()
    finally:
        with suppress(ClientError):
            await client.admin.delete_topic(topic)
    if got != sent:
        detail = f"{len(got)} of {MESSAGES} messages came back, or others"
        return [CheckResult("round trip", detail, FAIL, "the server does not work as it should")]
    took = [1000 * one for one in (made - began, written - made, read - written)]
    detail = "{} messages: topic made in {:.0f} ms, acknowledged in {:.0f} ms, read in {:.0f} ms"
    return [CheckResult("round trip", detail.format(MESSAGES, *took))]
