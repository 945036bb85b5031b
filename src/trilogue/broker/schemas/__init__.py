"""Schemas of topics and their compatibility."""
