"""Groups that other nodes coordinate, by a Kafka client in the principal's name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import parse_kafka
from trilogue.client.kafka.admin.model import GroupListing, GroupOffset
from trilogue.client.kafka.client import KafkaClient
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import Partition
from trilogue.gateway.http.console.positions import PositionRow, describe_position
from trilogue.gateway.http.console.request import ConsoleRequest


async def list_remote_groups(
    request: ConsoleRequest, client: KafkaClient, wanted: str, after: str
) -> list[GroupListing]:
    """Return the groups of other nodes whose name has a text, behind a name."""
    owns_name = request.broker.cluster.ownership.owns_name
    return [
        each
        for each in await client.admin.list_groups()
        if each.name > after
        and wanted in each.name.lower()
        and not owns_name(each.name)
        and request.can(Operation.DESCRIBE, ResourceKind.GROUP, each.name)
    ]


async def fetch_positions(
    request: ConsoleRequest, client: KafkaClient, names: Sequence[str]
) -> dict[str, list[PositionRow] | None]:
    """Return the committed offsets of groups; None where a coordinator refuses them.

    They are of the topics that the principal may see: the coordinator goes by its login.
    """
    found = await asyncio.gather(
        *(client.admin.group_offsets(name) for name in names), return_exceptions=True
    )
    rows: dict[str, list[PositionRow] | None] = {}
    for name, offsets in zip(names, found, strict=True):
        if isinstance(offsets, KafkaError):
            rows[name] = None
        elif isinstance(offsets, BaseException):
            raise offsets
        else:
            rows[name] = _describe(request, offsets)
    return rows


def _describe(
    request: ConsoleRequest, offsets: dict[Partition, GroupOffset | KafkaError]
) -> list[PositionRow]:
    rows = []
    for (name, number), position in offsets.items():
        topic = request.broker.cluster.find_topic(parse_kafka(name))
        if topic is not None and isinstance(position, GroupOffset):
            rows.append(describe_position(request, topic, number, position.offset))
    return rows
