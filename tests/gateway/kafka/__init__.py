"""Tests of the Kafka door."""
