"""Segments in object storage."""
