"""Trilogue: one durable broker for Kafka, Pulsar and TubeMQ clients over one log, readable by Spark."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
