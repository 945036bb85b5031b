"""Pulsar consumer and reader: receiving from topics, acknowledging, patterns of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.client.pulsar.consumer.consumer import Consumer
    from trilogue.client.pulsar.consumer.reader import Reader

__all__ = ["Consumer", "Reader"]

__getattr__ = lazy_exports(__name__, {"consumer": ["Consumer"], "reader": ["Reader"]})
