"""Consumer groups of Kafka: registry, administration, expiry of offsets."""
