"""The Kafka gateway."""
