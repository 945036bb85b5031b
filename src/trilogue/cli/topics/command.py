"""`trilogue topics`: lists, creates, alters, trims and deletes topics of any Kafka cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    FAILED,
    JsonOption,
    ServerOption,
    TimeoutOption,
    YesOption,
    confirm,
    describe_error,
    parse_pairs,
    raise_unknown_topic,
    report_outcomes,
    require_topics,
    run_with_cluster,
)
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.client.kafka.admin.topics import TopicAdmin
    from trilogue.client.kafka.cluster import KafkaCluster

app = typer.Typer(help="List, describe, create, alter, trim and delete topics.")
app.info.no_args_is_help = True

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeat it for more."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only validate the request on the server.")
]


@app.command("list")
def list_(
    pattern: Annotated[
        str | None, typer.Argument(help="Only names with this in them, or like `log-*`.")
    ] = None,
    *,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also how many messages and bytes there are.")
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the cluster's own topics.")
    ] = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List topics."""
    from trilogue.cli.tables import print_json, print_table
    from trilogue.cli.topics.report import listed

    rows = run_with_cluster(
        server, timeout, lambda cluster: listed(cluster, pattern, internal, long)
    )
    if as_json:
        print_json(rows)
        return
    columns = ("topic", "partitions", "replication", *(("messages", "size_bytes") if long else ()))
    print_table(rows, columns)


@app.command("describe")
def describe(
    topics: TopicsArgument,
    *,
    settings: Annotated[
        bool, typer.Option("--settings", help="All settings, also defaults.")
    ] = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Describe topics: partitions, offsets, sizes, and the settings that differ."""
    from trilogue.cli.tables import print_json
    from trilogue.cli.topics.report import described, print_described

    async def work(cluster: KafkaCluster) -> list[dict[str, object]]:
        await require_topics(cluster, topics)
        return await described(cluster, topics, settings)

    body = run_with_cluster(server, timeout, work)
    if as_json:
        print_json(body)
    else:
        print_described(body)


@app.command("create")
def create(
    topics: TopicsArgument,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=-1, help="-1: the default of the server.")
    ] = -1,
    replication: Annotated[
        int, typer.Option("--replication", "-r", min=-1, help="-1: the default of the server.")
    ] = -1,
    settings: SetOption = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave those alone that are there.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Create topics."""
    from trilogue.cli.topics.report import created
    from trilogue.client.kafka.admin.model import NewTopic

    given = parse_pairs(settings, "--set")
    wanted = [NewTopic(name, partitions, replication, settings=given) for name in topics]
    code = run_with_cluster(
        server,
        timeout,
        lambda cluster: created(
            cluster, wanted, if_missing=if_missing, dry_run=dry_run, as_json=as_json
        ),
    )
    raise typer.Exit(code)


@app.command("delete")
def delete(
    topics: TopicsArgument,
    *,
    yes: YesOption = False,
    if_there: Annotated[
        bool, typer.Option("--if-there", help="It is right if they are not there.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Delete topics with all messages, after a confirmation."""

    async def find_existing_topics(cluster: KafkaCluster) -> list[str]:
        from trilogue.client.kafka.errors import KafkaError
        from trilogue.wire.kafka.errors import ErrorCode

        found = await _topics(cluster).describe_topics(topics)
        there = []
        for name, outcome in found.items():
            if not isinstance(outcome, KafkaError):
                there.append(name)
            elif outcome.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise outcome
            elif not if_there:
                await raise_unknown_topic(cluster, name)
        return there

    async def work(cluster: KafkaCluster) -> int:
        outcomes = await _topics(cluster).delete_topics(await find_existing_topics(cluster))
        return report_outcomes(outcomes, lambda name: f"deleted {name}")

    if not yes:
        there = run_with_cluster(server, timeout, find_existing_topics)
        if not there:
            return
        confirm(f"Delete {', '.join(there)} and all that is in there?", yes=False)
    raise typer.Exit(run_with_cluster(server, timeout, work))


def _topics(cluster: KafkaCluster) -> TopicAdmin:
    from trilogue.client.kafka.admin.topics import TopicAdmin

    return TopicAdmin(cluster)


@app.command("alter")
def alter(
    topics: TopicsArgument,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="So many in all, not fewer.")
    ] = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="A setting to go back to its default."),
    ] = None,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Change settings of topics, or add partitions."""
    changes: dict[str, str | None] = {
        **parse_pairs(settings, "--set"),
        **dict.fromkeys(unset or ()),
    }
    if not changes and partitions is None:
        exit_with_error("nothing to change: give --partitions, --set or --unset", USAGE_ERROR)

    async def work(cluster: KafkaCluster) -> int:
        from trilogue.cli.tables import spell_count
        from trilogue.client.kafka.admin.configs import ConfigAdmin
        from trilogue.client.kafka.admin.model import Resource, ResourceType

        await require_topics(cluster, topics)
        code = 0
        would = "would be" if dry_run else "is"
        if partitions is not None:
            totals = dict.fromkeys(topics, partitions)
            outcomes = await _topics(cluster).create_partitions(totals, validate_only=dry_run)
            detail = f"{f'{would} of' if dry_run else 'has'} {spell_count(partitions, 'partition')}"
            code = report_outcomes(outcomes, lambda name: f"{name} {detail}")
        if changes:
            resources = {Resource(ResourceType.TOPIC, name): changes for name in topics}
            altered = await ConfigAdmin(cluster).alter_configs(resources, validate_only=dry_run)
            code |= report_outcomes(
                altered, lambda one: f"settings of {one.name} {_changed(would)}"
            )
        return code

    raise typer.Exit(run_with_cluster(server, timeout, work))


def _changed(would: str) -> str:
    return "are changed" if would == "is" else "would be changed"


@app.command("trim")
def trim(
    topic: TopicArgument,
    *,
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="POSITION", help="An offset, end, -7d, 2026-05-01: what is left."
        ),
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these partitions.")
    ] = None,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Delete the messages of a topic before a position, after a confirmation."""
    from trilogue.cli.offsets import PositionError, parse_position
    from trilogue.cli.tables import spell_count
    from trilogue.cli.topics.report import trimmed, trimming

    try:
        where = parse_position(before)
    except PositionError as error:
        exit_with_error(f"--before {error}", USAGE_ERROR)

    async def plan_trim(cluster: KafkaCluster) -> dict[int, tuple[int, int]]:
        await require_topics(cluster, [topic])
        return await trimming(cluster, topic, where, partition)

    plan = run_with_cluster(server, timeout, plan_trim)
    count = sum(to - start for start, to in plan.values())
    if not count:
        print(f"nothing of {topic} stands before that")
        return
    confirm(f"Delete {spell_count(count, 'message')} of {topic}?", yes=yes)
    ends = {number: to for number, (start, to) in plan.items() if to > start}
    outcomes = run_with_cluster(server, timeout, lambda cluster: trimmed(cluster, topic, ends))
    code = 0
    for number, outcome in sorted(outcomes.items()):
        if isinstance(outcome, int):
            print(f"{topic}-{number} begins at {outcome}")
        else:
            print(f"trilogue: {describe_error(outcome)}", file=sys.stderr)
            code = FAILED
    raise typer.Exit(code)
