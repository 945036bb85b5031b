"""Kafka's groups of all kinds: the list with their lag, one group, and a reset of its offsets.

A reset is Kafka's: the group has no members, and the principal may READ the group and the topic.
"""

from __future__ import annotations

from typing import Any, Final

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import NotOwner, UnknownGroup
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.groups.admin import GroupListing
from trilogue.broker.groups.group import SHARE
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
from trilogue.gateway.http.console.request import (
    NAMES_PER_STEP,
    PAGE_ROWS,
    ConsoleRequest,
    make_link,
)
from trilogue.gateway.steps import next_step

MEMBERS_SHOWN: Final = 200
NO_MEMBER: Final = ""


async def list_groups(request: ConsoleRequest) -> Page:
    """Return a page of the groups whose name has a text, in order, behind a name."""
    wanted, after = request.text("q").strip().lower(), request.text("after")
    found: list[GroupListing] = []
    for count, listing in enumerate(list(request.broker.group_admin.listed()), 1):
        name = listing.name
        if (
            name > after
            and wanted in name.lower()
            and request.can(Operation.DESCRIBE, ResourceKind.GROUP, name)
        ):
            found.append(listing)
        if count % NAMES_PER_STEP == 0:
            await next_step()
    found.sort(key=lambda listing: listing.name)
    shown = found[:PAGE_ROWS]
    places = await request.map_partitions() if shown else {}
    rows = []
    for listing in shown:
        positions = _list_positions(request, listing, places)
        rows.append(
            {
                "name": listing.name,
                "type": listing.type,
                "state": listing.state_name,
                "members": len(list_members(listing)),
                "partitions": len(positions),
                "lag": sum_lag(positions),
            }
        )
        await next_step()
    more = shown[-1].name if len(found) > PAGE_ROWS else ""
    values = {"rows": rows, "q": request.text("q"), "after": after, "more": more}
    return Page("groups.html", values)


async def show_group(request: ConsoleRequest) -> Page:
    """Return the page of one group."""
    name = request.text("name")
    request.check(Operation.DESCRIBE, ResourceKind.GROUP, name)
    listing = _find_group(request, name)
    positions = _list_positions(request, listing, await request.map_partitions())
    members = list_members(listing)
    is_empty = listing.group is None or listing.group.is_empty
    return Page(
        "group.html",
        {
            "name": name,
            "listing": listing,
            "members": members[:MEMBERS_SHOWN],
            "member_count": len(members),
            "positions": positions[:ROWS_MAX],
            "position_count": len(positions),
            "topics": sorted({row.topic for row in positions}),
            "lag": sum_lag(positions),
            "can_reset": is_empty
            and listing.type != SHARE
            and request.can(Operation.READ, ResourceKind.GROUP, name),
            "is_empty": is_empty,
        },
    )


async def read_figures(request: ConsoleRequest) -> dict[str, Any]:
    """Return the figures that the charts of a group's page follow."""
    name = request.text("name")
    request.check(Operation.DESCRIBE, ResourceKind.GROUP, name)
    listing = _find_group(request, name)
    positions = _list_positions(request, listing, await request.map_partitions())
    return describe_progress(request, positions)


def _find_group(request: ConsoleRequest, name: str) -> GroupListing:
    """Return a group of this node; UnknownGroup, or NotOwner where another one coordinates it."""
    try:
        return request.broker.group_admin.known(name)
    except UnknownGroup:
        ownership = request.broker.cluster.ownership
        if ownership.owns_name(name):
            raise
        owner = ownership.name_owner(name)
        raise NotOwner(f"node {owner} coordinates group {name}", owner) from None


def list_members(listing: GroupListing) -> list[dict[str, Any]]:
    """Return the members of a group of any kind."""
    members = () if listing.group is None else listing.group.members
    return [
        {
            "id": each.member_id,
            "client": each.client_id,
            "host": each.client_host,
            "instance": getattr(each, "instance_id", None) or "",
        }
        for each in members
    ]


def _list_positions(
    request: ConsoleRequest, listing: GroupListing, places: Places
) -> list[PositionRow]:
    """Return the positions of a group in the topics that the principal may see."""
    broker, name = request.broker, listing.name
    if listing.type == SHARE:
        marks = {
            partition_id: (position.mark, "")
            for partition_id, position in broker.share_partitions.positions.of_group(name).items()
        }
    else:
        marks = {
            partition_id: (position.mark, position.metadata)
            for partition_id, position in broker.committed_offsets.positions(
                Protocol.KAFKA, name
            ).items()
        }
    rows = [
        describe_position(request, *places[partition_id], mark, detail=detail)
        for partition_id, (mark, detail) in marks.items()
        if partition_id in places
    ]
    return sorted(rows, key=lambda row: (row.topic, row.number))


async def reset_group(request: ConsoleRequest) -> Redirect:
    """Move the offsets of a group without members in a topic, or in one partition of it."""
    fields = request.fields
    name = fields.get("name", "")
    request.check(Operation.READ, ResourceKind.GROUP, name)
    topic = request.find_topic(fields.get("topic", ""), Operation.READ)
    _find_group(request, name)
    moves = [
        CursorMove(
            partition.partition_id, await find_reset_offset(request, partition), -1, "console"
        )
        for _, partition in choose_partitions(request, topic)
    ]
    if request.broker.cluster.ownership.owns_name(name) is False:
        owner = request.broker.cluster.ownership.name_owner(name)
        raise NotOwner(f"node {owner} coordinates group {name}", owner)
    request.broker.groups.check_commit(name, NO_MEMBER, -1)
    await await_promise(request.broker.commit(Protocol.KAFKA, name, moves))
    request.access.record_act(
        "reset offsets", Resource(ResourceKind.GROUP, name), topic=str(topic.name)
    )
    return Redirect(make_link("/group", name=name))
