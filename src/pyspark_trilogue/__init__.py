"""Lets `spark.read.format("trilogue")` find the source: Spark looks for pyspark_* packages."""

from trilogue.spark.source import DefaultSource

__all__ = ["DefaultSource"]
