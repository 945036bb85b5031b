"""Requests about transactions and producer ids."""
