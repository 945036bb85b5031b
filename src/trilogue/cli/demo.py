"""`trilogue demo`: the whole product on real data, in a few minutes, with its result checked.

A server starts, an unmodified Kafka client replays a year of flights and weather into topics, a
Spark pipeline reads them as streams, joins, enriches and counts, writes Parquet and result topics,
a Kafka client reads those back, and DuckDB computes the same figures from the files. Any difference
ends with a non-zero exit code.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.demo_data import PARTITIONS, closing_events, events, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from trilogue.cli.demo_report import Report
    from trilogue.spark.pipelines.flights import Places, Step

MARK = ".trilogue-demo"
RESULTS = {"delay-stats": 3, "cancellations": 1}
OutputOption = Annotated[
    Path, typer.Option("--output", help="Folder for data, results and the report; made anew.")
]


def demo(*, output: OutputOption = Path("demo-output")) -> None:
    """Replay 336,776 real flights through the broker and Spark, and check the result."""
    from rich.console import Console

    from trilogue.cli.demo_report import Report

    console = Console()
    output = output.resolve()
    _make_anew(output)
    report = Report(str(output / "parquet" / "delay-stats"))
    began = time.monotonic()
    with _server(output, console) as servers:
        _replay(servers, output, console, report)
        _pipeline(servers, output, console, report)
        counted = _read_back(servers, report)
    wrong = _check(output, report, counted)
    report.load()
    report.show(console)
    page = report.write(output)
    console.print(f"Report: {page}   picture: {output / 'delays.png'}")
    if wrong:
        console.print("[bold red]The result differs from the data set:[/]")
        for line in wrong:
            console.print(line, markup=False)
        raise typer.Exit(1)
    took = time.monotonic() - began
    console.print(f"[bold green]Every figure equals the data set's own.[/] {took:.0f} s in all.")


def _make_anew(output: Path) -> None:
    """Empty the folder if it is ours, so that running the demo twice works."""
    if output.exists() and any(output.iterdir()):
        if not (output / MARK).exists():
            raise typer.BadParameter(f"{output} holds something else; name another folder")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / MARK).write_text("made by `trilogue demo`, and removed by its next run\n")


@contextmanager
def _server(output: Path, console: Console) -> Iterator[str]:
    from trilogue.cli.demo_server import running

    with console.status("starting the broker"), running(output) as server:
        console.print(f"broker: kafka {server.kafka}, ready in {server.started_s:.2f} s")
        yield server.kafka


def _replay(servers: str, output: Path, console: Console, report: Report) -> None:
    from rich.progress import Progress

    from trilogue.cli.demo_replay import Replay, create_topics
    from trilogue.cli.demo_report import Row

    create_topics(servers, PARTITIONS | RESULTS)
    with console.status("reading the data set"):
        paths = unpack(output / "csv")
        tables = events(paths, ("airlines", "airports", "planes"))
        streams = events(paths, ("weather", "flights"))
    replay = Replay(servers)
    started = time.monotonic()
    total = len(tables) + len(streams)
    with Progress(console=console) as progress:
        bar = progress.add_task("replaying events", total=total)
        replay.send_all(tables + streams, lambda done: progress.update(bar, completed=done))
        for partition, event in closing_events(streams[-1].time_ms):
            replay.send(event, partition)
        replay.finish()
        progress.update(bar, completed=total)
    seconds = time.monotonic() - started
    report.steps.append(Row("replay (confluent-kafka)", replay.sent, replay.acknowledged, seconds))


def _pipeline(servers: str, output: Path, console: Console, report: Report) -> None:
    from trilogue.cli.demo_report import Row
    from trilogue.spark.pipelines.flights import Places
    from trilogue.spark.session import session

    places = Places(servers, output)
    started = time.monotonic()
    with console.status("starting Spark"):
        spark = session("trilogue-demo", cache=output, settings=_quiet(output))
    report.steps.append(Row("start Spark", 0, 0, time.monotonic() - started))
    try:
        for step in _run_queries(spark, places, console):
            name = f"{step.name} (Spark, {step.batches} micro-batches)"
            report.steps.append(Row(name, step.rows_in, step.rows_out, step.seconds))
    finally:
        spark.stop()


def _run_queries(spark: SparkSession, places: Places, console: Console) -> list[Step]:
    from rich.progress import Progress

    from trilogue.spark.pipelines import flights as pipeline

    steps = []
    queries = (
        ("delay-stats", pipeline.delay_statistics, ["day", "carrier", "origin"]),
        ("cancellations", pipeline.cancellations, ["carrier", "flight"]),
    )
    with Progress(console=console) as progress:
        for name, build, key in queries:
            bar = progress.add_task(name, total=None)
            query, step = pipeline.run(build(spark, places), places, name, key)
            started = time.monotonic()
            while not query.awaitTermination(1):
                rows = sum(one["numInputRows"] for one in query.recentProgress)
                progress.update(bar, completed=rows, description=f"{name} {rows:,} rows")
            step.seconds = time.monotonic() - started
            done = query.recentProgress
            step.rows_in = sum(one["numInputRows"] for one in done)
            step.batches = len(done)
            progress.update(bar, total=step.rows_in, completed=step.rows_in)
            steps.append(step)
    return steps


def _quiet(output: Path) -> dict[str, str]:
    """Keep Spark's own chatter out of the terminal: it goes to spark.log."""
    config = output / "log4j2.properties"
    config.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.file.ref=file\n"
        f"appender.file.type=File\nappender.file.name=file\n"
        f"appender.file.fileName={output / 'spark.log'}\n"
        "appender.file.layout.type=PatternLayout\n"
        "appender.file.layout.pattern=%d{ISO8601} %p %c{1}: %m%n\n"
    )
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{config}",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(output / "warehouse"),
    }


def _read_back(servers: str, report: Report) -> dict[str, int]:
    from trilogue.cli.demo_replay import count_messages
    from trilogue.cli.demo_report import Row

    counted = {}
    for topic in RESULTS:
        started = time.monotonic()
        counted[topic] = count_messages(servers, topic)
        seconds = time.monotonic() - started
        report.steps.append(
            Row(f"read back {topic} (confluent-kafka)", counted[topic], counted[topic], seconds)
        )
    return counted


def _check(output: Path, report: Report, counted: dict[str, int]) -> list[str]:
    from trilogue.cli.demo_check import differences
    from trilogue.cli.demo_report import Row

    started = time.monotonic()
    parquet = output / "parquet"
    wrong, rows = differences(
        unpack(output / "csv"), str(parquet / "delay-stats"), str(parquet / "cancellations")
    )
    for topic, count in counted.items():
        if count != rows[topic]:
            wrong.append(f"topic {topic}: {count} messages, {rows[topic]} rows in Parquet")
    total = sum(rows.values())
    report.steps.append(Row("check (DuckDB)", total, total, time.monotonic() - started))
    sys.stdout.flush()
    return wrong
