"""Lets `spark.read.format("trilogue")` find the source: Spark looks for packages named pyspark_*."""
