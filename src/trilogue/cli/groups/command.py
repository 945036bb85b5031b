"""`trilogue groups`: lists, describes, resets and deletes consumer groups of any Kafka cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    JsonOption,
    ServerOption,
    TimeoutOption,
    YesOption,
    confirm,
    report_outcomes,
    run_with_cluster,
)
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster

app = typer.Typer(help="List, describe, reset and delete groups of readers.")
app.info.no_args_is_help = True

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="`orders`, `orders:0,3`."),
]


@app.command("list")
def list_(
    pattern: Annotated[
        str | None, typer.Argument(help="Only names with this in them, or like `app-*`.")
    ] = None,
    *,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state: Stable, Empty.")
    ] = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--type", help="Only these: classic, consumer.")
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List groups."""
    from trilogue.cli.groups.report import listed
    from trilogue.cli.tables import print_json, print_table

    rows = run_with_cluster(
        server, timeout, lambda cluster: listed(cluster, pattern, states, kinds)
    )
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("group", "state", "type", "protocol"))


@app.command("describe")
def describe(
    groups: GroupsArgument,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Describe groups: members, positions and lag."""
    from trilogue.cli.groups.report import described, print_described
    from trilogue.cli.tables import print_json

    body = run_with_cluster(server, timeout, lambda cluster: described(cluster, groups))
    if as_json:
        print_json(body)
    else:
        print_described(body)


@app.command("reset")
def reset(
    group: GroupArgument,
    *,
    topics: TopicsOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every topic in which the group has a position.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="POSITION", help="beginning, end, an offset, -1h, 2026-05-01"),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many on, or back: -10.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; else it is only shown.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show it, which is the default.")
    ] = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Show the new positions of a group, and with --execute set them."""
    from trilogue.cli.groups.offsets import Target, moved
    from trilogue.cli.offsets import PositionError, parse_position
    from trilogue.cli.tables import print_json, print_table

    if (to is None) == (shift_by is None):
        exit_with_error("give --to POSITION or --shift-by N", USAGE_ERROR)
    if bool(topics) == all_topics:
        exit_with_error("give --topic TOPIC or --all-topics", USAGE_ERROR)
    if execute and dry_run:
        exit_with_error("--execute or --dry-run, not both", USAGE_ERROR)
    try:
        target = Target(None if to is None else parse_position(to), shift_by or 0)
    except PositionError as error:
        exit_with_error(f"--to {error}", USAGE_ERROR)

    rows = run_with_cluster(
        server, timeout, lambda cluster: moved(cluster, group, topics, target, execute=execute)
    )
    if as_json:
        print_json(rows)
        return
    print_table(rows, ("topic", "partition", "position", "new", "change"))
    if not execute:
        print("nothing was changed; --execute does it")


@app.command("delete")
def delete(
    groups: GroupsArgument,
    *,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Delete groups without members, and their positions, after a confirmation."""

    async def check_groups(cluster: KafkaCluster) -> None:
        from trilogue.cli.groups.report import known_groups

        await known_groups(cluster, groups)

    async def work(cluster: KafkaCluster) -> int:
        from trilogue.cli.groups.report import admin

        await check_groups(cluster)
        outcomes = await admin(cluster).delete_groups(groups)
        return report_outcomes(outcomes, lambda name: f"deleted {name}")

    if not yes:
        run_with_cluster(server, timeout, check_groups)
        confirm(f"Delete {', '.join(groups)} and the positions?", yes=False)
    raise typer.Exit(run_with_cluster(server, timeout, work))


@app.command("delete-offsets")
def delete_offsets(
    group: GroupArgument,
    *,
    topics: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="`orders`, `orders:0,3`."),
    ],
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Delete positions of a group in topics that it no longer reads, after a confirmation."""
    from trilogue.cli.groups.offsets import forgotten

    confirm(f"Forget where {group} is in {', '.join(topics)}?", yes=yes)
    outcomes = run_with_cluster(server, timeout, lambda cluster: forgotten(cluster, group, topics))
    raise typer.Exit(report_outcomes(outcomes, lambda one: f"forgot {group} in {one[0]}-{one[1]}"))
