"""The metrics of /metrics: a request reads each number from the object that counts it.

Hot paths count in plain integers; here these get names, units and a help text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from trilogue import __version__
from trilogue.broker.quotas.quotas import CLIENT_QUOTAS
from trilogue.gateway.http.metrics import (
    AnyMetric,
    Histogram,
    HistogramSample,
    Labels,
    Metric,
)
from trilogue.gateway.kafka import apis
from trilogue.gateway.kafka.fetch.sessions import SESSION_ERRORS
from trilogue.node.background.maintenance import Counts
from trilogue.node.metrics.request_metrics import RequestMetrics
from trilogue.wire.pulsar.commands import BY_TYPE

if TYPE_CHECKING:
    from trilogue.gateway.kafka.connection import KafkaGateway
    from trilogue.gateway.pulsar.gateway import PulsarGateway
    from trilogue.gateway.tubemq.gateway import TubeGateway
    from trilogue.node.metrics.measured_node import MeasuredNode

PREFIX = "trilogue_"


def counter(name: str, doc: str, value: float) -> Metric:
    """Return a counter without labels."""
    return _one(name + "_total", "counter", doc, value)


def gauge(name: str, doc: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return _one(name, "gauge", doc, value)


class NodeMetrics:
    """Yields the metrics of one node."""

    def __init__(self, node: MeasuredNode) -> None:
        self._node = node
        self._requests = RequestMetrics(node)

    def gather(self) -> Iterator[AnyMetric]:
        """Yield all metrics with their current values."""
        node = self._node
        yield Metric(
            f"{PREFIX}info", "gauge", "Version; always 1.", [({"version": __version__}, 1)]
        )
        yield gauge("up", "Whether this node serves.", float(node.state == "serving"))
        yield from self._listeners()
        yield from self._requests.gather()
        yield from self._memory()
        yield from self._conversions()
        yield from self._broker()
        yield from self._journal()
        yield from self._flushes()
        yield from self._segments()
        yield from self._maintenance()
        yield from self._objects()
        yield from self._shared_journal()
        yield Metric(
            f"{PREFIX}loop_lag_seconds",
            "gauge",
            "How late the event loop was in the last ten minutes.",
            [({"quantile": str(share)}, node.lag.quantile_s(share)) for share in (0.5, 0.99, 1.0)],
        )

    def _listeners(self) -> Iterator[Metric]:
        gateways = self._node.gateways
        open_now: list[tuple[Labels, float]] = []
        refused: list[tuple[Labels, float]] = []
        for name, listener in gateways.listeners.items():
            open_now.append(({"door": name}, listener.connections))
            refused.append(({"door": name}, listener.refused))
        if gateways.http is not None:
            open_now.append(({"door": "http"}, gateways.http.connections))
        yield Metric(f"{PREFIX}connections", "gauge", "Open connections.", open_now)
        yield Metric(
            f"{PREFIX}connections_refused_total", "counter", "Connections over a limit.", refused
        )
        requests: list[tuple[Labels, float]] = []
        if gateways.kafka is not None:
            names = {row.key: row.name for row in apis.TABLE}
            requests += [
                ({"door": "kafka", "api": names[key]}, count)
                for key, count in sorted(gateways.kafka.requests.items())
            ]
        if gateways.pulsar is not None:
            requests += [
                ({"door": "pulsar", "api": BY_TYPE[kind].name}, count)
                for kind, count in sorted(gateways.pulsar.commands.items())
            ]
        if gateways.tubemq is not None:
            requests += [
                ({"door": side.name, "api": side.specs[number].method.name}, count)
                for side in (
                    gateways.tubemq.master_endpoint,
                    gateways.tubemq.broker_endpoint,
                )
                for number, count in sorted(side.requests.items())
            ]
        yield Metric(f"{PREFIX}requests_total", "counter", "Requests taken.", requests)
        if gateways.kafka is not None:
            yield from self._kafka(gateways.kafka)
        if gateways.pulsar is not None:
            yield from self._pulsar(gateways.pulsar)
        if gateways.tubemq is not None:
            yield from self._tubemq(gateways.tubemq)

    def _memory(self) -> Iterator[Metric]:
        memory = self._node.memory
        for name, what, budget in (
            ("unsent", "messages that clients have not read", memory.unsent),
            ("received", "requests received in part", memory.received),
            ("unauthenticated", "requests received before a login", memory.unauthenticated),
        ):
            yield gauge(f"memory_{name}_bytes", f"Memory of {what}.", budget.size_bytes)
            yield gauge(f"memory_{name}_waiting", "How many wait for it.", budget.waiting)
            yield Metric(
                f"{PREFIX}memory_{name}_evictions_total",
                "counter",
                "Connections closed because others needed it.",
                [({}, budget.evictions)],
            )

    def _kafka(self, gateway: KafkaGateway) -> Iterator[Metric]:
        sessions = gateway.fetch_sessions
        for name, doc, values in (
            (
                "kafka_fetches",
                "Fetches: of a session (incremental), that want to open one (full), without.",
                ("incremental", "full", "sessionless"),
            ),
            (
                "kafka_fetch_session_events",
                "Fetch sessions that were opened, closed, evicted.",
                ("opened", "closed", "evicted"),
            ),
            (
                "kafka_fetches_refused",
                "Fetches whose client has to start its session over.",
                [code.name for code in SESSION_ERRORS],
            ),
        ):
            samples = [({"kind": value.lower()}, sessions.counts[value]) for value in values]
            yield Metric(f"{PREFIX}{name}_total", "counter", doc, samples)
        quotas = gateway.quotas
        for name, doc, counted in (
            (
                "quota_waits",
                "Times that a client of any protocol had to wait for its quota.",
                quotas.waits,
            ),
            ("quota_wait_seconds", "How long clients had to wait for it.", quotas.waited_s),
        ):
            quota_samples = [({"kind": bound.value}, counted[bound]) for bound in CLIENT_QUOTAS]
            yield Metric(f"{PREFIX}kafka_{name}_total", "counter", doc, quota_samples)
        yield gauge("kafka_fetch_sessions", "Fetch sessions that are open.", len(sessions))
        yield gauge(
            "kafka_fetch_session_partitions",
            "Partitions that fetch sessions remember.",
            sessions.partitions,
        )
        yield gauge("kafka_fetch_session_bytes", "About what they take.", sessions.size_bytes)

    def _tubemq(self, gateway: TubeGateway) -> Iterator[Metric]:
        for name, doc, value in (
            ("messages_in", "Messages that TubeMQ clients sent.", gateway.messages_in),
            ("bytes_in", "Their size.", gateway.bytes_in),
            ("messages_out", "Messages sent to TubeMQ clients.", gateway.messages_out),
            ("bytes_out", "Their size.", gateway.bytes_out),
            ("requests_late", "Requests dropped: older than their own timeout.", gateway.dropped),
            (
                "sends_overflown",
                "Messages refused: no room until their timeout.",
                gateway.overflows,
            ),
            ("empty_frames", "Frames without anything in them, ignored.", gateway.empty_frames),
            ("producers_expired", "Producers that were silent.", gateway.producers.expired),
            ("gets_limited", "Gets refused: faster than the rules allow.", gateway.throttled_gets),
            (
                "gets_nudged",
                "Gets answered without a message, for something was in another partition.",
                gateway.held_gets.nudged,
            ),
        ):
            yield counter(f"tubemq_{name}", doc, value)
        yield gauge(
            "tubemq_readers",
            "Partitions that TubeMQ consumers have registered.",
            len(gateway.broker.registrations),
        )
        yield gauge(
            "tubemq_producers", "Producers that the master knows.", len(gateway.producers.sessions)
        )

    def _pulsar(self, gateway: PulsarGateway) -> Iterator[Metric]:
        connections = gateway.connections
        for name, doc, value in (
            ("messages_in", "Messages that Pulsar clients sent.", gateway.messages_in),
            ("bytes_in", "Their size.", gateway.bytes_in),
            ("messages_out", "Messages sent to Pulsar clients.", gateway.messages_out),
            ("bytes_out", "Their size.", gateway.bytes_out),
            (
                "messages_dropped",
                "Messages of non-persistent topics for which a subscription had no ready consumer.",
                gateway.messages_dropped,
            ),
            ("bytes_dropped", "Their size.", gateway.bytes_dropped),
        ):
            yield counter(f"pulsar_{name}", doc, value)
        yield gauge(
            "pulsar_producers", "Producers of Pulsar clients.",
            sum(len(each.all_producers()) for each in connections),
        )  # fmt: skip
        yield gauge(
            "pulsar_consumers", "Consumers of Pulsar clients.",
            sum(len(each.all_consumers()) for each in connections),
        )  # fmt: skip
        yield gauge(
            "pulsar_non_persistent_topics",
            "Non-persistent topics and partitions in use.",
            len(list(gateway.broker.non_persistent)),
        )

    def _conversions(self) -> Iterator[Metric]:
        converter = self._node.conversions
        converted: list[tuple[Labels, float]] = [
            ({"reader": reader}, count) for reader, count in sorted(converter.converted.items())
        ]
        skipped: list[tuple[Labels, float]] = [
            ({"reader": reader, "reason": reason}, count)
            for (reader, reason), count in sorted(converter.skipped.items())
        ]
        yield Metric(
            f"{PREFIX}conversions_total",
            "counter",
            "Entries converted for readers of another protocol.",
            converted,
        )
        yield Metric(
            f"{PREFIX}messages_not_converted_total",
            "counter",
            "Messages that a reader of another protocol passed without getting them.",
            skipped,
        )
        yield counter("conversion_cache_hits", "Conversions that were kept.", converter.hits)
        yield gauge("conversion_cache_bytes", "Bytes of conversions kept.", converter.cached_bytes)

    def _broker(self) -> Iterator[Metric]:
        broker = self._node.storage.broker
        yield gauge("topics", "Topics.", len(broker.cluster))
        yield gauge("partitions", "Partitions.", broker.cluster.partition_count)
        yield gauge("groups", "Consumer groups, empty ones included.", len(broker.groups))
        yield counter("messages", "Messages appended since the start.", self._node.messages.read())

    def _journal(self) -> Iterator[Metric | Histogram]:
        storage = self._node.storage
        engine, counts = storage.log, storage.log.journal.counts
        yield counter(
            "journal_commits",
            "Windows made durable, by one write each.",
            counts.commits,
        )
        seconds = storage.commit_seconds
        yield Histogram(
            f"{PREFIX}journal_commit_seconds",
            "How long a commit took.",
            [HistogramSample({}, seconds.cumulative(), seconds.total)],
        )
        yield counter("journal_entries", "Entries in them.", counts.entries)
        yield counter("journal_facts", "Fact records in them.", counts.facts)
        yield counter(
            "journal_written_bytes", "Bytes written, headers and padding included.",
            counts.bytes_written,
        )  # fmt: skip
        yield counter("journal_files_sealed", "Files closed for a flush.", counts.files_sealed)
        yield counter(
            "journal_spares_late", "Files that had to be used unprepared.", counts.spares_late
        )
        free = storage.fs.free_bytes(storage.directory.path)
        yield gauge("disk_free_bytes", "Free bytes of the data directory's file system.", free)
        yield gauge("tail_bytes", "Memory that holds what is in no segment.", engine.tail_bytes)
        yield gauge("tail_limit_bytes", "The most it may be.", engine.tail_limit)
        yield gauge("tail_entries", "Entries in no segment.", engine.tail_entries)
        yield gauge(
            "under_pressure", "Whether producers are made to wait.", float(engine.under_pressure)
        )

    def _flushes(self) -> Iterator[Metric]:
        node = self._node
        counts = node.flusher.counts
        yield counter("flushes", "Flushes of journal files to segments.", counts.flushes)
        yield counter("flush_failures", "Flushes that had to be tried again.", counts.failures)
        yield counter("flush_seconds", "Time spent in them.", counts.seconds)
        yield counter("flush_read_bytes", "Journal bytes read.", counts.read_bytes)
        yield counter(
            "flush_acknowledged_bytes", "Bytes of entries brought to segments.", counts.data_bytes
        )
        yield counter("flush_written_bytes", "Bytes of segments written.", counts.written_bytes)
        yield gauge("flush_waiting_files", "Sealed files in no segment.", node.flusher.waiting)
        yield counter("helper_starts", "Starts of the helper process.", node.helper.starts)

    def _segments(self) -> Iterator[Metric]:
        node = self._node
        segments = node.storage.meta.state.segments.values()
        yield gauge("segments", "Segments.", len(segments))
        levels = Counter(each.level for each in segments)
        yield Metric(
            f"{PREFIX}segments_of_level",
            "gauge",
            "Segments by how often they were merged.",
            [({"level": str(level)}, levels[level]) for level in sorted({0, *levels})],
        )
        yield gauge(
            "segments_missing",
            "Segments whose file or object is lost.",
            len(node.storage.log.missing_segments),
        )
        yield gauge("segment_bytes", "Their size.", sum(each.size for each in segments))
        yield gauge(
            "segment_dead_bytes", "Bytes in them that no reader may read, at the last check.",
            node.merging.dead_bytes,
        )  # fmt: skip
        yield counter("segments_removed", "Segment files removed.", node.retired.removed_files)
        yield gauge("segments_leaving", "Segment files that wait for that.", len(node.retired))

    def _maintenance(self) -> Iterator[Metric]:
        node = self._node
        flushes, kinds = node.flusher.counts, node.maintenance.counts
        rows: dict[str, Counts] = {"merge": Counts(), "rewrite": Counts(), **kinds}
        for name, doc, value in (
            ("jobs", "Work on segments in the background.", "jobs"),
            ("failures", "Jobs that failed; most are tried again.", "failures"),
            ("seconds", "Time spent in them.", "seconds"),
            ("written_bytes", "Bytes of segments written by them.", "written_bytes"),
        ):
            samples: list[tuple[Labels, float]] = [
                ({"kind": kind}, getattr(counts, value)) for kind, counts in sorted(rows.items())
            ]
            yield Metric(f"{PREFIX}maintenance_{name}_total", "counter", doc, samples)
        written = flushes.written_bytes + sum(each.written_bytes for each in kinds.values())
        yield gauge(
            "segment_write_amplification",
            "Bytes of segments written since the start for each byte of entries brought to them.",
            written / flushes.data_bytes if flushes.data_bytes else 0.0,
        )
        yield counter(
            "merge_damaged_blocks", "Damaged blocks that merges met.", node.merging.damaged_blocks
        )

    def _shared_journal(self) -> Iterator[Metric]:
        shared = self._node.storage.shared
        if shared is None:
            return
        yield gauge("lease_seconds", "How long the node's lease is valid.", shared.lease_left_s)
        yield gauge(
            "shared_journal_unavailable_seconds", "How long a window has waited for PostgreSQL.",
            shared.unavailable_s,
        )  # fmt: skip

    def _objects(self) -> Iterator[Metric]:
        keeper = self._node.objects
        if keeper is None:
            return
        counts, cache = keeper.counts, keeper.cache
        reads = cache.objects.counts
        for name, doc, value in (
            ("uploads", "Segments brought to object storage.", counts.uploads),
            ("upload_bytes", "Their size.", counts.upload_bytes),
            ("upload_seconds", "Time spent in that.", counts.upload_seconds),
            ("upload_retries", "Requests of uploads made again.", counts.upload_retries),
            ("upload_failures", "Uploads that failed; tried again later.", counts.upload_failures),
            ("removed", "Objects removed.", counts.removed),
            ("remove_failures", "Removals that failed; tried again later.", counts.remove_failures),
            ("reads", "Ranges read from object storage.", reads.reads),
            ("read_bytes", "Their size.", reads.read_bytes),
            ("read_seconds", "Time until they were there.", reads.read_seconds),
            ("retries", "Other requests made again.", reads.retries),
            ("failures", "Other requests that no retry helped.", reads.failures),
            ("cache_hits", "Chunks found in memory.", cache.counts.hits),
            ("cache_misses", "Chunks read from object storage.", cache.counts.misses),
            ("cache_evictions", "Chunks dropped to make room.", cache.counts.evicted),
        ):
            yield counter(f"object_{name}", doc, value)
        yield gauge("object_cache_bytes", "Memory that the cache takes.", cache.size)
        yield gauge(
            "object_waiting_files", "Merged segments that are files still.", len(keeper.waiting)
        )
        yield gauge(
            "object_unavailable", "Whether the last read of object storage failed.",
            float(cache.objects.breaker.is_open),
        )  # fmt: skip


def _one(name: str, kind: Literal["counter", "gauge"], doc: str, value: float) -> Metric:
    return Metric(PREFIX + name, kind, doc, [({}, value)])
