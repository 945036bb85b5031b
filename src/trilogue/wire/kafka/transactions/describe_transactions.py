"""DescribeTransactions (65) v0: the state of transactional ids (KIP-664)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    """Describe these transactional ids."""

    transactional_ids: list[string] = since(0)


@message()
class TransactionTopic:
    """Partitions that a transaction wrote to."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message()
class DescribedTransaction:
    """A transactional id, or its error."""

    error_code: int16 = since(0)
    transactional_id: string = since(0)
    transaction_state: string = since(0)
    transaction_timeout_ms: int32 = since(0)
    transaction_start_time_ms: int64 = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    topics: list[TransactionTopic] = since(0)


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """One result per transactional id."""

    throttle_time_ms: int32 = since(0)
    transaction_states: list[DescribedTransaction] = since(0)
