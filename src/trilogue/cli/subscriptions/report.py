"""Gathers the readers of topics, of all protocols.

Kafka's groups come from the Kafka listener, as on any cluster; Pulsar's subscriptions and TubeMQ's
groups from Trilogue's HTTP listener. Without it they are left out, with a warning.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from trilogue.cli.cluster import (
    HTTP_VARIABLE,
    CommandError,
    read_http_options,
    require_topics,
    suggest_names,
)
from trilogue.cli.groups.report import admin, ends_of, lag
from trilogue.cli.http_client import OFF, HttpConnection, HttpError, topic_path
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.errors import KafkaError

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster
    from trilogue.client.kafka.model import Partition

OK: Final = 200
NOT_FOUND: Final = 404
Http = tuple[str, str, float]
"""The addresses of the HTTP and the Kafka listener, and the timeout in seconds."""


class Part(NamedTuple):
    """A subscription in one partition; None is the partition of a non-partitioned topic."""

    topic: str
    subscription: str
    protocol: str
    type: str | None
    partition: int | None
    position: int | None
    end: int | None
    backlog: int | None
    members: frozenset[str]


async def listed(
    cluster: KafkaCluster, topics: Sequence[str] | None, http: Http
) -> list[dict[str, Any]]:
    """Return a row per topic and subscription."""
    summed: dict[tuple[str, str, str], dict[str, Any]] = {}
    members: dict[tuple[str, str, str], set[str]] = {}
    for part in await _gathered(cluster, topics, http):
        key = part.topic, part.protocol, part.subscription
        row = summed.setdefault(
            key,
            {
                "topic": part.topic,
                "subscription": part.subscription,
                "protocol": part.protocol,
                "type": part.type,
                "members": 0,
                "backlog": None,
            },
        )
        if part.backlog is not None:
            row["backlog"] = (row["backlog"] or 0) + part.backlog
        members.setdefault(key, set()).update(part.members)
        row["members"] = len(members[key])
    return [summed[key] for key in sorted(summed)]


async def described(
    cluster: KafkaCluster, topic: str, names: Sequence[str] | None, http: Http
) -> list[dict[str, Any]]:
    """Return a row per subscription and partition."""
    parts = await _gathered(cluster, [topic], http)
    there = {part.subscription for part in parts}
    for name in names or ():
        if name not in there:
            raise CommandError(f"no subscription {name} of {topic}{suggest_names(name, there)}")
    return [
        {**part._asdict(), "members": sorted(part.members)}
        for part in sorted(parts, key=_order)
        if not names or part.subscription in names
    ]


def _order(part: Part) -> tuple[str, str, int]:
    return part.protocol, part.subscription, -1 if part.partition is None else part.partition


async def _gathered(cluster: KafkaCluster, topics: Sequence[str] | None, http: Http) -> list[Part]:
    if topics:
        await require_topics(cluster, topics)
        wanted = list(dict.fromkeys(topics))
    else:
        wanted = await cluster.topic_names()
    parts = await _of_kafka(cluster, set(wanted))
    where, server, timeout_s = http
    if where == OFF:
        return parts
    with HttpConnection(where, server, timeout_s, read_http_options(where)) as connection:
        try:
            for topic in wanted:
                parts += _of_pulsar(connection, topic)
            parts += _of_tubemq(connection, wanted, everywhere=not topics)
        except (KeyError, TypeError, ValueError) as error:
            text = f"{connection.where} is not an HTTP listener of Trilogue"
            raise CommandError(text) from error
        except HttpError as error:
            text = f"no HTTP listener responds ({error})"
            if not connection.is_guess:
                raise CommandError(text) from error
            hint = f"name it with --http HOST:PORT or {HTTP_VARIABLE}, or set --http off"
            print(f"trilogue: only Kafka's groups: {text}; {hint}", file=sys.stderr)
    return parts


async def _of_kafka(cluster: KafkaCluster, wanted: set[str]) -> list[Part]:
    groups = admin(cluster)
    names = [one.name for one in await groups.list_groups()]
    described = {
        name: group
        for name, group in (await groups.describe_groups(names)).items()
        if not isinstance(group, KafkaError)
    }
    positions: dict[tuple[str, Partition], GroupOffset] = {}
    for name in names:
        for partition, position in (await groups.group_offsets(name)).items():
            if partition.topic in wanted and isinstance(position, GroupOffset):
                positions[name, partition] = position
    owners = {
        (name, partition): member.member_id
        for name, group in described.items()
        for member in group.members
        for partition in member.assignment
        if partition.topic in wanted
    }
    ends = await ends_of(cluster, {partition for _, partition in {*positions, *owners}})
    parts = []
    for key in sorted({*positions, *owners}):
        name, partition = key
        known = positions.get(key)
        parts.append(
            Part(
                partition.topic,
                name,
                "kafka",
                described[name].type if name in described else None,
                partition.number,
                None if known is None else known.offset,
                ends.get(partition),
                lag(known, ends.get(partition)),
                frozenset({owners[key]} if key in owners else ()),
            )
        )
    return parts


def _of_pulsar(connection: HttpConnection, topic: str) -> list[Part]:
    path = topic_path(topic)
    status, body = connection.get(f"{path}/partitioned-stats")
    if status == OK:
        each = {_number(name): stats for name, stats in body["partitions"].items()}
    else:
        status, body = connection.get(f"{path}/stats")
        if status == NOT_FOUND:
            return []
        if status != OK:
            raise HttpError(f"{connection.where} ({status} for {path})")
        each = {None: body}
    return [
        Part(
            topic,
            name,
            "pulsar",
            None if one["type"] == "None" else str(one["type"]),
            number,
            None,
            stats.get("msgInCounter"),
            one["msgBacklog"],
            frozenset(
                f"{consumer.get('consumerName')} {consumer.get('address')}"
                for consumer in one["consumers"]
            ),
        )
        for number, stats in each.items()
        for name, one in stats["subscriptions"].items()
    ]


def _number(partition: str) -> int | None:
    _, found, number = partition.rpartition("-partition-")
    return int(number) if found else None


def _of_tubemq(
    connection: HttpConnection, wanted: Iterable[str], *, everywhere: bool
) -> list[Part]:
    names = "" if everywhere else "&topicName=" + quote(",".join(wanted))
    path = f"/broker.htm?type=op_query&method=admin_query_offset{names}"
    status, body = connection.get(path)
    if status != OK or not isinstance(body, dict) or not body.get("result"):
        return []  # no TubeMQ listener is open
    shown = set(wanted)
    return [
        Part(
            topic["topicName"],
            group["groupName"],
            "tubemq",
            None,
            one["partitionId"],
            one["curOffset"] if one["curOffset"] >= 0 else None,
            one["offsetMax"],
            one["offsetLag"],
            frozenset(),
        )
        for group in body["dataSet"]
        for topic in group["subInfo"]
        for one in topic["offsets"]
        if topic["topicName"] in shown
    ]
