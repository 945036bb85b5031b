"""A driver in a process of its own, for tests that kill it: appends a topic to a table.

python -m tests.spark.tables.driver KIND SERVERS TOPIC FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from tests.spark.quick import QUICK_SETTINGS
from tests.spark.tables.place import Place
from trilogue.spark.local_session import session
from trilogue.spark.tables.table_sink import TableSink
from trilogue.spark.tables.topic_table import FileTable


def main(kind: str, servers: str, topic: str, folder: Path) -> None:
    """Append what is there in small micro-batches, and end."""
    spark = session("driver", cache=folder / "java", settings=QUICK_SETTINGS)
    rows = (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load(topic)
    )  # fmt: skip
    (
        rows.writeStream.foreachBatch(TableSink(cast("FileTable", Place(kind, folder).open())))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start().awaitTermination()
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
