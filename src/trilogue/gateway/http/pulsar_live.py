"""Who is connected to a partition through Pulsar's door, and how they are sent to look it up again.

Producers are known to the broker (broker/writers.py), consumers to the door's readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trilogue.broker.partition import Partition
from trilogue.gateway.pulsar.producers import Producer

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection
    from trilogue.gateway.pulsar.shared import Shared

LAST_MS: Final = 253_402_300_799_000  # 9999-12-31T23:59:59Z, the last that Python can say


def producers(door: Shared, partition: Partition) -> list[Producer]:
    """The producers of a partition."""
    found = door.broker.writers.find(partition.partition_id)
    return [each for each in found or () if isinstance(each, Producer)]


def connected(door: Shared, partitions: Iterable[Partition]) -> int:
    """How many producers and consumers partitions have."""
    readers = door.readers
    return sum(
        len(producers(door, each)) + readers.consumer_count(each.partition_id)
        for each in partitions
    )


def unload_partition(door: Shared, partition: Partition) -> None:
    """Close what is connected to a partition; clients look it up and come back."""
    for producer in producers(door, partition):
        producer.leave()
        connection = producer.connection
        connection.guarded(partial(connection.close_producer, producer.producer_id))
    door.readers.close_all(partition.partition_id)


def producer_stats(producer: Producer) -> dict[str, Any]:
    """What `publishers` says of one."""
    return {
        "accessMode": producer.access.name.title().replace("_", ""),
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "averageMsgSize": producer.bytes / producer.messages if producer.messages else 0.0,
        "chunkedMessageRate": 0.0,
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "address": address(producer.connection),
        "connectedSince": iso(producer.since_ms),
        "clientVersion": producer.connection.client_version,
        "metadata": producer.metadata,
    }


def address(connection: PulsarConnection) -> str:
    """Where a peer is, as Java writes it."""
    host, port = connection.stream.peer[:2]
    return f"/{host}:{port}"


def iso(time_ms: int) -> str:
    """A moment as administration writes it; producers may say times after the year 9999."""
    moment = datetime.fromtimestamp(min(time_ms, LAST_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
