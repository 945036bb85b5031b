"""Record batches and message sets of Kafka."""
