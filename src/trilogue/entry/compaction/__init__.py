"""Compaction of one stored entry: removed records leave holes."""
