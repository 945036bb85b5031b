"""InitProducerId (22) v0-v6: ids of idempotent and transactional producers.

v1 unchanged · v2 flexible · v3 the id and epoch to continue with · v4, v5 new error codes · v6 (not
yet stable in Kafka) two-phase commit.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest:
    """Get a producer id; a transactional id keeps its own and fences its former producer."""

    transactional_id: string | None = since(0, null=0)
    transaction_timeout_ms: int32 = since(0)
    producer_id: int64 = since(3, default=-1)
    producer_epoch: int16 = since(3, default=-1)
    enable2_pc: boolean = since(6)
    keep_prepared_txn: boolean = since(6)


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse:
    """The id and epoch to produce with."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    producer_id: int64 = since(0, default=-1)
    producer_epoch: int16 = since(0)
    ongoing_txn_producer_id: int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: int16 = since(6, default=-1)
