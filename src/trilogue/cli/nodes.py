"""`trilogue nodes`: the nodes of a cluster, and which of them has which slots.

Lists and descriptions are what each node reports by Kafka's protocol. Moves are requests to the
supervisor, by its socket in the data directory; those of a cluster are rows in its database.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    FAILED,
    JsonOption,
    ServerOption,
    TimeoutOption,
    run_with_cluster,
)
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster

app = typer.Typer(help="List and describe the nodes of a cluster, move slots between them.")
app.info.no_args_is_help = True

MOVE_TIMEOUT: Final = 120.0
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The directory of a server with several nodes."),
]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="URL",
        envvar="TRILOGUE_CLUSTER_URL",
        help="The database of a cluster on several machines.",
    ),
]


@app.callback()
def nodes() -> None:
    """List and describe the nodes of a cluster, move slots between them."""


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
        row["slots"] = ",".join(map(str, row["slots"]))
    print_table(rows, ("id", "pid", "epoch", "kafka", "slots"))


@app.command()
def describe(
    nodes: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID...]", help="Nodes, with the partitions they lead; all."),
    ] = None,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Show what each node owns, and how far its journal and its flushes lag."""
    from trilogue.cli.node_status import find_status, print_status

    status = run_with_cluster(server, timeout, partial(find_status, wanted=nodes or []))
    print_status(status, as_json=as_json)
    if any(row["problem"] for row in status):
        raise typer.Exit(FAILED)


@app.command()
def move(
    slots: Annotated[list[int], typer.Argument(metavar="SLOT...", help="The slots to move.")],
    *,
    to: Annotated[int, typer.Option("--to", metavar="ID", help="The node that gets them.")],
    data: DirectoryOption = None,
    cluster: DatabaseOption = "",
    timeout: TimeoutOption = MOVE_TIMEOUT,
) -> None:
    """Move slots to another node while all serve: the nodes concerned start again."""
    _request(data, cluster, {"move": dict.fromkeys(map(str, slots), to)}, timeout)


@app.command()
def drain(
    node: Annotated[int, typer.Argument(metavar="ID", help="The node that gives its slots away.")],
    *,
    data: DirectoryOption = None,
    cluster: DatabaseOption = "",
    timeout: TimeoutOption = MOVE_TIMEOUT,
) -> None:
    """Spread the slots of a node over the others while all serve."""
    _request(data, cluster, {"drain": node}, timeout)


@app.command()
def rebalance(
    *,
    data: DirectoryOption = None,
    cluster: DatabaseOption = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the moves and the loads, and move nothing.")
    ] = False,
    tolerance: Annotated[
        int,
        typer.Option(
            metavar="PERCENT",
            min=1,
            max=100,
            help="How far the load of a node may be from its share.",
        ),
    ] = 20,
    timeout: TimeoutOption = MOVE_TIMEOUT,
) -> None:
    """Spread slots by load over all living nodes while all serve; few slots move."""
    content: dict[str, Any] = {"rebalance": tolerance / 100}
    if not dry_run:
        _request(data, cluster, content, timeout)
        return
    from trilogue.cli.tables import print_table
    from trilogue.node.errors import ControlError

    if not cluster:
        exit_with_error("--dry-run needs --cluster URL", USAGE_ERROR)
    try:
        planned = _request_move(cluster, content | {"dry_run": True}, timeout)
    except ControlError as error:
        exit_with_error(str(error), FAILED)
    print_table(planned["nodes"], ("node", "slots", "load", "slots_after", "load_after"))
    for node_id in planned["silent"]:
        typer.echo(f"node {node_id} is silent: it keeps its slots and gets none")
    for slot, node_id in planned["slots"].items():
        typer.echo(f"slot {slot}: node {node_id}")
    typer.echo(f"{len(planned['slots'])} would move")


def _request(data: Path | None, url: str, content: dict[str, Any], timeout_s: float) -> None:
    from trilogue.node.errors import ControlError
    from trilogue.node.supervisor.control import send_request

    try:
        if data is not None:
            response = send_request(data, content, timeout_s)
        elif url:
            response = _request_move(url, content, timeout_s)
        else:
            exit_with_error("--data DIR or --cluster URL is needed", USAGE_ERROR)
    except ControlError as error:
        exit_with_error(str(error), FAILED)
    moved: dict[str, int] = response["slots"]
    for slot, node_id in moved.items():
        typer.echo(f"slot {slot}: node {node_id}")
    typer.echo(f"{len(moved)} moved in {response['seconds']} s")


def _request_move(url: str, content: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    import importlib.util

    if importlib.util.find_spec("asyncpg") is None:
        exit_with_error("--cluster needs a package: pip install 'trilogue[postgres]'", FAILED)
    from trilogue.node.cluster.move_request import request_move

    return asyncio.run(request_move(url, content, timeout_s))


async def _find_nodes(cluster: KafkaCluster) -> list[dict[str, Any]]:
    from trilogue.cli.node_status import describe_node, find_settings, split_pairs
    from trilogue.client.kafka.admin.nodes import NodeAdmin

    nodes = (await NodeAdmin(cluster).describe_cluster()).nodes
    values = await asyncio.gather(*(find_settings(cluster, node.id) for node in nodes))
    return [
        {**describe_node(node, value), "doors": split_pairs(value["listeners"])}
        for node, value in zip(nodes, values, strict=True)
    ]
