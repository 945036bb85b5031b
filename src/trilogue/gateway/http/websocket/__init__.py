"""Pulsar's WebSocket API: producers, consumers and readers whose messages are JSON."""
