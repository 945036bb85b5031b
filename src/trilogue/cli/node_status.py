"""What each node owns and how far it lags, for `trilogue nodes describe`.

Each node is asked for itself, so that one that does not answer hides no other. A node of an older
version reports less: what it does not tell is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from trilogue.cli.cluster import CommandError, describe_error
from trilogue.cli.options import USAGE_ERROR

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster
    from trilogue.client.kafka.model import Node

PREFIX: Final = "trilogue."
NAMES: Final = ("pid", "epoch", "listeners", "slots", "status")
COLUMNS: Final = {
    "id": "id",
    "version": "version",
    "epoch": "epoch",
    "slots": "slots",
    "partitions": "partitions",
    "groups": "groups",
    "commit_ms": "commit p99 ms",
    "commits_waiting": "commits waiting",
    "unflushed_bytes": "unflushed",
    "unflushed_s": "for s",
    "flushes_waiting": "files waiting",
    "uploads_waiting": "uploads waiting",
    "lease_s": "lease s",
    "postgres_away_s": "postgres away s",
}
"""Columns of the table by their key in JSON; those that no node tells are left out."""
TEXTS: Final = frozenset({"version"})


async def find_settings(cluster: KafkaCluster, node_id: int) -> dict[str, str]:
    """Return what a node says of itself, by names without `trilogue.`; CommandError, KafkaError."""
    from trilogue.client.kafka.admin.configs import ConfigAdmin
    from trilogue.client.kafka.admin.model import Resource, ResourceType
    from trilogue.client.kafka.errors import KafkaError

    broker = Resource(ResourceType.BROKER, str(node_id))
    keys = [PREFIX + name for name in NAMES]
    settings = (await ConfigAdmin(cluster).describe_configs([broker], names=keys))[broker]
    if isinstance(settings, KafkaError):
        raise CommandError(f"node {node_id}: {settings}")
    if f"{PREFIX}pid" not in settings:
        raise CommandError(f"node {node_id} is none of a Trilogue server")
    return {
        name: settings[key].value or ""
        for name, key in zip(NAMES, keys, strict=True)
        if key in settings
    }


def split_items(text: str) -> list[str]:
    """Return the items of a config that is a list."""
    return [each for each in text.split(",") if each]


def split_pairs(text: str) -> dict[str, str]:
    """Return the items of a config that is a list of NAME=VALUE."""
    return dict(each.split("=", 1) for each in split_items(text))


async def find_status(cluster: KafkaCluster, wanted: Sequence[int]) -> list[dict[str, Any]]:
    """Return the status of nodes, all if none is wanted; those wanted with their partitions."""
    from trilogue.client.kafka.admin.nodes import NodeAdmin

    nodes = (await NodeAdmin(cluster).describe_cluster()).nodes
    if unknown := set(wanted) - {node.id for node in nodes}:
        known = ", ".join(str(node.id) for node in nodes)
        raise CommandError(f"no node {min(unknown)} serves; these do: {known}", USAGE_ERROR)
    chosen = [node for node in nodes if not wanted or node.id in wanted]
    status = list(await asyncio.gather(*(_find_one(cluster, node) for node in chosen)))
    if wanted:
        leads = await _find_partitions(cluster)
        for row in status:
            row["leads"] = leads.get(row["id"], {})
    return status


async def _find_one(cluster: KafkaCluster, node: Node) -> dict[str, Any]:
    from trilogue.client.errors import ClientError

    try:
        value = await find_settings(cluster, node.id)
    except (ClientError, CommandError) as error:
        return _place(node) | {"problem": describe_error(error)}
    told = split_pairs(value.get("status", ""))
    return {
        **describe_node(node, value),
        "problem": "",
        **{name: text if name in TEXTS else _number(text) for name, text in told.items()},
    }


def _place(node: Node) -> dict[str, Any]:
    from trilogue.node.addresses import Address

    return {"id": node.id, "kafka": str(Address(node.host, node.port))}


def describe_node(node: Node, value: dict[str, str]) -> dict[str, Any]:
    """Return what lists and descriptions of nodes have alike, by what a node says of itself."""
    return _place(node) | {
        "pid": int(value["pid"]),
        "epoch": int(value["epoch"]),
        "slots": [int(each) for each in split_items(value["slots"])],
    }


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


async def _find_partitions(cluster: KafkaCluster) -> dict[int, dict[str, list[int]]]:
    """Return the partitions that each node leads, by topic."""
    from trilogue.client.kafka.admin.topics import TopicAdmin
    from trilogue.client.kafka.errors import KafkaError

    leads: dict[int, dict[str, list[int]]] = {}
    for name, topic in sorted((await TopicAdmin(cluster).describe_topics()).items()):
        if isinstance(topic, KafkaError):
            continue
        for partition in topic.partitions:
            leads.setdefault(partition.leader, {}).setdefault(name, []).append(partition.number)
    return leads


def find_lost_slots(status: Sequence[dict[str, Any]]) -> list[int]:
    """Return the slots that no node of these serves."""
    count = max((row.get("cluster_slots", 0) for row in status), default=0)
    return sorted(set(range(count)).difference(*(row.get("slots", ()) for row in status)))


def print_status(status: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print a table, and below it what is wrong, and the partitions of nodes that were named."""
    from trilogue.cli.tables import Size, print_json, print_table

    if as_json:
        print_json(status)
        return
    told = {key: head for key, head in COLUMNS.items() if any(key in row for row in status)}
    rows = []
    for row in status:
        shown = {head: row.get(key) for key, head in told.items()}
        if "unflushed_bytes" in row:
            shown[COLUMNS["unflushed_bytes"]] = Size(row["unflushed_bytes"])
        rows.append(shown)
    print_table(rows, list(told.values()))
    for row in status:
        if row["problem"]:
            print(f"node {row['id']} at {row['kafka']}: {row['problem']}")
    is_all = not any("leads" in row for row in status)
    if is_all and (lost := find_lost_slots(status)):
        print(f"no node that answers has the slots {','.join(map(str, lost))}")
    for row in status:
        for topic, partitions in row.get("leads", {}).items():
            print(f"node {row['id']} leads {topic}: {','.join(map(str, partitions))}")
