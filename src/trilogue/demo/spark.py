"""The demo's Spark part: one session, and each query with a progress bar and counted rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trilogue.demo.steps import StepResult
from trilogue.spark.session_log import log_settings, stderr_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trilogue.demo.steps import Steps
    from trilogue.spark.pipelines.flights import PipelineLocations, Result


def run_pipeline(servers: str, output: Path, work: Steps, sent: dict[str, int]) -> None:
    """Run both queries; `sent` is the number of events by topic."""
    from trilogue.spark.local_session import session, stop
    from trilogue.spark.pipelines.flights import RESULTS, PipelineLocations

    locations = PipelineLocations(servers, output)
    with work.step("start Spark"), stderr_to(output / "spark.err"):
        spark = session("trilogue-demo", cache=output, settings=_session_settings(output))
    try:
        for result in RESULTS:
            total = sum(sent[topic] for topic in result.reads)
            with work.step(f"{result.name} (Spark)", total) as (row, done):
                row.rows_in, row.rows_out, parts = _run(spark, locations, result, done)
            work.rows += parts
    finally:
        stop(spark)


def _run(
    spark: SparkSession, locations: PipelineLocations, result: Result, done: Callable[[int], None]
) -> tuple[int, int, list[StepResult]]:
    """Run one query to its end; return rows in, rows out, and the rows of its parts."""
    from trilogue.spark.pipelines.flights import start

    query, written = start(spark, locations, result)
    while not query.awaitTermination(1):
        done(sum(one["numInputRows"] for one in query.recentProgress))
    progress = [one for one in query.recentProgress if one["numInputRows"] or one["batchId"]]
    rows = sum(one["numInputRows"] for one in progress)
    return rows, written.rows, list(_parts(result, progress, written.rows))


def _parts(result: Result, progress: list[Any], rows_out: int) -> list[StepResult]:
    """Yield the rows that pass each part of the query, from Spark's observed metrics."""
    rows_in = sum(one["numInputRows"] for one in progress)
    parts = []
    for name in result.parts:
        observed = [one["observedMetrics"].get(name) for one in progress]
        rows = sum(one["rows"] for one in observed if one is not None)
        parts.append(StepResult(f"  {name}", rows_in, rows))
        rows_in = rows
    return [*parts, StepResult(f"  {result.last_part}", rows_in, rows_out)]


def _session_settings(output: Path) -> dict[str, str]:
    """Return settings of a run that leaves everything below `output`."""
    return {**log_settings(output), "spark.sql.warehouse.dir": str(output / "warehouse")}
