"""Topics and partitions: creation, lookup, namespaces, policies, retention, compaction."""
