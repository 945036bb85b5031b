"""Kafka's messages, declared once with all versions and compiled per version."""
