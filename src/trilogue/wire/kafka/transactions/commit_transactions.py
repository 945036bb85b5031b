"""Trilogue's own: CommitTransactions (20001) v0 and DescribeCommittedBatch (20002) v0.

Kafka has no request that commits the transactions of several producers in one decision. Only
Trilogue's client sees these keys in ApiVersions.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message()
class CommitTransactionsTransaction:
    """A transaction that its producer has left open."""

    transactional_id: string = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)


@message(key=20001, versions=(0, 0), flexible=0)
class CommitTransactionsRequest:
    """Commit all transactions, or none, as a batch of an application."""

    application_id: string = since(0)
    batch_id: int64 = since(0)
    transactions: list[CommitTransactionsTransaction] = since(0)


@message(key=20001, versions=(0, 0), flexible=0)
class CommitTransactionsResponse:
    """The application's last batch; `is_repeated`: this request committed nothing."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    batch_id: int64 = since(0, default=-1)
    committed_ms: int64 = since(0, default=-1)
    is_repeated: boolean = since(0)


@message(key=20002, versions=(0, 0), flexible=0)
class DescribeCommittedBatchRequest:
    """Request the last batch that an application has committed."""

    application_id: string = since(0)


@message(key=20002, versions=(0, 0), flexible=0)
class DescribeCommittedBatchResponse:
    """The last batch, or -1."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    batch_id: int64 = since(0, default=-1)
    committed_ms: int64 = since(0, default=-1)
