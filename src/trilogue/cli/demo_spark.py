"""The demo's Spark part: a session of its own, and each query with a bar and its rows counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trilogue.cli.demo_steps import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trilogue.cli.demo_steps import Steps
    from trilogue.spark.pipelines.flights import Places, Result

STDERR = 2


def pipeline(servers: str, output: Path, work: Steps, sent: dict[str, int]) -> None:
    """Run both queries over what was sent (events by topic)."""
    from trilogue.spark.pipelines.flights import RESULTS, Places
    from trilogue.spark.session import session, stop

    places = Places(servers, output)
    with work.step("start Spark"), _errors_to(output / "spark.err"):
        spark = session("trilogue-demo", cache=output, settings=_quiet(output))
    try:
        for result in RESULTS:
            total = sum(sent[topic] for topic in result.reads)
            with work.step(f"{result.name} (Spark)", total) as (row, done):
                row.rows_in, row.rows_out, parts = _run(spark, places, result, done)
            work.rows += parts
    finally:
        stop(spark)


def _run(
    spark: SparkSession, places: Places, result: Result, done: Callable[[int], None]
) -> tuple[int, int, list[Row]]:
    """One query to its end: rows in, rows out, and those of its parts."""
    from trilogue.spark.pipelines.flights import start

    query, written = start(spark, places, result)
    while not query.awaitTermination(1):
        done(sum(one["numInputRows"] for one in query.recentProgress))
    progress = [one for one in query.recentProgress if one["numInputRows"] or one["batchId"]]
    rows = sum(one["numInputRows"] for one in progress)
    return rows, written.rows, list(_parts(result, progress, written.rows))


def _parts(result: Result, progress: list[Any], rows_out: int) -> list[Row]:
    """Rows that go from part to part inside the query, as Spark observed them."""
    rows_in = sum(one["numInputRows"] for one in progress)
    parts = []
    for name in result.parts:
        observed = [one["observedMetrics"].get(name) for one in progress]
        rows = sum(one["rows"] for one in observed if one is not None)
        parts.append(Row(f"  {name}", rows_in, rows))
        rows_in = rows
    return [*parts, Row(f"  {result.last_part}", rows_in, rows_out)]


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Let what starts meanwhile write its errors to a file: Java warns of its own options."""
    kept = os.dup(STDERR)
    with path.open("ab") as file:
        os.dup2(file.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def _quiet(output: Path) -> dict[str, str]:
    """Keep Spark's own chatter out of the terminal: it goes to spark.log."""
    config = output / "log4j2.properties"
    config.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.file.ref=file\n"
        "appender.file.type=File\nappender.file.name=file\n"
        f"appender.file.fileName={output / 'spark.log'}\n"
        "appender.file.layout.type=PatternLayout\n"
        "appender.file.layout.pattern=%d{ISO8601} %p %c{1}: %m%n\n"
    )
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{config}",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(output / "warehouse"),
    }
