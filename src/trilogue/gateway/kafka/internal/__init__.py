"""The internal listener: requests between brokers, for cluster principals only."""
