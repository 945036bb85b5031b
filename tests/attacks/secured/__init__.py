"""Attacks on nodes that are secured."""
