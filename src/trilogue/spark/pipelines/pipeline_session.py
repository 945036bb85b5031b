"""The sessions that pipelines run in: one of this process, or one at a Spark Connect server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trilogue.spark.local_session import session, stop
from trilogue.spark.pipelines.definition import PipelineDefinition
from trilogue.spark.session_log import log_settings, stderr_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODE, TOKEN = "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Variables by which PySpark's functions know the kind of session, and log in to its server."""
SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


@contextmanager
def open_session(
    definition: PipelineDefinition, master: str | None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start a session whose tables last: their catalog is a file of Derby in the folder."""
    folder = definition.folder
    folder.mkdir(parents=True, exist_ok=True)
    defaults = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder / 'catalog'};create=true"
        ),
        "spark.sql.warehouse.dir": str(folder / "tables"),
        "spark.sql.pipelines.execution.maxConcurrentFlows": "1",  # a planner has 10 s to start
    }
    logged = log_settings(folder)
    logged["spark.driver.extraJavaOptions"] += f" -Dderby.stream.error.file={folder / 'derby.log'}"
    with stderr_to(folder / "spark.err"):
        spark = session(
            definition.name,
            cache=folder,
            master=master,
            settings={**logged, **defaults, **(settings or {}), **definition.configuration},
        )
    try:
        yield spark
    finally:
        with stderr_to(folder / "spark.err"):
            stop(spark)


@contextmanager
def open_connect_session(
    definition: PipelineDefinition, master: str | None, remote: str | None
) -> Iterator[SparkSession]:
    """Connect to the server at `remote`, or to one that this process starts for itself."""
    if remote is not None:
        with _connected(remote, definition.configuration) as spark:
            yield spark
        return
    before = os.environ.get(TOKEN)
    os.environ[TOKEN] = str(uuid.uuid4())
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    try:
        with (
            open_session(definition, master, settings),
            _connected(f"sc://localhost:{_find_port()}", definition.configuration) as spark,
        ):
            yield spark
    finally:
        if before is None:
            del os.environ[TOKEN]
        else:
            os.environ[TOKEN] = before


def _find_port() -> int:
    from pyspark import SparkContext

    return int(getattr(getattr(SparkContext._jvm, SERVICE), "MODULE$").localPort())  # noqa: SLF001


@contextmanager
def _connected(address: str, configuration: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a session of Spark Connect. A token goes in clear to the name localhost only."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    os.environ[CONNECT_MODE] = "1"
    try:
        builder = ConnectSession.builder.remote(address)
        for key, value in configuration.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        del os.environ[CONNECT_MODE]
