"""Streams groups (KIP-1071): topologies, internal topics, tasks and their assignment."""
