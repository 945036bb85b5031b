"""Latency of requests, as a histogram and under the names of a Kafka's and a Pulsar's series.

    trilogue_request_seconds{door, api}            of all protocols and of HTTP
    kafka_network_requestmetrics_totaltimems       as the JMX exporter makes it of TotalTimeMs:
                                                   quantiles of the last minutes, in ms
    pulsar_broker_publish_latency                  as a Pulsar broker has it, in ms
    pulsar_storage_write_latency_le_…              sends per second in each range of latency

Names of requests are those that clients have sent, of tables that the code has: they are bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from trilogue.gateway.http.metrics import Histogram, HistogramSample, Metric, Summary, SummarySample
from trilogue.gateway.kafka import apis
from trilogue.gateway.telemetry.request_latency import LatencyHistogram
from trilogue.gateway.transport_writer import SENDS
from trilogue.gateway.tubemq.connection import SEND
from trilogue.node.metrics.topic_rates import CounterRates

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.gateway import TubeGateway
    from trilogue.node.metrics.measured_node import MeasuredNode

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
RANGES_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1_000)
"""Upper bounds of Pulsar's ranges; each is one of `BOUNDS_S`."""
MS: Final = 1_000


class RequestMetrics:
    """Makes the series of one node."""

    def __init__(
        self, node: MeasuredNode, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._node = node
        self._monotonic = monotonic
        self._rates = CounterRates()

    def gather(self) -> Iterator[Histogram | Summary | Metric]:
        """Yield all series with their current values."""
        self._rates.begin(self._monotonic())
        measured = sorted(self._list(), key=lambda each: each[:2])
        if not measured:
            return
        yield Histogram(
            "trilogue_request_seconds",
            "From a request to its reply, with the waits that its client requested.",
            [
                HistogramSample({"door": door, "api": api}, found.cumulative(), found.total)
                for door, api, found in measured
            ],
        )
        kafka = [({"request": api}, found) for door, api, found in measured if door == "kafka"]
        if kafka:
            yield self._summarize(
                "kafka_network_requestmetrics_totaltimems",
                "The same of Kafka's requests, in ms; quantiles over a minute or two.",
                kafka,
            )
        for door, api, found in measured:
            if (door, api) == ("pulsar", "SEND"):
                yield from self._gather_pulsar(found)

    def _list(self) -> Iterator[tuple[str, str, LatencyHistogram]]:
        """Iterate over listeners, requests and their histograms."""
        gateways = self._node.gateways
        if gateways.kafka is not None:
            names: dict[Hashable, str] = {row.key: row.name for row in apis.TABLE}
            for key, found in list(gateways.kafka.latencies.histograms.items()):
                if key in names:  # not those between brokers
                    yield "kafka", names[key], found
        if gateways.pulsar is not None and SENDS in gateways.pulsar.latencies.histograms:
            yield "pulsar", "SEND", gateways.pulsar.latencies.histograms[SENDS]
        if gateways.tubemq is not None:
            yield from _list_tubemq(gateways.tubemq)
        if gateways.http is not None:
            for area, found in list(gateways.http.latencies.histograms.items()):
                yield "http", str(area), found

    def _gather_pulsar(self, found: LatencyHistogram) -> Iterator[Summary | Metric]:
        labels = {"cluster": self._node.settings.text("pulsar.cluster")}
        yield self._summarize(
            "pulsar_broker_publish_latency",
            "From a message of a Pulsar client to its receipt, in ms.",
            [(labels, found)],
        )
        rates = self._recent("pulsar ranges", found)
        bounds_ms = [bound * MS for bound in found.bounds]
        low = 0.0
        for high in (*RANGES_MS, float("inf")):
            inside = sum(
                rate
                for bound, rate in zip((*bounds_ms, float("inf")), rates, strict=True)
                if low < bound <= high
            )
            ends = "overflow" if high > RANGES_MS[-1] else f"{high:g}".replace(".", "_")
            yield Metric(
                f"pulsar_storage_write_latency_le_{ends}",
                "gauge",
                "Messages per second of this latency (ms) and above the range before.",
                [(labels, inside)],
            )
            low = high

    def _summarize(
        self,
        name: str,
        doc: str,
        measured: Sequence[tuple[dict[str, str], LatencyHistogram]],
    ) -> Summary:
        samples: list[SummarySample] = []
        for labels, found in measured:
            key = name, *labels.values()
            recent = self._recent(key, found)
            if not any(recent):  # the first scrape, or nothing lately
                recent = [float(count) for count in found.counts]
            samples.append(
                SummarySample(
                    labels,
                    {str(share): MS * find_quantile(found.bounds, recent, share)
                     for share in QUANTILES},
                    sum(found.counts),
                    found.total * MS,
                )
            )  # fmt: skip
        return Summary(name, doc, samples)

    def _recent(self, key: Hashable, found: LatencyHistogram) -> list[float]:
        """Return the rates at which the counts of a histogram grew."""
        return [self._rates.add((key, number), count) for number, count in enumerate(found.counts)]


def _list_tubemq(gateway: TubeGateway) -> Iterator[tuple[str, str, LatencyHistogram]]:
    broker = gateway.broker_endpoint
    if SENDS in gateway.latencies.histograms:
        yield broker.name, broker.specs[SEND].method.name, gateway.latencies.histograms[SENDS]
    for side in (gateway.master_endpoint, broker):
        names: dict[Hashable, str] = {each: spec.method.name for each, spec in side.specs.items()}
        for number, found in list(side.latencies.histograms.items()):
            yield side.name, names[number], found


def find_quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float:
    """Return the value that a share of the counted values does not exceed, by interpolation.

    As Prometheus' histogram_quantile(): values above the last bound count as the last bound.
    """
    rank = share * sum(counts)
    before = low = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and before + count >= rank:
            return low + (bound - low) * (rank - before) / count
        before += count
        low = bound
    return bounds[-1] if rank else 0.0
