"""Pulsar's subscriptions: the list with their backlog, one with its consumers, and a reset.

A subscription belongs to a topic, so a principal needs DESCRIBE on the topic, and READ to move it.
"""

from __future__ import annotations

from typing import Any, Final

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import NotServed, UnknownSubscription
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.console.positions import choose_partitions, find_reset_offset
from trilogue.gateway.http.console.rendering import DASH, Page, Redirect
from trilogue.gateway.http.console.request import (
    NAMES_PER_STEP,
    PAGE_ROWS,
    ConsoleRequest,
    make_link,
)
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.pulsar.metadata.subscription_access import check_administered
from trilogue.gateway.steps import next_step

PARTITIONS_SHOWN: Final = 200
CONSUMERS_SHOWN: Final = 200

Key = tuple[str, str]  # the topic's name, the subscription's


async def list_subscriptions(request: ConsoleRequest) -> Page:
    """Return a page of the subscriptions whose name or topic has a text, in order."""
    wanted = request.text("q").strip().lower()
    behind = request.text("after_topic"), request.text("after")
    backlogs = await _sum_backlogs(request, wanted)
    keys = sorted(key for key in backlogs if key > behind)
    shown = keys[:PAGE_ROWS]
    rows = [
        {
            "topic": key[0],
            "name": key[1],
            "partitions": backlogs[key][0],
            "backlog": backlogs[key][1],
        }
        for key in shown
    ]
    more = shown[-1] if len(keys) > PAGE_ROWS else None
    values = {"rows": rows, "q": request.text("q"), "more": more, "after": behind[0]}
    return Page("subscriptions.html", values)


async def _sum_backlogs(request: ConsoleRequest, wanted: str) -> dict[Key, tuple[int, int]]:
    """Return partitions and backlog of each durable subscription that the principal may see."""
    known = request.broker.subscriptions
    places = await request.map_partitions()
    found: dict[Key, tuple[int, int]] = {}
    for count, cursor in enumerate(list(known), 1):
        place = places.get(cursor.partition_id)
        if place is not None and not place[0].partitions[place[1]].is_remote:
            key = str(place[0].name), cursor.name
            if wanted in key[0].lower() or wanted in key[1].lower():
                partitions, backlog = found.get(key, (0, 0))
                found[key] = partitions + 1, backlog + known.backlog(cursor)
        if count % NAMES_PER_STEP == 0:
            await next_step()
    return found


async def show_subscription(request: ConsoleRequest) -> Page:
    """Return the page of one subscription."""
    topic = request.find_topic(request.text("topic"), Operation.DESCRIBE)
    name = request.text("name")
    rows, consumers = await _describe(request, _gateway(request), topic, name)
    if not rows:
        raise UnknownSubscription(f"there is no subscription {name} of {topic.name}")
    return Page(
        "subscription.html",
        {
            "topic": topic,
            "topic_name": str(topic.name),
            "name": name,
            "rows": rows,
            "consumers": consumers[:CONSUMERS_SHOWN],
            "backlog": sum(row["backlog"] for row in rows),
            "can_reset": request.can(Operation.READ, ResourceKind.TOPIC, topic.name),
        },
    )


async def read_figures(request: ConsoleRequest) -> dict[str, Any]:
    """Return the figures of this node's partitions, which the charts of the page follow."""
    topic = request.find_topic(request.text("topic"), Operation.DESCRIBE)
    rows, _ = await _describe(request, _gateway(request), topic, request.text("name"))
    backlog = sum(row["backlog"] for row in rows)
    return {
        "at_ms": request.gateway.now_ms(),
        "counters": {"offset": sum(row["end"] for row in rows) - backlog},
        "gauges": {"lag": backlog},
    }


async def _describe(
    request: ConsoleRequest, pulsar: PulsarGateway, topic: Topic, name: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a subscription's partitions, and of its consumers."""
    rows: list[dict[str, Any]] = []
    consumers: list[dict[str, Any]] = []
    for number, partition in enumerate(topic.partitions[:PARTITIONS_SHOWN]):
        if partition.is_remote:
            continue
        cursor = request.broker.subscriptions.find_cursor(partition.partition_id, name)
        for each in pulsar.subscriptions.stats(partition):
            if each.name != name:
                continue
            rows.append(
                {
                    "partition": number,
                    "type": each.type or DASH,
                    "durable": each.durable,
                    "mark": None if cursor is None else cursor.mark,
                    "end": partition.log.high_watermark,
                    "backlog": each.backlog,
                    "unacked": each.unacked_messages,
                    "delayed": each.delayed,
                    "active": each.active_consumer,
                }
            )
            consumers += [{"partition": number, "consumer": one} for one in each.consumers]
        await next_step()
    return rows, consumers


async def reset_subscription(request: ConsoleRequest) -> Redirect:
    """Move a subscription in all partitions of its topic, or in one; its consumers reconnect."""
    fields = request.fields
    topic = request.find_topic(fields.get("topic", ""), Operation.READ)
    name, pulsar = fields.get("name", ""), _gateway(request)
    check_administered(request.access, request.broker.namespaces, name, topic.name)
    moved = 0
    for partition in choose_partitions(request, topic):
        if request.broker.subscriptions.find_cursor(partition.partition_id, name) is None:
            continue
        offset = await find_reset_offset(request, partition)
        await pulsar.subscriptions.seek(partition, name, offset)
        pulsar.subscriptions.end_move(partition, name)
        moved += 1
    if not moved:
        raise UnknownSubscription(f"there is no subscription {name} of {topic.name}")
    resource = Resource(ResourceKind.TOPIC, str(topic.name))
    request.access.record_act("reset subscription", resource, subscription=name)
    return Redirect(make_link("/subscription", topic=topic.name, name=name))


def _gateway(request: ConsoleRequest) -> PulsarGateway:
    if request.services.pulsar is None:
        raise NotServed("this node has no listener for Pulsar's clients")
    return request.services.pulsar
