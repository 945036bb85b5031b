"""Jobs of the helper process: flush, merge, compaction."""
