"""DataFrames: a Spark data source in pure Python and Arrow."""
