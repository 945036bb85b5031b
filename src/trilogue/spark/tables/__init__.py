"""Topics copied to tables in files: Delta, Iceberg and Parquet, exactly once."""
