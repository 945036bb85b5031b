"""Metrics of all rooms, and the page that Prometheus reads.

Nothing here runs while messages flow: rooms keep plain integers, and at a scrape the node reads
them and builds a list of `Metric`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

Labels = Mapping[str, str]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | SummaryMetricFamily


class Metric(msgspec.Struct, frozen=True):
    """One metric at one moment; all samples have the same label names. Counters end in _total."""

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    samples: Sequence[tuple[Labels, float]]


class HistogramSample(msgspec.Struct, frozen=True):
    """A histogram at one moment: counts at or below each bound, the last one being +Inf."""

    labels: Labels
    buckets: Sequence[tuple[str, float]]
    total: float


class Histogram(msgspec.Struct, frozen=True):
    """Histograms of one name; all samples have the same label names."""

    name: str
    doc: str
    samples: Sequence[HistogramSample]


class SummarySample(msgspec.Struct, frozen=True):
    """The quantiles of measured values, their number and sum."""

    labels: Labels
    quantiles: Mapping[str, float]
    count: float
    total: float


class Summary(msgspec.Struct, frozen=True):
    """Summaries of one name; all samples have the same label names."""

    name: str
    doc: str
    samples: Sequence[SummarySample]


AnyMetric = Metric | Histogram | Summary
Gather = Callable[[], Iterable[AnyMetric]]


class Exposition:
    """Builds the page of a scrape; also the process's own CPU, memory and descriptors."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._process = ProcessCollector(registry=None)

    async def page(self) -> bytes:
        """Read all metrics on the loop, and return the page that a thread makes of them."""
        return await asyncio.to_thread(encode_metrics, list(self._gather()), self._process)


def encode_metrics(metrics: Sequence[AnyMetric], *more: Collector) -> bytes:
    """Return the part of a page with these metrics and those of `more`; for a thread."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (_Gathered(metrics), *more):
        registry.register(collector)
    return generate_latest(registry)


class _Gathered(Collector):
    def __init__(self, metrics: Sequence[AnyMetric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterator[Family]:
        """Return nothing: no metric is known before the first scrape."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        """Convert metrics to the library's classes."""
        for metric in self._metrics:
            yield _family(metric)


def _family(metric: AnyMetric) -> Family:
    if isinstance(metric, Histogram):
        histogram = HistogramMetricFamily(
            metric.name, metric.doc, labels=list(metric.samples[0].labels)
        )
        for each in metric.samples:
            histogram.add_metric(list(each.labels.values()), each.buckets, each.total)
        return histogram
    if isinstance(metric, Summary):
        return _summary(metric)
    names = list(metric.samples[0][0]) if metric.samples else []
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.doc, labels=names)
    for labels, value in metric.samples:
        family.add_metric([labels[name] for name in names], value)
    return family


def _summary(metric: Summary) -> SummaryMetricFamily:
    """Return a summary with its quantiles, which the library's `add_metric` does not write."""
    family = SummaryMetricFamily(metric.name, metric.doc, labels=list(metric.samples[0].labels))
    for each in metric.samples:
        for share, value in each.quantiles.items():
            family.add_sample(metric.name, {**each.labels, "quantile": share}, value)
        family.add_metric(list(each.labels.values()), int(each.count), each.total)
    return family
