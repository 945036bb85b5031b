"""A query on a cluster, in a process of its own: reads a topic, copies it, and prints what it saw.

python -m tests.spark.cluster.driver JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trilogue.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Job(NamedTuple):
    """Where to run, and what to copy. `master`: spark://HOST:PORT, or sc:// of a Connect server."""

    master: str
    python: str
    archive: str
    servers: str
    source: str
    target: str
    folder: str


def connect(job: Job) -> SparkSession:
    if job.master.startswith("sc://"):
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(job.master).getOrCreate()
    settings = {
        "spark.submit.pyFiles": job.archive,
        "spark.pyspark.python": job.python,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
    }
    return trilogue.spark.session(
        cache=Path(job.folder) / "java", master=job.master, settings=settings
    )


def main(job: Job) -> None:
    """Run a batch and a stream."""
    from pyspark.sql import functions as f

    spark = connect(job)
    table = (
        spark.read.format("trilogue")
        .option("kafka.bootstrap.servers", job.servers)
        .load(job.source)
    )
    count, values = table.agg(f.count("*"), f.countDistinct("value")).first()
    rows = (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", job.servers)
        .option("startingOffsets", "earliest").load(job.source)
    )  # fmt: skip
    query = (
        rows.select("key", "value").writeStream.format("trilogue")
        .option("kafka.bootstrap.servers", job.servers).option("topic", job.target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", f"{job.folder}/checkpoint-{job.target}")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    print(json.dumps({"count": count, "values": values}))


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
