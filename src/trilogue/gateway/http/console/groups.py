"""Kafka's groups of all kinds: the list with their lag, one group, and a reset of its offsets.

A reset is Kafka's: the group has no members, and the principal may READ the group and the topic.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import NotOwner, UnknownGroup
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.groups.admin import GroupListing
from trilogue.broker.groups.group import SHARE
from trilogue.client.kafka.admin.model import GroupListing as RemoteListing
from trilogue.gateway.http.administration import await_promise
from trilogue.gateway.http.console.positions import (
    ROWS_MAX,
    Places,
    PositionRow,
    add_remote_ends,
    describe_position,
    describe_progress,
    find_reset_offsets,
    sum_lag,
)
from trilogue.gateway.http.console.remote_groups import fetch_positions, list_remote_groups
from trilogue.gateway.http.console.remote_partitions import open_node_client
from trilogue.gateway.http.console.rendering import Page, Redirect
from trilogue.gateway.http.console.request import (
    NAMES_PER_STEP,
    PAGE_ROWS,
    ConsoleRequest,
    make_link,
)
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.steps import next_step

MEMBERS_SHOWN: Final = 200
LIST_ROWS_MAX: Final = 10_000  # partitions of all groups of a list
NO_MEMBER: Final = ""


class GroupRow(msgspec.Struct):
    """A row of the list; `positions` is None where its coordinator refuses them."""

    name: str
    type: str
    state: str
    node_id: int
    positions: list[PositionRow] | None
    members: int = -1  # of another node: not known here

    @property
    def lag(self) -> int:
        """The lag in the partitions whose end is known."""
        return sum_lag(self.positions or [])

    @property
    def is_partial(self) -> bool:
        """Whether there are partitions whose end is not known."""
        return self.positions is None or any(each.lag < 0 for each in self.positions)


async def list_groups(request: ConsoleRequest) -> Page:
    """Return a page of the groups of all nodes whose name has a text, in order, behind a name."""
    wanted, after = request.text("q").strip().lower(), request.text("after")
    own = await _find_own_groups(request, wanted, after)
    reason, more = "", ""
    if len(request.list_nodes()) > 1:
        try:
            async with open_node_client(request) as client:
                found = await list_remote_groups(request, client, wanted, after)
                rows, more = await _take_page(request, own, found)
                remote = [row.name for row in rows if row.positions is None]
                positions = await fetch_positions(request, client, remote)
            for row in rows:
                row.positions = positions.get(row.name, row.positions)
            await _add_ends(request, rows)
        except HttpError as error:
            reason = str(error)
            rows, more = await _take_page(request, own, [])
    else:
        rows, more = await _take_page(request, own, [])
    node_id = request.broker.cluster.ownership.node_id
    values = {"rows": rows, "q": request.text("q"), "after": after, "more": more}
    return Page("groups.html", {**values, "reason": reason, "node_id": node_id})


async def _find_own_groups(request: ConsoleRequest, wanted: str, after: str) -> list[GroupListing]:
    """Return the groups of this node whose name has a text, behind a name."""
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
    return found


async def _take_page(
    request: ConsoleRequest, own: list[GroupListing], remote: list[RemoteListing]
) -> tuple[list[GroupRow], str]:
    """Return the first rows by name, and the last name where there are more."""
    both: list[GroupListing | RemoteListing] = [*own, *remote]
    both.sort(key=lambda listing: listing.name)
    shown = both[:PAGE_ROWS]
    places = await request.map_partitions() if shown else {}
    ownership = request.broker.cluster.ownership
    rows = []
    for each in shown:
        if isinstance(each, RemoteListing):
            owner = ownership.name_owner(each.name)
            rows.append(GroupRow(each.name, each.type, each.state, owner, None))
        else:
            positions = _list_positions(request, each, places)
            members, state = len(list_members(each)), each.state_name
            node_id = ownership.node_id
            rows.append(GroupRow(each.name, each.type, state, node_id, positions, members))
        await next_step()
    return rows, shown[-1].name if len(both) > PAGE_ROWS else ""


async def _add_ends(request: ConsoleRequest, rows: list[GroupRow]) -> None:
    """Complete the positions of rows by the ends of other nodes' partitions; HttpError 503."""
    known = [each for row in rows for each in row.positions or []]
    complete = iter(await add_remote_ends(request, known, LIST_ROWS_MAX))
    for row in rows:
        if row.positions is not None:
            row.positions = [next(complete) for _ in row.positions]


async def show_group(request: ConsoleRequest) -> Page:
    """Return the page of one group."""
    name = request.text("name")
    request.check(Operation.DESCRIBE, ResourceKind.GROUP, name)
    listing = _find_group(request, name)
    positions = _list_positions(request, listing, await request.map_partitions())
    reason = ""
    try:
        positions = await add_remote_ends(request, positions)
    except HttpError as error:
        reason = str(error)
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
            "reason": reason,
            "can_reset": is_empty
            and listing.type != SHARE
            and request.can(Operation.READ, ResourceKind.GROUP, name),
            "is_empty": is_empty,
        },
    )


async def read_figures(request: ConsoleRequest) -> dict[str, Any]:
    """Return the figures of this node's partitions, which the charts of a group's page follow."""
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
        CursorMove(partition.partition_id, offset, -1, "console")
        for partition, offset in await find_reset_offsets(request, topic)
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
