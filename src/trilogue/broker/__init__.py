"""What is true: topics, partitions, producers, cursors, groups. Synchronous and deterministic."""
