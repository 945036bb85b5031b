"""Subscriptions of Pulsar: exclusive, failover, shared and key-shared dispatch."""
