"""Ready-made Spark pipelines."""
