"""`trilogue consume`: prints messages of a topic of any Kafka cluster, between two positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    ServerOption,
    TimeoutOption,
    require_topics,
    run_with_client,
)
from trilogue.cli.offsets import Position, PositionError, parse_position
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
BeginOption = Annotated[
    str,
    typer.Option(
        "--from", metavar="POSITION", help="beginning, end, an offset, -1h, 2026-05-01T12:00"
    ),
]
UntilOption = Annotated[
    str,
    typer.Option("--until", metavar="POSITION", help="The same; end is the end as it is now."),
]
LastOption = Annotated[
    int | None,
    typer.Option("--last", "-n", min=1, max=1_000_000, help="Only the last so many."),
]
CountOption = Annotated[
    int | None, typer.Option("--count", "-c", min=1, help="Stop after so many.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
]
PartitionsOption = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these partitions.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", metavar="GROUP", help="Go on where the group was, and commit."),
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="A JSON object a line.")]
KeysOption = Annotated[bool, typer.Option("--keys", "-K", help="Key, a tab, and the value.")]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Of {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}.",
    ),
]
CommittedOption = Annotated[
    bool, typer.Option("--committed", help="Nothing of transactions that are not committed.")
]


def consume(
    topic: TopicArgument,
    *,
    begin: BeginOption = "beginning",
    until: UntilOption = "end",
    last: LastOption = None,
    count: CountOption = None,
    follow: FollowOption = False,
    partitions: PartitionsOption = None,
    group: GroupOption = None,
    as_json: AsJsonOption = False,
    keys: KeysOption = False,
    template: TemplateOption = None,
    committed: CommittedOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Print messages: by default the values of all present messages, a line each."""
    from trilogue.cli.messages.consume_format import FormatError, formatter

    wanted = _place(begin, "--from"), _place(until, "--until")
    if follow and until != "end":
        exit_with_error("--follow goes on for ever: leave --until away, or --follow", USAGE_ERROR)
    if last is not None and (begin != "beginning" or group is not None):
        exit_with_error("--last sets where to begin: it excludes --from and --group", USAGE_ERROR)
    if group is not None:
        _check_group(wanted, partitions)
    if sum((as_json, keys, template is not None)) > 1:
        exit_with_error("one of --json, --keys and --format", USAGE_ERROR)
    try:
        form = formatter(template, as_json=as_json, keys=keys)
    except FormatError as error:
        exit_with_error(f"--format: {error}", USAGE_ERROR)

    async def work(client: KafkaClient) -> int:
        from trilogue.cli.messages.consume_run import ConsumeRun

        await require_topics(client.cluster, [topic])
        run = ConsumeRun(client, topic, form, count=count, follow=follow, isolation=int(committed))
        if group is not None:
            return await run.as_group(group, wanted[0])
        if last is not None:
            return await run.last(last, wanted[1], partitions)
        return await run.between(wanted[0], wanted[1], partitions)

    raise typer.Exit(run_with_client(server, timeout, work))


def _check_group(wanted: tuple[Position, Position], partitions: list[int] | None) -> None:
    begin, until = wanted
    if begin.offset is not None or begin.time >= 0 or until != parse_position("end"):
        exit_with_error(
            "--group goes on where the group was: --from beginning or end is for where it never "
            "was, and `trilogue groups reset` moves it",
            USAGE_ERROR,
        )
    if partitions:
        exit_with_error(
            "--group reads what the group gives it: leave --partition away", USAGE_ERROR
        )


def _place(text: str, option: str) -> Position:
    try:
        return parse_position(text)
    except PositionError as error:
        exit_with_error(f"{option} {error}", USAGE_ERROR)
