"""TubeMQ's consumer groups: the list with their lag, one group, and a reset of its offsets.

A reset is that of TubeMQ's web API: with or without consumers, for ALTER on group and topic.
"""

from __future__ import annotations

from typing import Any

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import UnknownGroup
from trilogue.broker.facts import Protocol
from trilogue.gateway.http.administration import await_promise
from trilogue.gateway.http.console.positions import (
    ROWS_MAX,
    Places,
    PositionRow,
    choose_partitions,
    describe_position,
    describe_progress,
    find_reset_offset,
    sum_lag,
)
from trilogue.gateway.http.console.rendering import Page, Redirect
from trilogue.gateway.http.console.request import PAGE_ROWS, ConsoleRequest, make_link
from trilogue.gateway.steps import next_step


async def list_groups(request: ConsoleRequest) -> Page:
    """Return a page of the groups whose name has a text, in order, behind a name."""
    wanted, after = request.text("q").strip().lower(), request.text("after")
    names = sorted(
        name
        for name in _group_names(request)
        if name > after
        and wanted in name.lower()
        and request.can(Operation.DESCRIBE, ResourceKind.GROUP, name)
    )
    shown = names[:PAGE_ROWS]
    places = await request.map_partitions() if shown else {}
    rows = []
    for name in shown:
        positions = _list_positions(request, name, places)
        readers = {row.reader for row in positions if row.reader}
        rows.append(
            {
                "name": name,
                "members": len(readers),
                "partitions": len(positions),
                "lag": sum_lag(positions),
            }
        )
        await next_step()
    more = shown[-1] if len(names) > PAGE_ROWS else ""
    values = {"rows": rows, "q": request.text("q"), "after": after, "more": more}
    return Page("tubemq_groups.html", values)


async def show_group(request: ConsoleRequest) -> Page:
    """Return the page of one group."""
    name = request.text("name")
    request.check(Operation.DESCRIBE, ResourceKind.GROUP, name)
    if name not in _group_names(request):
        raise UnknownGroup(f"there is no TubeMQ group {name}")
    positions = _list_positions(request, name, await request.map_partitions())
    return Page(
        "tubemq_group.html",
        {
            "name": name,
            "positions": positions[:ROWS_MAX],
            "position_count": len(positions),
            "topics": sorted({row.topic for row in positions}),
            "lag": sum_lag(positions),
            "can_reset": request.can(Operation.ALTER, ResourceKind.GROUP, name),
        },
    )


async def read_figures(request: ConsoleRequest) -> dict[str, Any]:
    """Return the figures that the charts of a group's page follow."""
    name = request.text("name")
    request.check(Operation.DESCRIBE, ResourceKind.GROUP, name)
    positions = _list_positions(request, name, await request.map_partitions())
    return describe_progress(request, positions)


def _group_names(request: ConsoleRequest) -> set[str]:
    """Return the groups that have a position or a registration."""
    broker = request.broker
    return {
        *(reader.group for reader in broker.registrations.readers()),
        *broker.committed_offsets.names(Protocol.TUBEMQ),
    }


def _list_positions(request: ConsoleRequest, name: str, places: Places) -> list[PositionRow]:
    """Return the positions of a group in the topics that the principal may see."""
    registrations = request.broker.registrations
    ids = {
        *request.broker.committed_offsets.positions(Protocol.TUBEMQ, name),
        *(
            reader.partition.partition_id
            for reader in registrations.readers()
            if reader.group == name
        ),
    }
    rows = []
    for partition_id in ids:
        offset = registrations.position(partition_id, name)
        if partition_id not in places or offset is None:
            continue
        reader = registrations.find_registration(partition_id, name)
        client = "" if reader is None else reader.client_id
        filters = "" if reader is None else ", ".join(sorted(reader.filters)[:20])
        rows.append(
            describe_position(request, *places[partition_id], offset, reader=client, detail=filters)
        )
    return sorted(rows, key=lambda row: (row.topic, row.number))


async def reset_group(request: ConsoleRequest) -> Redirect:
    """Move a group in a topic, or in one partition of it."""
    fields = request.fields
    name = fields.get("name", "")
    request.check(Operation.ALTER, ResourceKind.GROUP, name)
    topic = request.find_topic(fields.get("topic", ""), Operation.ALTER)
    if name not in _group_names(request):
        raise UnknownGroup(f"there is no TubeMQ group {name}")
    for partition in choose_partitions(request, topic):
        offset = await find_reset_offset(request, partition)
        await await_promise(request.broker.registrations.reset(partition, name, offset))
    request.access.record_act(
        "reset offsets", Resource(ResourceKind.GROUP, name), topic=str(topic.name)
    )
    return Redirect(make_link("/tubemq-group", name=name))
