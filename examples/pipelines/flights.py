"""The demo's pipeline over flights and weather, declared: two tables, and a topic of each.

    trilogue pipeline run flights.py -c trilogue.servers=127.0.0.1:9092
    trilogue pipeline run flights.py -c trilogue.servers=127.0.0.1:9092 --streaming

The second line runs the same flows as plain structured streaming. In both a micro-batch reaches its
topic exactly once. `trilogue.spark.pipelines.flights` has the two queries.
"""

from __future__ import annotations

from pathlib import Path

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

from trilogue.spark.pipelines.flights import RESULTS, PipelineLocations, Result, select_messages

session = SparkSession.active()
servers = session.conf.get("trilogue.servers")
locations = PipelineLocations(servers, Path(), caches_tables=False)


def declare(result: Result) -> None:
    """Declare the table of a result, and its way into a topic."""
    table = result.name.replace("-", "_")
    topic = {
        "kafka.bootstrap.servers": servers,
        "topic": result.name,
        "deliveryGuarantee": "exactly-once",
    }
    pipelines.create_sink(f"{table}_topic", "trilogue", topic)

    @pipelines.table(name=table)
    def build() -> DataFrame:
        return result.build(session, locations)

    @pipelines.append_flow(target=f"{table}_topic", name=f"{table}_messages")
    def send() -> DataFrame:
        return select_messages(session.readStream.table(table), result)


for each in RESULTS:
    declare(each)
