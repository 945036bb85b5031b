"""A driver in a process of its own, for tests that kill it: copies a topic exactly once.

python -m tests.spark.driver SERVERS SOURCE TARGET FOLDER [DEAD_LETTER_TOPIC]

With a topic for dead letters messages are JSON, and their numbers are written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.quick import QUICK_SETTINGS
from trilogue.spark.local_session import session


def main(servers: str, source: str, target: str, folder: str, dead_letters: str = "") -> None:
    """Copy what is there in small micro-batches, and end."""
    from pyspark.sql import functions as f

    payload = {"payload": "json", "payloadSchema": "n BIGINT", "deadLetterTopic": dead_letters}
    spark = session("driver", cache=Path(folder) / "java", settings=QUICK_SETTINGS)
    rows = (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", servers)
        .options(**payload if dead_letters else {})
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load(source)
    )  # fmt: skip
    value = f.format_string("v%d", "value.n") if dead_letters else f.col("value")
    (
        rows.select("key", value.alias("value")).writeStream.format("trilogue")
        .option("kafka.bootstrap.servers", servers).option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True).start().awaitTermination()
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
