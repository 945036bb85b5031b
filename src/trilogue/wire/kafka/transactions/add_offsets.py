"""AddOffsetsToTxn (25) v0-v4: a group whose positions a transaction will commit.

v1 unchanged · v2 a fenced producer is 90 · v3 flexible · v4 an abortable error (KIP-890).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    """Add a group to the transaction."""

    transactional_id: string = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    group_id: string = since(0)


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """The result."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
