"""Pulsar producer: routing, batches, sending to one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.client.pulsar.producer.producer import Producer

__all__ = ["Producer"]

__getattr__ = lazy_exports(__name__, {"producer": ["Producer"]})
