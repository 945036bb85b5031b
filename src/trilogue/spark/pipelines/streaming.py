"""Runs the same definitions as plain structured streaming, without Spark Connect.

Each flow is a streaming query (or, for a materialized view, a batch) over the data that exist now.
A table is updated before the flows that read it. Checkpoints are in `checkpoints` of the storage;
the declarative engine has its own elsewhere: a folder belongs to one of them (decision 0154).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trilogue.spark.pipelines.declarative import Report
from trilogue.spark.pipelines.definition import (
    Engine,
    PipelineDefinition,
    PipelineError,
    claim_folder,
)
from trilogue.spark.pipelines.loading import describe_failure, register_files, shorten_message
from trilogue.spark.pipelines.pipeline_session import open_session

if TYPE_CHECKING:
    from pyspark.pipelines.flow import AutoCdcFlow, Flow
    from pyspark.pipelines.output import Output, Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MISSING = "TABLE_OR_VIEW_NOT_FOUND"
NOT_STARTED = "Python worker failed to connect back"
"""Spark gives a Python process that plans a source 10 s to start, which no setting changes."""
ATTEMPTS = 5
"""Of a query whose processes do not start in time: a busy machine may need more."""


def run_streaming(
    definition: PipelineDefinition,
    report: Report,
    *,
    is_dry: bool = False,
    master: str | None = None,
) -> dict[str, int]:
    """Run all flows over the data that exist now; return the rows that each of them read.

    With `is_dry` only the definitions are checked, and the result is empty. Raises PipelineError.
    """
    from pyspark.errors import PySparkException

    if not is_dry:
        claim_folder(definition, Engine.STREAMING)
    with open_session(definition, master) as spark:
        try:
            _use_names(spark, definition)
            run = _Run(spark, definition, report)
            register_files(definition, _build_registry(run), spark)
            run.check()
            if not is_dry:
                for name in run.outputs:
                    run.update(name)
        except PySparkException as error:
            raise PipelineError(shorten_message(str(error))) from error
    return run.rows


def _use_names(spark: SparkSession, definition: PipelineDefinition) -> None:
    """Have short names mean tables of the pipeline's catalog and database."""
    if definition.catalog is not None:
        spark.catalog.setCurrentCatalog(definition.catalog)
    if definition.database is not None:
        spark.catalog.setCurrentDatabase(definition.database)


def _build_registry(run: _Run) -> Any:
    """Return a registry that keeps what is registered. Its base is imported only for a run."""
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry

    class FlowRegistry(GraphElementRegistry):
        def register_output(self, output: Output) -> None:
            run.add_output(output)

        def register_flow(self, flow: Flow) -> None:
            run.flows.append(flow)

        def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
            raise PipelineError(f"flow {flow.name}: Auto CDC is for the declarative engine only")

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            del sql_text
            raise PipelineError(f"{file_path}: SQL is for the declarative engine only")

    return FlowRegistry()


class _Run:
    """One run: outputs by name, their flows, and which outputs are up to date."""

    def __init__(self, spark: SparkSession, definition: PipelineDefinition, report: Report) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: list[Flow] = []
        self.rows: dict[str, int] = {}
        self._spark, self._definition, self._report = spark, definition, report
        self._updated: list[str] = []
        self._under_way: list[str] = []

    def add_output(self, output: Output) -> None:
        """Keep an output; PipelineError for what is not obeyed here."""
        if output.name in self.outputs:
            raise PipelineError(f"{output.name} is defined twice")
        refused = ("cluster_by", "schema", "table_properties")
        for name in refused:
            if getattr(output, name, None):
                raise PipelineError(f"{output.name}: {name} is for the declarative engine only")
        self.outputs[output.name] = output

    def check(self) -> None:
        """Raise PipelineError for a pipeline without flows, and a flow to nowhere."""
        if not self.flows:
            raise PipelineError(
                f"{self._definition.name} defines no table, view or sink (pyspark.pipelines); a "
                "program that starts its queries itself is run by Python"
            )
        for flow in self.flows:
            if flow.target not in self.outputs:
                raise PipelineError(f"flow {flow.name}: no output {flow.target!r} is defined")
            if flow.spark_conf:
                raise PipelineError(
                    f"flow {flow.name}: spark_conf is for the declarative engine only"
                )

    def update(self, name: str) -> None:
        """Update an output after those that it reads; at most once in a run."""
        if name in self._updated:
            return
        if name in self._under_way:
            raise PipelineError(f"{' reads '.join([*self._under_way, name])}: a circle")
        self._under_way.append(name)
        for flow in self.flows:
            if flow.target == name:
                self._update_by(flow, self.outputs[name])
        self._under_way.remove(name)
        self._updated.append(name)

    def _update_by(self, flow: Flow, output: Output) -> None:
        from pyspark.pipelines.output import MaterializedView, TemporaryView

        frame = self._build(flow)
        if isinstance(output, TemporaryView):
            frame.createOrReplaceTempView(output.name)
            return
        is_batch = isinstance(output, MaterializedView)
        if frame.isStreaming == is_batch:
            needed = "spark.read" if is_batch else "spark.readStream"
            raise PipelineError(f"flow {flow.name}: {output.name} is written from {needed}")
        self._report(datetime.now(UTC), f"Flow {flow.name} is RUNNING.")
        with _explained(flow):
            if isinstance(output, MaterializedView):
                writer = frame.write.mode("overwrite").format(output.format or "parquet")
                writer.saveAsTable(output.name, partitionBy=_partition_columns(output))
            else:
                self._stream(flow, frame, output)
        counted = f": {self.rows[flow.name]:,} rows read" if flow.name in self.rows else ""
        self._report(datetime.now(UTC), f"Flow {flow.name} has COMPLETED{counted}.")

    def _stream(self, flow: Flow, frame: DataFrame, output: Output) -> None:
        """Run one query to its end."""
        from pyspark.pipelines.output import Sink

        place = f"{self._definition.storage}/checkpoints/{output.name}/{flow.name}"
        writer = (
            frame.writeStream.queryName(flow.name)
            .option("checkpointLocation", place)
            .trigger(availableNow=True)
        )
        if isinstance(output, Sink):
            for key, value in output.options.items():
                writer = writer.option(key, value)
            writer = writer.format(output.format)

        def start() -> StreamingQuery:
            if isinstance(output, Sink):
                return writer.start()
            columns = _partition_columns(output)
            form = getattr(output, "format", None) or "parquet"
            return writer.toTable(output.name, format=form, partitionBy=columns)

        self.rows[flow.name] = run_to_end(start)

    def _build(self, flow: Flow) -> DataFrame:
        """Return the rows of a flow, when all outputs that it reads are up to date."""
        from pyspark.errors import AnalysisException

        while True:
            try:
                frame = flow.func()
            except AnalysisException as error:
                name = (error.getMessageParameters() or {}).get("relationName", "")
                output = self._find_output(name.replace("`", ""))
                if error.getCondition() != MISSING or output is None or output in self._updated:
                    raise PipelineError(_describe(flow, error)) from error
                self.update(output)
                continue
            except Exception as error:
                raise PipelineError(_describe(flow, error)) from error
            old = [name for name in self._read_outputs(frame) if name not in self._updated]
            if not old:
                return frame
            for name in old:
                self.update(name)

    def _find_output(self, name: str) -> str | None:
        short = name.rpartition(".")[2]
        return next((each for each in self.outputs if short == each.rpartition(".")[2]), None)

    def _read_outputs(self, frame: DataFrame) -> list[str]:
        """Return the outputs that a plan reads.

        Its aliases name relations: a table with catalog and database. A short name may also be one
        that the flow gives itself; views are known by that of `_build`, which updates them first.
        """
        plan = frame._jdf.queryExecution().analyzed().toString()  # noqa: SLF001
        named = re.findall(r"SubqueryAlias (\S+)", plan)
        found = {self._find_output(name) for name in named if "." in name}
        return [name for name in self.outputs if name in found]


def run_to_end(start: Callable[[], StreamingQuery]) -> int:
    """Return the rows that a query read; one that could not plan starts again at its checkpoint."""
    from pyspark.errors import StreamingQueryException

    rows = 0
    for attempt in range(ATTEMPTS):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if NOT_STARTED not in str(error) or attempt == ATTEMPTS - 1:
                raise
        rows += sum(each["numInputRows"] for each in query.recentProgress)
        if query.exception() is None:
            break
    return rows


def _partition_columns(output: Output | Table) -> list[str] | None:
    columns = getattr(output, "partition_cols", None)
    return list(columns) if columns else None


@contextmanager
def _explained(flow: Flow) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise PipelineError(f"flow {flow.name}: {shorten_message(str(error))}") from error


def _describe(flow: Flow, error: Exception) -> str:
    return f"flow {flow.name}: {describe_failure(Path(flow.func.__code__.co_filename), error)}"
