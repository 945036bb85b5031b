"""Positions of readers: committed offsets, acknowledged ranges."""
