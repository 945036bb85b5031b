"""Producers: idempotence, deduplication, access modes."""
