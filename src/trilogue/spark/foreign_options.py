"""Options of other connectors and of Java's clients that the source and the sink do not have.

Those that cannot change which rows are read or written are passed over with a line in the log, so
that a job moves by changing its format. The others are refused with what takes their place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from trilogue.spark.errors import OptionError

log = logging.getLogger("trilogue.spark")

_OF_CONSUMERS = (
    "allow.auto.create.topics", "auto.commit.interval.ms", "check.crcs", "default.api.timeout.ms",
    "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.instance.id", "group.protocol", "heartbeat.interval.ms", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.poll.records", "partition.assignment.strategy",
    "session.timeout.ms",
)  # fmt: skip
_OF_PRODUCERS = (
    "acks", "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level",
    "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence", "linger.ms",
    "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size",
    "metadata.max.idle.ms", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "retries",
)  # fmt: skip
_OF_BOTH = (
    "auto.include.jmx.reporter", "client.dns.lookup", "client.id", "client.rack",
    "connections.max.idle.ms", "enable.metrics.push", "metadata.max.age.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples",
    "metrics.recording.level", "metrics.sample.window.ms", "receive.buffer.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms",
    "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
)  # fmt: skip
_OF_CONNECTORS = (
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "includeHeaders",
    "subscriptionPrefix",
)  # fmt: skip
WITHOUT_EFFECT = frozenset(
    name.lower()
    for name in (
        *(f"kafka.{key}" for key in (*_OF_CONSUMERS, *_OF_PRODUCERS, *_OF_BOTH)),
        *_OF_CONNECTORS,
    )
)
"""Sizes, times, counts of tries and names: in lower case."""

_BYTES = "keys and values are binary columns: cast, or use option 'payload'"
_NO_CLASSES = "classes of Java are not loaded"
_START = "startingOffsets is where a query starts, and failOnDataLoss decides about what is gone"
REPLACED: Mapping[str, tuple[frozenset[str], str]] = {
    "kafka.auto.offset.reset": (frozenset(), _START),
    "kafka.enable.auto.commit": (
        frozenset({"false"}),
        "Spark's checkpoint is what counts; kafka.group.id publishes positions",
    ),
    "kafka.key.deserializer": (frozenset(), _BYTES),
    "kafka.value.deserializer": (frozenset(), _BYTES),
    "kafka.key.serializer": (frozenset(), _BYTES),
    "kafka.value.serializer": (frozenset(), _BYTES),
    "kafka.interceptor.classes": (frozenset({""}), _NO_CLASSES),
    "kafka.partitioner.class": (
        frozenset({""}),
        f"{_NO_CLASSES}: a column partition chooses, else the key as Java's default does",
    ),
    "kafka.partitioner.ignore.keys": (
        frozenset({"false"}),
        "leave out the column key, or give a column partition",
    ),
    "kafka.transactional.id": (
        frozenset(),
        "deliveryGuarantee=exactly-once writes in transactions, and names them",
    ),
    "waitingfornonexistedtopic": (
        frozenset({"false"}),
        "a topic has to exist when its query starts; subscribePattern finds those that come later",
    ),
    "allowdifferenttopicschemas": (
        frozenset({"true"}),
        "topics have binary values, or one payloadSchema",
    ),
}
"""By lower case: the values without effect, and what to do instead of all others."""


def drop_foreign_options(given: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    """Return the options that are not of others; OptionError for one that something replaces.

    `known`: lower-case names that have a meaning here all the same.
    """
    found = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in known:
            found[name] = value
        elif lower in WITHOUT_EFFECT or value.strip().lower() in _harmless(lower):
            log.info("spark.option-without-effect option=%s", name)
        elif lower in REPLACED:
            raise OptionError(f"option {name!r}: {REPLACED[lower][1]}")
        else:
            found[name] = value
    return found


def _harmless(lower: str) -> frozenset[str]:
    return REPLACED[lower][0] if lower in REPLACED else frozenset()
