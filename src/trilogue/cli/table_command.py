"""`trilogue table`: copies topics of any Kafka cluster to a table in files, exactly once.

The table itself has the positions: a command that is repeated, or was killed, continues there.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    FAILED,
    SERVER_VARIABLE,
    JsonOption,
    client_file,
    parse_pairs,
)
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.spark.read_options import ReadOptions
    from trilogue.spark.tables.table_writer import TableWriter
    from trilogue.spark.tables.topic_table import TopicTable

app = typer.Typer(help="Copy topics to tables of Delta, Iceberg or Parquet, exactly once.")
app.info.no_args_is_help = True

COMMIT_OFFSETS = 1_000_000
SEND_OFFSETS = 100_000
VACUUM_HOURS = 168
EVERY_S = 10.0
Result = TypeVar("Result")

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
DeltaOption = Annotated[
    str | None, typer.Option("--delta", metavar="LOCATION", help="A Delta table: a path or URL.")
]
IcebergOption = Annotated[
    str | None, typer.Option("--iceberg", metavar="NAMESPACE.TABLE", help="An Iceberg table.")
]
ParquetOption = Annotated[
    Path | None, typer.Option("--parquet", metavar="DIR", help="A folder of Parquet files.")
]
CatalogOption = Annotated[
    str, typer.Option("--catalog", help="Iceberg's catalog, as PyIceberg is configured.")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="Of Iceberg's catalog (uri, warehouse), or of Delta's storage; repeat it for more.",
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="An option of the Spark source: columns, payload, startingOffsets, path, ...",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST:PORT",
        envvar=SERVER_VARIABLE,
        help=f"The Kafka listener of a server ({DEFAULT_SERVER}, or none with -o path=/DATA).",
    ),
]


@app.command()
def write(
    topics: TopicsArgument,
    *,
    delta: DeltaOption = None,
    iceberg: IcebergOption = None,
    parquet: ParquetOption = None,
    catalog: CatalogOption = "default",
    properties: PropertyOption = None,
    source: SourceOption = None,
    commit: Annotated[
        int, typer.Option("--commit", metavar="OFFSETS", min=1, help="The most in one commit.")
    ] = COMMIT_OFFSETS,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")
    ] = False,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.1, help="With --follow: between looks."),
    ] = EVERY_S,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="COLUMN",
            help="Divide a new table of Delta or Iceberg by this column; repeat it for more.",
        ),
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = None,
) -> None:
    """Append to a table what it lacks of these topics."""

    def work() -> int:
        from trilogue.spark.tables.table_writer import CommitLimits, TableWriter

        options = _parse(topics, source, server)
        columns = partition_by or ()
        table = _open_table(delta, iceberg, parquet, catalog, properties, partition_by=columns)
        with closing(table):
            writer = TableWriter(options, table, CommitLimits(commit))
            return _follow(writer, every) if follow else sum(iter(writer.write_next, 0))

    _print({"offsets": _run(work)}, as_json=as_json)


@app.command()
def status(
    topics: TopicsArgument,
    *,
    delta: DeltaOption = None,
    iceberg: IcebergOption = None,
    parquet: ParquetOption = None,
    catalog: CatalogOption = "default",
    properties: PropertyOption = None,
    source: SourceOption = None,
    as_json: JsonOption = False,
    server: ServerOption = None,
) -> None:
    """Print how far each partition is in a table, and what the table lacks."""

    def work() -> list[dict[str, Any]]:
        from trilogue.spark.tables.table_writer import TableWriter

        options = _parse(topics, source, server)
        with closing(_open_table(delta, iceberg, parquet, catalog, properties)) as table:
            plan = TableWriter(options, table).plan()
        return [
            {
                "topic": topic,
                "partition": number,
                "next_offset": plan.begin[topic, number],
                "end_offset": end,
                "lag": end - plan.begin[topic, number],
            }
            for (topic, number), end in sorted(plan.end.items())
        ]

    _print(_run(work), as_json=as_json)


@app.command()
def compact(
    *,
    delta: DeltaOption = None,
    iceberg: IcebergOption = None,
    parquet: ParquetOption = None,
    catalog: CatalogOption = "default",
    properties: PropertyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rewrite small files of a table into large ones; positions and rows stay."""

    def work() -> int:
        with closing(_open_table(delta, iceberg, parquet, catalog, properties)) as table:
            return table.compact()

    _print({"files_replaced": _run(work)}, as_json=as_json)


@app.command()
def vacuum(
    *,
    hours: Annotated[
        int,
        typer.Option("--hours", min=0, help="Versions of so many last hours stay readable."),
    ] = VACUUM_HOURS,
    delta: DeltaOption = None,
    iceberg: IcebergOption = None,
    parquet: ParquetOption = None,
    catalog: CatalogOption = "default",
    properties: PropertyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove files that only old versions of a table have, such as those that were compacted."""

    def work() -> int:
        with closing(_open_table(delta, iceberg, parquet, catalog, properties)) as table:
            return table.vacuum(hours)

    _print({"files_removed": _run(work)}, as_json=as_json)


@app.command()
def send(
    topic: Annotated[str, typer.Argument(show_default=False)],
    *,
    delta: DeltaOption = None,
    iceberg: IcebergOption = None,
    parquet: ParquetOption = None,
    catalog: CatalogOption = "default",
    properties: PropertyOption = None,
    commit: Annotated[
        int, typer.Option("--commit", metavar="OFFSETS", min=1, help="The most in one commit.")
    ] = SEND_OFFSETS,
    by_key: Annotated[
        bool, typer.Option("--by-key", help="Keys choose partitions, not the column partition.")
    ] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
) -> None:
    """Send the rows of a table of a topic to a topic, in order and exactly once."""

    def work() -> int:
        from trilogue.spark.tables.table_backfill import TableBackfill
        from trilogue.spark.write_options import WriteOptions

        servers = {"kafka.bootstrap.servers": server} if server else {}
        options = WriteOptions.parse(
            {"kafka.bootstrap.servers": DEFAULT_SERVER, **_read_config(), **servers, "topic": topic}
        )
        name = delta or iceberg or str(parquet)
        with closing(_open_table(delta, iceberg, parquet, catalog, properties)) as table:
            backfill = TableBackfill(
                table, name, options, offsets=commit, keep_partitions=not by_key
            )
            return sum(iter(backfill.send_next, 0))

    _print({"rows": _run(work)}, as_json=as_json)


def _follow(writer: TableWriter, every_s: float) -> int:
    """Write until SIGINT or SIGTERM, which count between two commits; return the offsets."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    total = 0
    while not stop.is_set():
        written = writer.write_next()
        total += written
        if not written:
            stop.wait(every_s)
    return total


def _open_table(
    delta: str | None,
    iceberg: str | None,
    parquet: Path | None,
    catalog: str,
    properties: list[str] | None,
    *,
    partition_by: Sequence[str] = (),
) -> TopicTable:
    if sum(each is not None for each in (delta, iceberg, parquet)) != 1:
        exit_with_error("give one of --delta, --iceberg and --parquet", USAGE_ERROR)
    if parquet is not None and partition_by:
        exit_with_error("--partition-by is for --delta and --iceberg", USAGE_ERROR)
    given = parse_pairs(properties, "--property")
    if delta is not None:
        from trilogue.spark.tables.delta_table import DeltaTopicTable

        return DeltaTopicTable(delta, given, partition_by)
    if iceberg is not None:
        from trilogue.spark.tables.iceberg_table import IcebergTopicTable

        return IcebergTopicTable(iceberg, catalog, given, partition_by)
    from trilogue.spark.tables.parquet_table import ParquetTopicTable

    assert parquet is not None
    return ParquetTopicTable(parquet)


def _parse(topics: list[str], source: list[str] | None, server: str | None) -> ReadOptions:
    from trilogue.spark.read_options import ReadOptions

    options = _read_config() | parse_pairs(source, "--option")
    if server is not None or "path" not in options:
        servers = server or options.get("kafka.bootstrap.servers") or DEFAULT_SERVER
        options["kafka.bootstrap.servers"] = servers
    return ReadOptions.parse({**options, "subscribe": ",".join(topics)})


def _read_config() -> dict[str, str]:
    """Return the options of the file that --config names, in the names of the Spark source."""
    from trilogue.client.kafka.client_config import SERVERS, convert_key
    from trilogue.client.properties import read_keys

    path = client_file()
    if path is None:
        return {}
    return {
        f"kafka.{key}": value
        for _, key, value in read_keys(path)
        if key == SERVERS or (key != "client.id" and convert_key(key, value) is not None)
    }


def _run(work: Callable[[], Result]) -> Result:
    """Return the result of work; errors end the process with one line."""
    from trilogue.client.errors import ClientError
    from trilogue.spark.errors import OptionError, SourceError

    gc.freeze()
    gc.enable()  # a long run makes garbage
    try:
        return work()
    except OptionError as error:
        exit_with_error(str(error), USAGE_ERROR)
    except (SourceError, ClientError) as error:
        exit_with_error(str(error), FAILED)
    except ModuleNotFoundError as error:
        exit_with_error(f"no {error.name} here: pip install 'trilogue[table]'", FAILED)


def _print(found: Any, *, as_json: bool) -> None:
    from trilogue.cli.tables import print_json, print_table

    if as_json:
        print_json(found)
        return
    rows = found if isinstance(found, list) else [found]
    print_table(rows, tuple(rows[0]) if rows else ())
