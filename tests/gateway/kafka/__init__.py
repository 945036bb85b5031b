"""Tests of the Kafka gateway."""
