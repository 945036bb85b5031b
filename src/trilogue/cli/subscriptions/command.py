"""`trilogue subscriptions`: the readers of a topic by protocol, and their backlog."""

from __future__ import annotations

from typing import Annotated

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    FAILED,
    HTTP_VARIABLE,
    JsonOption,
    ServerOption,
    TimeoutOption,
    run_with_cluster,
)
from trilogue.cli.options import exit_with_error

app = typer.Typer(help="Show the readers of topics, by all protocols.")
app.info.no_args_is_help = True

HttpOption = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        envvar=HTTP_VARIABLE,
        help="The HTTP listener of the server; by default its port 8080; off for none.",
    ),
]


@app.command("list")
def list_(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="All topics if none.")
    ] = None,
    *,
    as_json: JsonOption = False,
    http: HttpOption = "",
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List subscriptions of topics: Kafka's groups, Pulsar's subscriptions, TubeMQ's groups."""
    from trilogue.cli.subscriptions.report import listed
    from trilogue.cli.tables import print_json, print_table

    rows = run_with_cluster(
        server, timeout, lambda cluster: listed(cluster, topics, (http, server, timeout))
    )
    if as_json:
        print_json(rows)
    else:
        columns = ("topic", "subscription", "protocol", "type", "members", "backlog")
        print_table(rows, columns)


@app.command("describe")
def describe(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBSCRIPTION...]", help="All if none.")
    ] = None,
    *,
    as_json: JsonOption = False,
    http: HttpOption = "",
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Describe subscriptions of a topic: position, end and backlog in each partition."""
    from trilogue.cli.subscriptions.report import described
    from trilogue.cli.tables import print_json, print_table

    rows = run_with_cluster(
        server, timeout, lambda cluster: described(cluster, topic, names, (http, server, timeout))
    )
    if as_json:
        print_json(rows)
    else:
        columns = ("subscription", "protocol", "partition", "position", "end", "backlog")
        print_table(rows, columns)


@app.command("share")
def share() -> None:
    """Share a position between protocols: not supported yet."""
    exit_with_error("protocols cannot share a position yet: each has its own", FAILED)
