"""A query whose slow tasks Spark runs twice at once, in a process of its own.

python -m tests.spark.cluster.speculative_driver KIND JSON, where KIND is topic or table.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tests.spark.cluster.driver import Job
from tests.spark.cluster.slow_tasks import SlowSource, linger
from tests.spark.quick import QUICK_SETTINGS
from tests.spark.tables.place import Place
from trilogue.spark.local_session import session
from trilogue.spark.tables.table_sink import TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trilogue.spark.tables.topic_table import FileTable

PER_BATCH = 40
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.task.maxFailures": "1",
}
"""A task that fails ends the query: a second attempt is one of speculation, never a retry."""


def main(kind: str, job: Job) -> None:
    """Copy what is there in three micro-batches, and end."""
    sources = str(Path(__file__).parents[3])
    settings = {"spark.pyspark.python": job.python, "spark.executorEnv.PYTHONPATH": sources}
    spark = session(
        "speculative", cache=Path(job.folder) / "java", master=job.master,
        settings={**QUICK_SETTINGS, **SETTINGS, **settings},
    )  # fmt: skip
    rows = (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", job.servers)
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_BATCH)
        .load(job.source)
    )  # fmt: skip
    folder = Path(job.folder) / kind
    if kind == "topic":
        spark.dataSource.register(SlowSource)
        writer = (
            rows.select("key", "value").writeStream.format("slow").option("folder", str(folder))
            .option("kafka.bootstrap.servers", job.servers).option("topic", job.target)
            .option("deliveryGuarantee", "exactly-once")
        )  # fmt: skip
    else:
        sink = TableSink(cast("FileTable", Place(kind, folder).open()))

        def append(batch: DataFrame, number: int) -> None:
            sink(batch.mapInArrow(partial(linger, folder=folder), batch.schema), number)

        writer = rows.select("key", "value").writeStream.foreachBatch(append)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Job(**json.loads(sys.argv[2])))
