"""Requests and output of `trilogue topics`: one request per server and kind of data."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trilogue.cli.cluster import FAILED, describe_error, require_partitions
from trilogue.cli.offsets import EARLIEST, LATEST, Position
from trilogue.cli.tables import Size, print_json, print_table, spell_count
from trilogue.client.errors import ClientError
from trilogue.client.kafka.admin.model import (
    NewTopic,
    Resource,
    ResourceType,
    Setting,
    Source,
    TopicDescription,
)
from trilogue.client.kafka.admin.offsets import OffsetAdmin
from trilogue.client.kafka.admin.topics import TopicAdmin
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import OffsetAt, Partition, granted
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster

PATTERN_MARKS = "*?["


def matching(names: Iterable[str], pattern: str | None) -> set[str]:
    """Return the names that contain a text, or that match a pattern with `*`, `?` or `[`."""
    if pattern is None:
        return set(names)
    if any(mark in pattern for mark in PATTERN_MARKS):
        return set(fnmatch.filter(names, pattern))
    return {name for name in names if pattern in name}


async def listed(
    cluster: KafkaCluster, pattern: str | None, internal: bool, long: bool
) -> list[dict[str, Any]]:
    """Return a row per topic."""
    found = await TopicAdmin(cluster).list_topics(internal=internal)
    wanted = matching([one.name for one in found], pattern)
    rows: list[dict[str, Any]] = [
        {"topic": one.name, "partitions": one.partitions, "replication": one.replication}
        for one in found
        if one.name in wanted
    ]
    if long and rows:
        partitions = [(row["topic"], n) for row in rows for n in range(row["partitions"])]
        ends = await span(cluster, partitions)
        sizes = await sizes_of(cluster, partitions)
        for row in rows:
            mine = [(row["topic"], number) for number in range(row["partitions"])]
            row["messages"] = _sum(_between(ends.get(one)) for one in mine)
            row["size_bytes"] = _sum_size(sizes.get(one) for one in mine)
    return rows


async def span(
    cluster: KafkaCluster, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first offset and the end of partitions; without those that give an error."""
    wanted = list(partitions)
    offsets = OffsetAdmin(cluster)
    firsts = await offsets.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = await offsets.list_offsets(dict.fromkeys(wanted, LATEST))
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for one in wanted:
        first, end = firsts.get(Partition(*one)), ends.get(Partition(*one))
        if isinstance(first, OffsetAt) and isinstance(end, OffsetAt):
            found[one] = first.offset, end.offset
    return found


async def sizes_of(
    cluster: KafkaCluster, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return the bytes of partitions on disk, of the largest replica; {} if not supported."""
    from trilogue.client.kafka.admin.nodes import NodeAdmin

    sizes: dict[tuple[str, int], int] = {}
    try:
        dirs = await NodeAdmin(cluster).log_dirs(partitions)
    except ClientError:
        return {}
    for one in (one for row in dirs.values() for one in row if not isinstance(one, KafkaError)):
        for partition, size in one.partitions.items():
            sizes[partition] = max(sizes.get(partition, 0), size.size_bytes)
    return sizes


def _between(ends: tuple[int, int] | None) -> int | None:
    return None if ends is None else ends[1] - ends[0]


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if known else None


def _sum_size(numbers: Iterable[int | None]) -> Size | None:
    total = _sum(numbers)
    return None if total is None else Size(total)


async def described(
    cluster: KafkaCluster, names: Sequence[str], all_settings: bool
) -> list[dict[str, Any]]:
    """Return topics as JSON objects."""
    from trilogue.client.kafka.admin.configs import ConfigAdmin

    topics = granted(await TopicAdmin(cluster).describe_topics(names))
    partitions = [(name, one.number) for name in names for one in topics[name].partitions]
    ends = await span(cluster, [one for one in partitions if _is_led(topics, one)])
    sizes = await sizes_of(cluster, partitions)
    resources = {name: Resource(ResourceType.TOPIC, name) for name in names}
    settings = await ConfigAdmin(cluster).describe_configs(resources.values())
    return [
        {
            "topic": name,
            "id": topics[name].topic_id.hex() if any(topics[name].topic_id) else None,
            "internal": topics[name].is_internal,
            "partitions": _partition_rows(topics[name], ends, sizes),
            "settings": _settings(settings.get(resources[name]), all_settings),
        }
        for name in names
    ]


def _is_led(topics: Mapping[str, TopicDescription], partition: tuple[str, int]) -> bool:
    name, number = partition
    return any(one.leader >= 0 for one in topics[name].partitions if one.number == number)


def _partition_rows(
    topic: TopicDescription,
    ends: Mapping[tuple[str, int], tuple[int, int]],
    sizes: Mapping[tuple[str, int], int],
) -> list[dict[str, Any]]:
    rows = []
    for one in topic.partitions:
        first, end = ends.get((topic.name, one.number), (None, None))
        size = sizes.get((topic.name, one.number))
        rows.append(
            {
                "partition": one.number,
                "leader": one.leader if one.leader >= 0 else None,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "offline": one.offline,
                "begin": first,
                "end": end,
                "messages": None if first is None or end is None else end - first,
                "size_bytes": None if size is None else Size(size),
            }
        )
    return rows


def _settings(
    found: Mapping[str, Setting] | KafkaError | None, all_settings: bool
) -> list[dict[str, Any]]:
    if found is None or isinstance(found, KafkaError):
        return []
    return [
        {"setting": one.name, "value": one.value, "from": one.source.name.lower()}
        for _, one in sorted(found.items())
        if all_settings or one.source is Source.TOPIC
    ]


def print_described(body: Sequence[Mapping[str, Any]]) -> None:
    """Print it as text."""
    for at, topic in enumerate(body):
        if at:
            print()
        total = _sum(row["messages"] for row in topic["partitions"])
        size = _sum_size(row["size_bytes"] for row in topic["partitions"])
        known = "" if total is None else f", {spell_count(total, 'message')}"
        known += "" if size is None else f", {size}"
        partitions = spell_count(len(topic["partitions"]), "partition")
        print(f"topic {topic['topic']}: {partitions}{known}")
        if topic["id"]:
            print(f"id {topic['id']}")
        print()
        columns = [
            "partition",
            "leader",
            "replicas",
            "in_sync",
            "begin",
            "end",
            "messages",
            "size_bytes",
        ]
        if any(row["offline"] for row in topic["partitions"]):
            columns.insert(4, "offline")
        print_table(topic["partitions"], columns)
        if topic["settings"]:
            print()
            print_table(topic["settings"], ("setting", "value", "from"))


async def created(
    cluster: KafkaCluster,
    wanted: Sequence[NewTopic],
    *,
    if_missing: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Create topics, print the outcomes, and return the exit code."""
    outcomes = await TopicAdmin(cluster).create_topics(wanted, validate_only=dry_run)
    rows: list[dict[str, Any]] = []
    code = 0
    for name, outcome in outcomes.items():
        if not isinstance(outcome, KafkaError):
            partitions = outcome.partitions if outcome.partitions >= 0 else None
            copies = outcome.replication if outcome.replication >= 0 else None
            made = {"topic": name, "partitions": partitions, "replication": copies}
            rows.append({**made, "created": not dry_run})
        elif if_missing and outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            rows.append({"topic": name, "created": False})
        else:
            code = FAILED
            print(f"trilogue: {describe_error(outcome)}", file=sys.stderr)
    if as_json:
        print_json(rows)
        return code
    for row in rows:
        if "partitions" not in row:
            print(f"{row['topic']} is there already")
        else:
            how = "would be created" if dry_run else "created"
            count = row["partitions"]
            print(f"{how} {row['topic']}" + ("" if count is None else f", partitions: {count}"))
    return code


async def trimming(
    cluster: KafkaCluster, topic: str, where: Position, numbers: Iterable[int] | None
) -> dict[int, tuple[int, int]]:
    """Return for each partition its first offset before and after the trim."""
    partitions = [(topic, number) for number in await require_partitions(cluster, topic, numbers)]
    ends = await span(cluster, partitions)
    found = await resolved(cluster, partitions, where)
    plan: dict[int, tuple[int, int]] = {}
    for one, (first, end) in ends.items():
        plan[one[1]] = first, min(max(found[one], first), end)
    return plan


async def resolved(
    cluster: KafkaCluster, partitions: Iterable[tuple[str, int]], where: Position
) -> dict[tuple[str, int], int]:
    """Return the offset of a position in each partition; its end if no message is that late."""
    wanted = list(partitions)
    if where.offset is not None:
        return dict.fromkeys(wanted, where.offset)
    offsets = OffsetAdmin(cluster)
    found = granted(await offsets.list_offsets(dict.fromkeys(wanted, where.time)))
    late = [one for one in wanted if found[Partition(*one)].offset < 0]
    if late:
        found |= granted(await offsets.list_offsets(dict.fromkeys(late, LATEST)))
    return {one: found[Partition(*one)].offset for one in wanted}


async def trimmed(
    cluster: KafkaCluster, topic: str, ends: Mapping[int, int]
) -> dict[int, int | KafkaError]:
    """Trim; return the first offset that is left."""
    before = {(topic, number): to for number, to in ends.items()}
    outcomes = await OffsetAdmin(cluster).delete_records(before)
    return {partition.number: outcome for partition, outcome in outcomes.items()}
