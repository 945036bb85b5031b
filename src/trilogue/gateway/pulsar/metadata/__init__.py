"""Lookup of topics, their partitions, lists and patterns of names."""
