"""Asks Trilogue and real Kafkas the same and shows where the answers differ (`python -m`)."""
