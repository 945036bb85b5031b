"""Producers and consumers connected to a partition through the Pulsar gateway, and their unload.

Producers are registered with the broker (broker/producers/access_modes.py), consumers with the
gateway's subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trilogue.broker.topics.partition import Partition
from trilogue.gateway.pulsar.producer import Producer

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.gateway import PulsarGateway
    from trilogue.gateway.pulsar.services import ClientConnection

LAST_MS: Final = 253_402_300_799_000  # 9999-12-31T23:59:59Z, the last time of datetime


def find_producers(gateway: PulsarGateway, partition: Partition) -> list[Producer]:
    """Return the producers of a partition."""
    found = gateway.broker.writers.get(partition.partition_id)
    return [each for each in found or () if isinstance(each, Producer)]


def count_clients(gateway: PulsarGateway, partitions: Iterable[Partition]) -> int:
    """Return the number of producers and consumers of partitions."""
    readers = gateway.subscriptions
    return sum(
        len(find_producers(gateway, each)) + readers.consumer_count(each.partition_id)
        for each in partitions
    )


def unload_partition(gateway: PulsarGateway, partition: Partition) -> None:
    """Close the producers and consumers of a partition; clients look it up again."""
    for producer in find_producers(gateway, partition):
        producer.leave()
        connection = producer.connection
        connection.guarded(partial(connection.close_producer, producer.producer_id))
    gateway.subscriptions.close_all(partition.partition_id)


def producer_stats(producer: Producer) -> dict[str, Any]:
    """Return a producer's element of `publishers`."""
    return {
        "accessMode": producer.access.name.title().replace("_", ""),
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "averageMsgSize": producer.bytes / producer.messages if producer.messages else 0.0,
        "chunkedMessageRate": 0.0,
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "address": format_address(producer.connection),
        "connectedSince": format_time(producer.since_ms),
        "clientVersion": producer.connection.client_version,
        "metadata": producer.metadata,
    }


def format_address(connection: ClientConnection) -> str:
    """Return a peer's address as Java writes it."""
    host, port = connection.stream.peer[:2]
    return f"/{host}:{port}"


def format_time(time_ms: int) -> str:
    """Return a time in ISO format; producers may send times after the year 9999."""
    moment = datetime.fromtimestamp(min(time_ms, LAST_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
