"""Topics whose messages are not stored: Pulsar's non-persistent topics."""
