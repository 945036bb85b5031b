"""Reads by other protocols than Kafka's: those of Pulsar and TubeMQ."""
