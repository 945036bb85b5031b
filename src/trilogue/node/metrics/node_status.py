"""What `trilogue nodes describe` shows of a node: what it owns, how far journal and flushes lag.

The node reports it as a read-only config of its broker (`trilogue.status`): whoever may describe
configs sees it, at any listener of Kafka's protocol.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from trilogue import __version__

if TYPE_CHECKING:
    from trilogue.gateway.telemetry.request_latency import LatencyHistogram
    from trilogue.node.metrics.measured_node import MeasuredNode

QUANTILE: Final = 0.99


def spell_status(node: MeasuredNode) -> str:
    """Return NAME=VALUE with commas between."""
    return ",".join(f"{name}={value}" for name, value in _status(node).items())


def _status(node: MeasuredNode) -> dict[str, Any]:
    storage = node.storage
    engine, broker, shared = storage.log, storage.broker, storage.shared
    journal, ownership = engine.journal, broker.cluster.ownership
    since_ms = engine.sealed[0].first_append_ms if engine.sealed else journal.unsealed_since_ms
    status: dict[str, Any] = {
        "version": __version__,
        "uptime_s": int(time.monotonic() - node.began),
        "cluster_slots": ownership.slot_count,
        "partitions": sum(len(topic.local_partitions) for topic in broker.cluster),
        "groups": len(broker.groups),
        "commit_ms": f"{find_quantile(storage.commit_seconds) * 1_000:g}",
        "commits_waiting": 0 if journal.is_idle else 1 + journal.queued,
        "unflushed_bytes": engine.tail_bytes,
        "unflushed_s": 0 if since_ms is None else max(0, node.now_ms() - since_ms) // 1_000,
        "flushes_waiting": node.flusher.waiting,
    }
    if node.objects is not None:
        status["uploads_waiting"] = len(node.objects.waiting)
    if shared is not None:
        status["lease_s"] = f"{shared.lease_left_s:.1f}"
        status["postgres_away_s"] = f"{shared.unavailable_s:.1f}"
    return status


def find_quantile(histogram: LatencyHistogram) -> float:
    """Return the bound that 99 % of the values do not exceed; the last one for those above all."""
    wanted, so_far = QUANTILE * sum(histogram.counts), 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        so_far += count
        if so_far >= wanted:
            return bound if so_far else 0.0
    return histogram.bounds[-1]
