"""Background work of a node: flush, merge, compaction, retention, expiry."""
