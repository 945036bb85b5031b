"""Metrics of all rooms, and the page that Prometheus reads.

Nothing here runs while messages flow: rooms keep plain integers, and at a scrape the node reads
them and builds a list of `Metric`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

Labels = Mapping[str, str]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Metric(msgspec.Struct, frozen=True):
    """One metric at one moment; all samples have the same label names. Counters end in _total."""

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    samples: Sequence[tuple[Labels, float]]


class Histogram(msgspec.Struct, frozen=True):
    """A histogram at one moment: counts at or below each bound, the last one being +Inf."""

    name: str
    doc: str
    buckets: Sequence[tuple[str, float]]
    total: float


Gather = Callable[[], Iterable[Metric | Histogram]]


class Exposition:
    """Builds the page of a scrape; also the process's own CPU, memory and descriptors."""

    def __init__(self, gather: Gather) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Gathered(gather))
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """Read all metrics and return the page."""
        return generate_latest(self._registry)


def encode_metrics(metrics: Sequence[Metric | Histogram]) -> bytes:
    """Return the part of a page with these metrics; for a thread where there are many."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gathered(lambda: metrics))
    return generate_latest(registry)


class _Gathered(Collector):
    def __init__(self, gather: Gather) -> None:
        self._gather = gather

    def describe(self) -> Iterator[Family]:
        """Return nothing: no metric is known before the first scrape."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        """Convert metrics to the library's classes."""
        for metric in self._gather():
            yield _family(metric)


def _family(metric: Metric | Histogram) -> Family:
    if isinstance(metric, Histogram):
        histogram = HistogramMetricFamily(metric.name, metric.doc)
        histogram.add_metric([], metric.buckets, metric.total)
        return histogram
    names = list(metric.samples[0][0]) if metric.samples else []
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.doc, labels=names)
    for labels, value in metric.samples:
        family.add_metric([labels[name] for name in names], value)
    return family
