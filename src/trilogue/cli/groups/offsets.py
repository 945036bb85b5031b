"""Sets and deletes positions of groups, for `trilogue groups`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trilogue.cli.cluster import CommandError, describe_error, require_partitions, require_topics
from trilogue.cli.groups.report import DEAD, admin
from trilogue.cli.offsets import Position
from trilogue.cli.options import USAGE_ERROR
from trilogue.cli.tables import spell_count
from trilogue.cli.topics.report import resolved, span
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import Partition, granted

if TYPE_CHECKING:
    from trilogue.client.kafka.admin.model import GroupOffset
    from trilogue.client.kafka.cluster import KafkaCluster


class Target(NamedTuple):
    """A position, or without one a number of messages relative to the present position."""

    place: Position | None
    shift: int


async def moved(
    cluster: KafkaCluster,
    group: str,
    topics: Sequence[str] | None,
    target: Target,
    *,
    execute: bool,
) -> list[dict[str, Any]]:
    """Return the new position in each partition; set them if `execute`."""
    await _without_members(cluster, group)
    positions = granted(await admin(cluster).group_offsets(group))
    if topics is None:
        wanted = sorted(positions)
        if not wanted:
            raise CommandError(f"the group {group} has no positions; name topics with --topic")
    else:
        wanted = await _partitions(cluster, topics)
    offsets = await _offsets(cluster, wanted, positions, target)
    if execute:
        body: dict[tuple[str, int], int | GroupOffset] = dict(offsets.items())
        outcomes = await admin(cluster).alter_group_offsets(group, body)
        problems = [one for one in outcomes.values() if one is not None]
        if problems:
            raise CommandError(describe_error(problems[0]))
    return [_row(one, positions.get(one), offsets[one]) for one in wanted]


def _row(partition: Partition, before: GroupOffset | None, offset: int) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "position": None if before is None else before.offset,
        "new": offset,
        "change": None if before is None else offset - before.offset,
    }


async def _without_members(cluster: KafkaCluster, group: str) -> None:
    """Raise CommandError if the group has members, which set positions themselves."""
    found = (await admin(cluster).describe_groups([group]))[group]
    if isinstance(found, KafkaError) or found.state == DEAD or not found.members:
        return
    clients = ", ".join(sorted({one.client_id for one in found.members}))
    raise CommandError(
        f"the group {group} has {spell_count(len(found.members), 'member')} ({clients}), which set "
        "where it is; stop them first"
    )


async def _partitions(cluster: KafkaCluster, topics: Iterable[str]) -> list[Partition]:
    """Return the existing partitions of `orders` or `orders:0,3`."""
    wanted: dict[str, set[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.rpartition(":")
        if not colon:
            wanted[text] = None
            continue
        if not all(one.isdecimal() for one in numbers.split(",")):
            raise CommandError(f"--topic {text}: expected TOPIC or TOPIC:0,3", USAGE_ERROR)
        chosen = {int(one) for one in numbers.split(",")}
        before = wanted.get(name, set())
        wanted[name] = None if before is None else before | chosen
    await require_topics(cluster, wanted)
    return [
        Partition(name, number)
        for name, numbers in sorted(wanted.items())
        for number in await require_partitions(cluster, name, numbers)
    ]


async def _offsets(
    cluster: KafkaCluster,
    wanted: Sequence[Partition],
    positions: Mapping[Partition, GroupOffset],
    target: Target,
) -> dict[Partition, int]:
    """Return the new position in each partition, between its first offset and its end."""
    ends = await span(cluster, wanted)
    missing = [one for one in wanted if one not in ends]
    if missing:
        raise CommandError(f"{missing[0].topic}-{missing[0].number} has an unknown end")
    if target.place is not None:
        found = await resolved(cluster, wanted, target.place)
    else:
        nowhere = [one for one in wanted if one not in positions]
        if nowhere:
            one = nowhere[0]
            raise CommandError(f"--shift-by: the group has no position in {one.topic}-{one.number}")
        found = {one: positions[one].offset + target.shift for one in wanted}
    return {one: min(max(found[one], ends[one][0]), ends[one][1]) for one in wanted}


async def forgotten(
    cluster: KafkaCluster, group: str, topics: Sequence[str]
) -> dict[Partition, KafkaError | None]:
    """Delete positions; return the outcome of each."""
    wanted = await _partitions(cluster, topics)
    return await admin(cluster).delete_group_offsets(group, wanted)
