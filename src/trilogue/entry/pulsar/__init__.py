"""Entries of Pulsar's producers."""
