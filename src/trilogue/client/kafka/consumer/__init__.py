"""Kafka consumer: fetcher, group membership, committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.client.kafka.consumer.consumer import Consumer

__all__ = ["Consumer"]

__getattr__ = lazy_exports(__name__, {"consumer": __all__})
