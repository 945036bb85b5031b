"""Requests about consumer groups and committed offsets."""
