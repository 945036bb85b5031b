"""`trilogue nodes`: the nodes of a cluster, as each reports itself by Kafka's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    CommandError,
    JsonOption,
    ServerOption,
    TimeoutOption,
    run_with_cluster,
)

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster

app = typer.Typer(help="List the nodes of a cluster.")
app.info.no_args_is_help = True

PREFIX: Final = "trilogue."


@app.callback()
def nodes() -> None:
    """List the nodes of a cluster."""


@app.command("list")
def list_(
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List each node: its process, its epoch, its addresses, its slots."""
    from trilogue.cli.tables import print_json, print_table

    rows = run_with_cluster(server, timeout, _find_nodes)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["kafka"] = row["doors"].get("kafka", "-")
        row["slots"] = ",".join(map(str, row["slots"]))
    print_table(rows, ("id", "pid", "epoch", "kafka", "slots"))


async def _find_nodes(cluster: KafkaCluster) -> list[dict[str, Any]]:
    from trilogue.client.kafka.admin.configs import ConfigAdmin
    from trilogue.client.kafka.admin.model import Resource, ResourceType
    from trilogue.client.kafka.admin.nodes import NodeAdmin
    from trilogue.client.kafka.errors import KafkaError

    described = await NodeAdmin(cluster).describe_cluster()
    brokers = [Resource(ResourceType.BROKER, str(node.id)) for node in described.nodes]
    found = await ConfigAdmin(cluster).describe_configs(brokers)
    rows = []
    for node, broker in zip(described.nodes, brokers, strict=True):
        settings = found[broker]
        if isinstance(settings, KafkaError):
            raise CommandError(f"node {node.id}: {settings}")
        if f"{PREFIX}pid" not in settings:
            raise CommandError(f"node {node.id} is none of a Trilogue server")
        value = {key: settings[PREFIX + key].value or "" for key in ("pid", "epoch")}
        doors = _items(settings[f"{PREFIX}listeners"].value)
        slots = _items(settings[f"{PREFIX}slots"].value)
        rows.append(
            {
                "id": node.id,
                "pid": int(value["pid"]),
                "epoch": int(value["epoch"]),
                "doors": dict(each.split("=", 1) for each in doors),
                "slots": [int(each) for each in slots],
            }
        )
    return rows


def _items(text: str | None) -> list[str]:
    return [each for each in (text or "").split(",") if each]
