"""Attacks by many clients at once: what they cost in memory, and what other clients notice."""
