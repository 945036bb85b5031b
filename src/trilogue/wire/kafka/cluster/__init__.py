"""Requests about the cluster."""
