"""A small asyncio Kafka client."""
