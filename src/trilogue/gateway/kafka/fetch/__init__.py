"""Fetch and fetch sessions."""
