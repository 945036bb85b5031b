"""A driver in a process of its own, for tests that kill it: copies a topic exactly once.

python -m tests.spark.driver SERVERS SOURCE TARGET FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from trilogue.spark.local_session import session


def main(servers: str, source: str, target: str, folder: Path) -> None:
    """Copy what is there in small micro-batches, and end."""
    spark = session("driver", cache=folder / "java")
    rows = (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load(source)
    )  # fmt: skip
    (
        rows.select("key", "value").writeStream.format("trilogue")
        .option("kafka.bootstrap.servers", servers).option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start().awaitTermination()
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
