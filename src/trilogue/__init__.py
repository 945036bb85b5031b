"""Trilogue: one durable broker over one log, whose topics are tables for Spark.

Kafka clients use it today; Pulsar and TubeMQ clients, for which ids, offsets and names are made
ready on every floor, come next.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
