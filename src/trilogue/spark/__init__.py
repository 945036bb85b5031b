"""DataFrames: a Spark data source in pure Python and Arrow.

import trilogue.spark

spark = trilogue.spark.session()
orders = spark.read.format("trilogue").option("kafka.bootstrap.servers", "h:9092").load("orders")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.spark.local_session import session, stop
    from trilogue.spark.run_report import RunReport
    from trilogue.spark.topic_schema import find_topic_schema

__all__ = ["RunReport", "find_topic_schema", "session", "stop"]

__getattr__ = lazy_exports(
    __name__,
    {
        "local_session": ("session", "stop"),
        "run_report": ("RunReport",),
        "topic_schema": ("find_topic_schema",),
    },
)
