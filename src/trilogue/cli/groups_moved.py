"""Moves positions of groups for `trilogue groups reset`, and forgets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trilogue.cli.asking import Refusal, explained, known_topics
from trilogue.cli.groups_told import DEAD, admin
from trilogue.cli.options import USAGE_ERROR
from trilogue.cli.places import Place
from trilogue.cli.topics_told import partitions_of, resolved, span
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.shapes import Partition, granted

if TYPE_CHECKING:
    from trilogue.client.kafka.admin.shapes import GroupOffset
    from trilogue.client.kafka.cluster import KafkaCluster


class Target(NamedTuple):
    """A place, or without one so many messages on from where the group is."""

    place: Place | None
    shift: int


async def moved(
    cluster: KafkaCluster,
    group: str,
    topics: Sequence[str] | None,
    target: Target,
    *,
    execute: bool,
) -> list[dict[str, Any]]:
    """Where the group would go on in each partition; with `execute` it does."""
    await _without_members(cluster, group)
    positions = granted(await admin(cluster).group_offsets(group))
    if topics is None:
        wanted = sorted(positions)
        if not wanted:
            raise Refusal(f"the group {group} has no positions; name topics with --topic")
    else:
        wanted = await _partitions(cluster, topics)
    offsets = await _offsets(cluster, wanted, positions, target)
    if execute:
        told: dict[tuple[str, int], int | GroupOffset] = dict(offsets.items())
        outcomes = await admin(cluster).alter_group_offsets(group, told)
        problems = [one for one in outcomes.values() if one is not None]
        if problems:
            raise Refusal(explained(problems[0]))
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
    """A group may be new; one with members says itself where it is."""
    found = (await admin(cluster).describe_groups([group]))[group]
    if isinstance(found, KafkaError) or found.state == DEAD or not found.members:
        return
    clients = ", ".join(sorted({one.client_id for one in found.members}))
    raise Refusal(
        f"the group {group} has {len(found.members)} members ({clients}), who say themselves "
        "where it is; stop them first"
    )


async def _partitions(cluster: KafkaCluster, topics: Iterable[str]) -> list[Partition]:
    """`orders` and `orders:0,3` as partitions that are there."""
    wanted: dict[str, set[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.rpartition(":")
        if not colon:
            wanted[text] = None
            continue
        if not all(one.isdecimal() for one in numbers.split(",")):
            raise Refusal(f"--topic {text}: expected TOPIC or TOPIC:0,3", USAGE_ERROR)
        chosen = {int(one) for one in numbers.split(",")}
        before = wanted.get(name, set())
        wanted[name] = None if before is None else before | chosen
    await known_topics(cluster, wanted)
    return [
        Partition(name, number)
        for name, numbers in sorted(wanted.items())
        for number in await partitions_of(cluster, name, numbers)
    ]


async def _offsets(
    cluster: KafkaCluster,
    wanted: Sequence[Partition],
    positions: Mapping[Partition, GroupOffset],
    target: Target,
) -> dict[Partition, int]:
    """Where to go in each, never outside of what is there."""
    ends = await span(cluster, wanted)
    missing = [one for one in wanted if one not in ends]
    if missing:
        raise Refusal(f"{missing[0].topic}-{missing[0].number} does not say where it ends")
    if target.place is not None:
        found = await resolved(cluster, wanted, target.place)
    else:
        nowhere = [one for one in wanted if one not in positions]
        if nowhere:
            one = nowhere[0]
            raise Refusal(f"--shift-by: the group has no position in {one.topic}-{one.number}")
        found = {one: positions[one].offset + target.shift for one in wanted}
    return {one: min(max(found[one], ends[one][0]), ends[one][1]) for one in wanted}


async def forgotten(
    cluster: KafkaCluster, group: str, topics: Sequence[str]
) -> dict[Partition, KafkaError | None]:
    """Forget positions; what became of each."""
    wanted = await _partitions(cluster, topics)
    return await admin(cluster).delete_group_offsets(group, wanted)
