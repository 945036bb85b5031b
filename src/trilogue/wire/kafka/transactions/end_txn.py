"""EndTxn (26) v0-v5: commit or abort a transaction.

v1 unchanged · v2 a fenced producer is 90 · v3 flexible · v4 an abortable error · v5 the identity
for the next transaction (KIP-890).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest:
    """End the transaction."""

    transactional_id: string = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    committed: boolean = since(0)


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    """The result, and from v5 the producer id and epoch to continue with."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    producer_id: int64 = since(5, default=-1)
    producer_epoch: int16 = since(5, default=-1)
