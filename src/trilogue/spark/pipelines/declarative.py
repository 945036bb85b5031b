"""Runs a pipeline by Spark Declarative Pipelines, which order, check and run its flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trilogue.spark.pipelines.definition import (
    Engine,
    PipelineDefinition,
    PipelineError,
    claim_folder,
)
from trilogue.spark.pipelines.loading import register_files, shorten_message
from trilogue.spark.pipelines.pipeline_session import open_connect_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = Callable[[datetime, str], None]
"""Takes the time of an event and what happened."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a run updates: everything, unless it names tables; `full_…`: from the beginning."""

    tables: Sequence[str] = ()
    full_tables: Sequence[str] = ()
    is_full: bool = False


def run_declarative(
    definition: PipelineDefinition,
    report: Report,
    *,
    refresh: Refresh | None = None,
    is_dry: bool = False,
    master: str | None = None,
    remote: str | None = None,
) -> None:
    """Run all flows over the data that exist now, or with `is_dry` only check them.

    Raises PipelineError where a file, the graph or a flow fails.
    """
    from pyspark.errors import PySparkException
    from pyspark.pipelines.block_session_mutations import block_session_mutations
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    if remote is None and not is_dry:
        claim_folder(definition, Engine.DECLARATIVE)
    with open_connect_session(definition, master, remote) as spark:
        try:
            graph = create_dataflow_graph(
                spark, definition.catalog, definition.database, definition.configuration
            )
            with block_session_mutations():
                register_files(definition, SparkConnectGraphElementRegistry(spark, graph), spark)
            request = _build_start(graph, definition, refresh or Refresh(), is_dry=is_dry)
            for event in _events(spark, request):
                report(
                    event.timestamp.ToDatetime().replace(tzinfo=UTC), shorten_message(event.message)
                )
        except PySparkException as error:
            raise PipelineError(shorten_message(str(error))) from error


def _build_start(
    graph: str, definition: PipelineDefinition, refresh: Refresh, *, is_dry: bool
) -> Any:
    import pyspark.sql.connect.proto as messages

    command = messages.Command()
    command.pipeline_command.start_run.CopyFrom(
        messages.PipelineCommand.StartRun(
            dataflow_graph_id=graph,
            full_refresh_selection=list(refresh.full_tables),
            full_refresh_all=refresh.is_full,
            refresh_selection=list(refresh.tables),
            dry=is_dry,
            storage=definition.storage,
        )
    )
    return command


def _events(spark: SparkSession, command: Any) -> Iterator[Any]:
    """Yield the events of a run.

    PySpark's own `execute_command_as_iterator` fails at the metrics that Python workers send, so
    a run of a source in Python would end with UNKNOWN_RESPONSE after its last flow.
    """
    client: Any = spark.client
    request = client._execute_plan_request_with_metadata()  # noqa: SLF001
    request.plan.command.CopyFrom(command)
    for response in client._execute_and_fetch_as_iterator(request, observations={}):  # noqa: SLF001
        if isinstance(response, dict) and "pipeline_event_result" in response:
            yield response["pipeline_event_result"].event
