"""Requests and output of `trilogue groups`: members, positions and lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trilogue.cli.cluster import CommandError, suggest_names
from trilogue.cli.offsets import LATEST
from trilogue.cli.tables import print_table, spell_count
from trilogue.cli.topics.report import matching
from trilogue.client.errors import ClientError
from trilogue.client.kafka.admin.group_offsets import GroupOffsetAdmin
from trilogue.client.kafka.admin.model import GroupDescription, GroupOffset
from trilogue.client.kafka.admin.offsets import OffsetAdmin
from trilogue.client.kafka.coordinators import Coordinators
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import OffsetAt, Partition, granted
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster

DEAD = "Dead"


class _Groups(GroupOffsetAdmin):
    """Requests about groups only: the whole admin client takes longer to load."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster)
        self._coordinators = Coordinators(cluster)


def admin(cluster: KafkaCluster) -> GroupOffsetAdmin:
    """Return the admin client for groups."""
    return _Groups(cluster)


async def listed(
    cluster: KafkaCluster,
    pattern: str | None,
    states: Iterable[str] | None,
    kinds: Iterable[str] | None,
) -> list[dict[str, Any]]:
    """Return a row per group."""
    try:
        found = await admin(cluster).list_groups(states=states or (), types=kinds or ())
    except ClientError as error:
        if states or kinds:
            raise CommandError(f"{error}: leave --state and --type away") from error
        raise
    wanted = matching([one.name for one in found], pattern)
    return [
        {
            "group": one.name,
            "state": one.state or None,
            "type": one.type or None,
            "protocol": one.protocol_type or None,
        }
        for one in found
        if one.name in wanted
    ]


async def known_groups(cluster: KafkaCluster, names: Sequence[str]) -> dict[str, GroupDescription]:
    """Return existing groups; CommandError for an unknown one, with similar names."""
    found = await admin(cluster).describe_groups(names)
    there: dict[str, GroupDescription] = {}
    for name, outcome in found.items():
        if isinstance(outcome, KafkaError):
            if outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise outcome
        elif outcome.state != DEAD or outcome.members:
            there[name] = outcome
        if name not in there:
            names_there = [one.name for one in await admin(cluster).list_groups()]
            raise CommandError(f"no group {name}{suggest_names(name, names_there)}")
    return there


async def described(cluster: KafkaCluster, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return groups as JSON objects."""
    groups = await known_groups(cluster, names)
    return [await _build_description(cluster, groups[name]) for name in names]


async def _build_description(cluster: KafkaCluster, group: GroupDescription) -> dict[str, Any]:
    positions = granted(await admin(cluster).group_offsets(group.name))
    owners = {one: member for member in group.members for one in member.assignment}
    partitions = sorted({*positions, *owners})
    ends = await ends_of(cluster, partitions)
    rows = []
    for one in partitions:
        position, end, member = positions.get(one), ends.get(one), owners.get(one)
        rows.append(
            {
                "topic": one.topic,
                "partition": one.number,
                "position": None if position is None else position.offset,
                "end": end,
                "lag": lag(position, end),
                "member": None if member is None else member.member_id,
                "client": None if member is None else member.client_id,
                "host": None if member is None else member.host,
                "note": position.metadata or None if position is not None else None,
            }
        )
    return {
        "group": group.name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type or None,
        "assignor": group.assignor or None,
        "coordinator": {"id": group.coordinator.id, "address": _address(group)},
        "epoch": group.epoch if group.epoch >= 0 else None,
        "assignment_epoch": group.assignment_epoch if group.assignment_epoch >= 0 else None,
        "partitions": rows,
        "members": [
            {
                "member": one.member_id,
                "instance": one.instance_id,
                "client": one.client_id,
                "host": one.host,
                "epoch": one.epoch if one.epoch >= 0 else None,
                "topics": one.topics,
                "pattern": one.pattern,
                "assignment": [list(partition) for partition in one.assignment],
                "target": [list(partition) for partition in one.target],
            }
            for one in group.members
        ],
    }


def _address(group: GroupDescription) -> str:
    return f"{group.coordinator.host}:{group.coordinator.port}"


async def ends_of(cluster: KafkaCluster, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Return the ends of partitions; without those that no longer exist."""
    found = await OffsetAdmin(cluster).list_offsets(dict.fromkeys(partitions, LATEST))
    return {one: at.offset for one, at in found.items() if isinstance(at, OffsetAt)}


def lag(position: GroupOffset | None, end: int | None) -> int | None:
    """Return the lag in offsets; None if unknown."""
    if position is None or end is None or position.offset < 0:
        return None
    return max(0, end - position.offset)


def print_described(body: Sequence[Mapping[str, Any]]) -> None:
    """Print it as text."""
    for at, group in enumerate(body):
        if at:
            print()
        lags = [row["lag"] for row in group["partitions"] if row["lag"] is not None]
        members = spell_count(len(group["members"]), "member")
        behind = f", {sum(lags)} behind" if lags else ""
        print(f"group {group['group']}: {group['state']}, {group['type']}, {members}{behind}")
        details = [f"coordinator {group['coordinator']['address']}"]
        if group["assignor"]:
            details.append(f"assignor {group['assignor']}")
        if group["epoch"] is not None:
            details.append(f"epoch {group['epoch']}, assigned {group['assignment_epoch']}")
        print(", ".join(details))
        if group["partitions"]:
            print()
            columns = ["topic", "partition", "position", "end", "lag", "client", "host"]
            print_table(group["partitions"], columns)
        if group["members"]:
            print()
            columns = ["member", "instance", "client", "host", "epoch", "partitions", "topics"]
            rows = [{**one, "partitions": len(one["assignment"])} for one in group["members"]]
            drop = {one for one in ("instance", "epoch") if all(row[one] is None for row in rows)}
            print_table(rows, [one for one in columns if one not in drop])
