"""Sends the same requests to Trilogue and real Kafkas and lists the differences (`python -m`)."""
