"""Consumer groups of KIP-848: ConsumerGroupHeartbeat, the broker assigns partitions."""
