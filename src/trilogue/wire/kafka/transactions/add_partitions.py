"""AddPartitionsToTxn (24) v0-v5: the partitions that a transaction will write to.

v1 unchanged · v2 a fenced producer is 90 · v3 flexible · v4 several transactions, and a mere check,
for brokers · v5 an abortable error (KIP-890).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message()
class AddPartitionsToTxnTopic:
    """Partitions of a topic."""

    name: string = since(0)
    partitions: list[int32] = since(0)


@message()
class AddPartitionsToTxnTransaction:
    """The partitions of one transaction."""

    transactional_id: string = since(4)
    producer_id: int64 = since(4)
    producer_epoch: int16 = since(4)
    verify_only: boolean = since(4)
    topics: list[AddPartitionsToTxnTopic] = since(4)


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    """Add partitions to transactions; the first one begins a transaction."""

    transactions: list[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: string = since(0, until=3)
    v3_and_below_producer_id: int64 = since(0, until=3)
    v3_and_below_producer_epoch: int16 = since(0, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, until=3)


@message()
class AddPartitionsToTxnPartitionResult:
    """The result of one partition."""

    partition_index: int32 = since(0)
    partition_error_code: int16 = since(0)


@message()
class AddPartitionsToTxnTopicResult:
    """The results of a topic."""

    name: string = since(0)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = since(0)


@message()
class AddPartitionsToTxnResult:
    """The results of one transaction."""

    transactional_id: string = since(4)
    topic_results: list[AddPartitionsToTxnTopicResult] = since(4)


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """The results."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(4)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(0, until=3)
