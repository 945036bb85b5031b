"""Transactions of Pulsar clients: requests to coordinators, messages and acks inside them."""
