"""`trilogue produce`: messages from lines, files or JSON, to any Kafka cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    ServerOption,
    TimeoutOption,
    parse_pairs,
    require_partitions,
    require_topics,
    run_with_client,
)
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient

ACKS = {"all": -1, "-1": -1, "1": 1, "leader": 1, "0": 0, "none": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE...]", help="One message a line; - or none is stdin."),
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", help="The key of every message.")]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines are KEY TEXT VALUE."),
]
ValueOption = Annotated[
    str | None, typer.Option("--value", help="Send this one message, without input.")
]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeat it for more."),
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="To this partition, not by key.")
]
AsJsonOption = Annotated[
    bool,
    typer.Option("--json", help="Lines are JSON: key, value, headers, timestamp, partition."),
]
WholeOption = Annotated[bool, typer.Option("--whole", help="Each file is one message.")]
DelimiterOption = Annotated[
    str, typer.Option("--delimiter", "-D", help="What ends a message; \\n, \\0 and \\t do.")
]
TombstonesOption = Annotated[
    bool, typer.Option("--tombstones", "-Z", help="Send empty values as null: they delete a key.")
]
CodecOption = Annotated[str, typer.Option("--codec", "-z", help=", ".join(CODECS))]
AcksOption = Annotated[str, typer.Option("--acks", "-a", help="all, 1 or 0")]
CreateOption = Annotated[
    bool, typer.Option("--create", help="Create the topic if it does not exist.")
]


def produce(
    topic: TopicArgument,
    files: FilesArgument = None,
    *,
    key: KeyOption = None,
    key_separator: KeySeparatorOption = None,
    value: ValueOption = None,
    headers: HeadersOption = None,
    partition: PartitionOption = None,
    as_json: AsJsonOption = False,
    whole: WholeOption = False,
    delimiter: DelimiterOption = "\\n",
    tombstones: TombstonesOption = False,
    codec: CodecOption = "none",
    acks: AcksOption = "all",
    create: CreateOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Send messages; exit code 0 when all of them were acknowledged."""
    from trilogue.cli.messages.produce_lines import Lines, LinesError

    if acks not in ACKS:
        exit_with_error(f"--acks {acks}: all, 1 or 0", USAGE_ERROR)
    if codec not in CODECS:
        exit_with_error(f"--codec {codec}: one of {', '.join(CODECS)}", USAGE_ERROR)
    try:
        lines = Lines(
            files=files or [],
            key=key,
            separator=key_separator,
            value=value,
            headers=tuple(parse_pairs(headers, "--header").items()),
            as_json=as_json,
            whole=whole,
            delimiter=delimiter,
            tombstones=tombstones,
        )
    except LinesError as error:
        exit_with_error(str(error), USAGE_ERROR)

    async def work(client: KafkaClient) -> int:
        from trilogue.cli.messages.produce_run import send_all

        if create:
            await client.admin.create_topic(topic)
        else:
            await require_topics(client.cluster, [topic])
        if partition is not None:
            await require_partitions(client.cluster, topic, [partition])
        return await send_all(
            client, topic, lines, partition, acks=ACKS[acks], codec=codec, timeout_s=timeout
        )

    raise typer.Exit(run_with_client(server, timeout, work))
