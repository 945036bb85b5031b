"""Reads by other protocols than Kafka's: that of Pulsar."""
