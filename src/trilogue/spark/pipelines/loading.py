"""Runs the files of a pipeline, whose decorators register tables, views, sinks and flows."""

from __future__ import annotations

import importlib.util
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trilogue.spark.pipelines.definition import PipelineDefinition, PipelineError

if TYPE_CHECKING:
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry
    from pyspark.sql import SparkSession

_FAILED_STREAM = re.compile(r"\[STREAM_FAILED\] Query \[id = [^\]]*\] terminated with exception: ")


def register_files(
    definition: PipelineDefinition, registry: GraphElementRegistry, spark: SparkSession
) -> None:
    """Register what the files define, in their order; a file has the global `spark`.

    Raises PipelineError with the line of a file that fails.
    """
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    with _working_in(definition.root), graph_element_registration_context(registry):
        for file in definition.files:
            if file.suffix == ".sql":
                registry.register_sql(file.read_text(), file.relative_to(definition.root))
            else:
                _run_file(file, spark)


def _run_file(file: Path, spark: SparkSession) -> None:
    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    module.__dict__["spark"] = spark
    try:
        found.loader.exec_module(module)
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        raise PipelineError(describe_failure(file, error)) from error


def describe_failure(file: Path, error: BaseException) -> str:
    """Return `FILE:LINE: what is wrong`, of the last line of the file that was run."""
    from pyspark.errors import PySparkException

    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file)
    ]  # fmt: skip
    place = f"{file}:{lines[-1]}" if lines else str(file)
    kind = "" if isinstance(error, PySparkException) else f"{type(error).__name__}: "
    return f"{place}: {kind}{shorten_message(str(error))}"


def shorten_message(text: str) -> str:
    """Return an error of Spark without the stack of its Java or the traceback of its Python.

    What it tells of the state of a query is left out, too; the flow that the query has is named.
    """
    for mark in ("\n\nJVM stacktrace:", "\nJVM stacktrace:", "\n\tat "):
        text = text.partition(mark)[0]
    text, _, state = text.partition("\n=== Streaming Query ===")
    flow = re.match(r"\nIdentifier: ([^\s\[]+)", state)
    text = re.sub(r"\s*SQLSTATE: \w{5}", "", text)
    text = _FAILED_STREAM.sub(f"flow {flow[1]}: " if flow else "", text)
    before, is_traced, traced = text.partition("Traceback (most recent call last):")
    if is_traced:
        last = [line for line in traced.splitlines() if line.strip() and line[0] not in " \t"]
        text = f"{before.strip()} {last[0] if last else ''}"
    return text.strip()


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
