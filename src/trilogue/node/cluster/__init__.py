"""A node of a cluster on several machines, whose metadata is in PostgreSQL."""
