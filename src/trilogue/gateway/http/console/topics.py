"""Topics: the list, and one topic with its partitions, settings, schemas, readers and writers.

The list is sorted by name and goes on behind a name, so that a page costs the same wherever it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import is_kafka_name, is_tubemq_name
from trilogue.broker.settings.topic_table import TABLE
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.console.rendering import Page
from trilogue.gateway.http.console.request import NAMES_PER_STEP, PAGE_ROWS, ConsoleRequest
from trilogue.gateway.http.pulsar.topic_clients import find_producers, format_address
from trilogue.gateway.steps import next_step

PARTITIONS_SHOWN: Final = 200
PARTITIONS_SUMMED: Final = 10_000
CLIENTS_SHOWN: Final = 100
SCHEMA_SHOWN: Final = 20_000  # characters of one schema
SCHEMAS_SHOWN: Final = 20  # the newest versions


class TopicFigures(msgspec.Struct):
    """What the partitions of a topic on this node hold."""

    messages: int = 0
    appended: int = 0  # since the topic was created
    size: int = 0
    remote: int = 0  # partitions of other nodes


class PartitionRow(msgspec.Struct, frozen=True):
    """One partition as it is shown; `owner` is the node that serves it."""

    number: int
    partition_id: int
    owner: int
    is_remote: bool
    start: int = 0
    end: int = 0
    stable: int = 0
    size: int = 0
    segments: int = 0
    last_ms: int = -1


async def list_topics(request: ConsoleRequest) -> Page:
    """Return a page of the topics whose name has a text, in order, behind a name."""
    wanted, after = request.text("q").strip().lower(), request.text("after")
    names: list[tuple[str, Topic]] = []
    for count, topic in enumerate(list(request.broker.cluster), 1):
        name = str(topic.name)
        if name > after and wanted in name.lower():
            names.append((name, topic))
        if count % NAMES_PER_STEP == 0:
            await next_step()
    rows: list[dict[str, Any]] = []
    more = ""
    for count, (name, topic) in enumerate(_in_order(names), 1):
        if count % NAMES_PER_STEP == 0:
            await next_step()
        if not request.can(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            continue
        if len(rows) == PAGE_ROWS:
            more = str(rows[-1]["name"])
            break
        rows.append({"name": name, "topic": topic, "figures": sum_figures(topic)})
        await next_step()
    return Page("topics.html", {"rows": rows, "q": request.text("q"), "after": after, "more": more})


def _in_order(names: list[tuple[str, Topic]]) -> Iterator[tuple[str, Topic]]:
    """Yield topics by name; of many only those that are taken are sorted."""
    heap = [(name, number) for number, (name, _) in enumerate(names)]
    heapq.heapify(heap)
    while heap:
        yield names[heapq.heappop(heap)[1]]


def sum_figures(topic: Topic) -> TopicFigures:
    """Return the figures of all partitions of this node."""
    found = TopicFigures()
    for partition in topic.partitions[:PARTITIONS_SUMMED]:
        if partition.is_remote:
            found.remote += 1
            continue
        plog = partition.log
        found.messages += plog.high_watermark - plog.start_offset
        found.appended += plog.high_watermark
        found.size += plog.size_bytes
    return found


async def show_topic(request: ConsoleRequest) -> Page:
    """Return the page of one topic."""
    topic = request.find_topic(request.text("name"), Operation.DESCRIBE)
    first = request.number("from", 0)
    until = min(first + PARTITIONS_SHOWN, len(topic.partitions))
    rows = [
        describe_partition(request, number, topic.partitions[number])
        for number in range(first, until)
    ]
    can_see_settings = request.can(Operation.DESCRIBE_SETTINGS, ResourceKind.TOPIC, topic.name)
    return Page(
        "topic.html",
        {
            "topic": topic,
            "name": str(topic.name),
            "figures": sum_figures(topic),
            "partitions": rows,
            "first": first,
            "until": until,
            "messages": _link_messages(request, topic),
            "settings": _list_settings(topic) if can_see_settings else None,
            "schemas": _list_schemas(request, topic),
            "producers": _list_producers(request, topic),
            "kafka_producers": _list_kafka_producers(request, topic),
            "subscriptions": _list_subscriptions(request, topic),
            "is_kafka_name": is_kafka_name(topic.name),
            "is_tubemq_name": is_tubemq_name(topic.name),
            "can_read": request.can(Operation.READ, ResourceKind.TOPIC, topic.name),
            "can_write": request.can(Operation.WRITE, ResourceKind.TOPIC, topic.name),
            "can_alter": request.can(Operation.ALTER, ResourceKind.TOPIC, topic.name),
            "can_delete": request.can(Operation.DELETE, ResourceKind.TOPIC, topic.name),
            "can_set": can_see_settings
            and request.can(Operation.ALTER_SETTINGS, ResourceKind.TOPIC, topic.name),
            "setting_names": sorted(key for key, row in TABLE.items() if row.is_effective),
        },
    )


def _link_messages(request: ConsoleRequest, topic: Topic) -> str:
    """Return the address of the messages of the first partition, at the node that has them."""
    name, partition = str(topic.name), topic.partitions[0]
    elsewhere = ""
    if partition.is_remote:
        owner = request.broker.cluster.ownership.partition_owner(partition.partition_id)
        elsewhere = request.link_at(owner, "/messages", name=name)
    return elsewhere or request.link("/messages", name=name)


async def read_figures(request: ConsoleRequest) -> dict[str, Any]:
    """Return the figures that the charts of a topic's page follow."""
    topic = request.find_topic(request.text("name"), Operation.DESCRIBE)
    figures = sum_figures(topic)
    return {
        "at_ms": request.gateway.now_ms(),
        "counters": {"messages": figures.appended},
        "gauges": {"bytes": figures.size},
    }


def describe_partition(request: ConsoleRequest, number: int, partition: Partition) -> PartitionRow:
    """Return the row of one partition."""
    partition_id = partition.partition_id
    owner = request.broker.cluster.ownership.partition_owner(partition_id)
    if partition.is_remote:
        return PartitionRow(number, partition_id, owner, is_remote=True)
    plog = partition.log
    return PartitionRow(
        number,
        partition_id,
        owner,
        is_remote=False,
        start=plog.start_offset,
        end=plog.high_watermark,
        stable=plog.stable_end,
        size=plog.size_bytes,
        segments=len(plog.extents),
        last_ms=plog.max_timestamp,
    )


def _list_settings(topic: Topic) -> list[dict[str, Any]]:
    """Return the settings that Kafka's clients know: overrides first, then defaults."""
    overrides = topic.settings
    rows = [
        {
            "key": key,
            "value": overrides.get(key, row.default),
            "doc": row.doc,
            "is_own": key in overrides,
        }
        for key, row in TABLE.items()
        if row.is_effective or key in overrides
    ]
    rows += [
        {"key": key, "value": value, "doc": "", "is_own": True}
        for key, value in overrides.items()
        if key not in TABLE
    ]
    return sorted(rows, key=lambda row: (not row["is_own"], row["key"]))


def _list_schemas(request: ConsoleRequest, topic: Topic) -> list[dict[str, Any]]:
    """Return the newest versions of the topic's schema, the newest one first."""
    return [
        {
            "version": version,
            "kind": schema.kind,
            "time_ms": schema.time_ms,
            "text": schema.data.decode(errors="replace")[:SCHEMA_SHOWN],
        }
        for version, schema in reversed(request.broker.schemas.current(topic)[-SCHEMAS_SHOWN:])
    ]


def _list_producers(request: ConsoleRequest, topic: Topic) -> list[dict[str, Any]]:
    """Return connected producers of Pulsar's clients."""
    pulsar = request.services.pulsar
    found: list[dict[str, Any]] = []
    if pulsar is None:
        return found
    for number, partition in enumerate(topic.partitions[:PARTITIONS_SHOWN]):
        if partition.is_remote or len(found) >= CLIENTS_SHOWN:
            continue
        found += [
            {
                "partition": number,
                "name": each.name,
                "address": format_address(each.connection),
                "since_ms": each.since_ms,
                "messages": each.messages,
                "bytes": each.bytes,
                "client": each.connection.client_version,
            }
            for each in find_producers(pulsar, partition)[:CLIENTS_SHOWN]
        ]
    return found[:CLIENTS_SHOWN]


def _list_kafka_producers(request: ConsoleRequest, topic: Topic) -> list[dict[str, Any]]:
    """Return producers with an id that wrote to partitions of this node, the latest first.

    They need what DescribeProducers does, READ; without it there are none.
    """
    if not request.can(Operation.READ, ResourceKind.TOPIC, topic.name):
        return []
    found = (
        {
            "partition": number,
            "id": each.producer_id,
            "epoch": each.epoch,
            "sequence": each.last_sequence,
            "active_ms": each.active_ms,
        }
        for number, partition in enumerate(topic.partitions[:PARTITIONS_SHOWN])
        if not partition.is_remote
        for each in partition.producers.active()
    )
    return heapq.nlargest(CLIENTS_SHOWN, found, key=lambda row: int(row["active_ms"]))


def _list_subscriptions(request: ConsoleRequest, topic: Topic) -> list[str]:
    """Return the names of the subscriptions of the topic's partitions on this node."""
    known, pulsar = request.broker.subscriptions, request.services.pulsar
    names: set[str] = set()
    for partition in topic.partitions[:PARTITIONS_SHOWN]:
        if not partition.is_remote:
            names.update(known.of_partition(partition.partition_id))
            if pulsar is not None:
                names.update(pulsar.subscriptions.of(partition.partition_id))
    return sorted(names)[:CLIENTS_SHOWN]
