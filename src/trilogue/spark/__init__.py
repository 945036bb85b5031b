"""DataFrames: a Spark data source in pure Python and Arrow.

import trilogue.spark

spark = trilogue.spark.session()
orders = spark.read.format("trilogue").option("kafka.bootstrap.servers", "h:9092").load("orders")
"""

from __future__ import annotations

from trilogue.spark.local_session import session, stop
from trilogue.spark.topic_schema import find_topic_schema

__all__ = ["find_topic_schema", "session", "stop"]
