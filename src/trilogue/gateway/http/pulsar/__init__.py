"""Pulsar's admin REST API."""
