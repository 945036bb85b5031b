"""Trilogue: one durable broker over one log, whose topics are tables for Spark.

Unmodified Kafka, Pulsar and TubeMQ clients use it at the same time. ARCHITECTURE.md shows the
layers and the way of a request through them.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
