"""Compaction of one stored entry."""
