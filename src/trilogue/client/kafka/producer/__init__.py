"""Kafka producer: accumulator, sender, partitioner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.client.kafka.producer.producer import Producer

__all__ = ["Producer"]

__getattr__ = lazy_exports(__name__, {"producer": __all__})
