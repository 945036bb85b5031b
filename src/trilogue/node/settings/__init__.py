"""Settings of a node: the table, sources, values."""
