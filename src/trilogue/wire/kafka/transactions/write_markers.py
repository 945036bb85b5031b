"""WriteTxnMarkers (27) v0-v2: end the transactions of producers on partitions.

v1 flexible · v2 the version of transactions.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
)


@message()
class WritableTxnMarkerTopic:
    """Partitions of a topic."""

    name: string = since(0)
    partition_indexes: list[int32] = since(0)


@message()
class WritableTxnMarker:
    """The producer, the outcome (True: commit) and where."""

    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    transaction_result: boolean = since(0)
    topics: list[WritableTxnMarkerTopic] = since(0)
    coordinator_epoch: int32 = since(0)
    transaction_version: int8 = since(2)


@message(key=27, versions=(0, 2), flexible=1)
class WriteTxnMarkersRequest:
    """Write markers."""

    markers: list[WritableTxnMarker] = since(0)


@message()
class WritableTxnMarkerPartitionResult:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class WritableTxnMarkerTopicResult:
    """The results of a topic."""

    name: string = since(0)
    partitions: list[WritableTxnMarkerPartitionResult] = since(0)


@message()
class WritableTxnMarkerResult:
    """The results of one producer."""

    producer_id: int64 = since(0)
    topics: list[WritableTxnMarkerTopicResult] = since(0)


@message(key=27, versions=(0, 2), flexible=1)
class WriteTxnMarkersResponse:
    """The results."""

    markers: list[WritableTxnMarkerResult] = since(0)
