"""The Kafka door."""
