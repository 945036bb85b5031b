"""InitProducerId (22), v0-6: an identity for idempotent and transactional producers.

v2 is flexible, v3 lets a producer go on with the id it has, v4 and v5 may answer new errors, v6
(not yet stable in Kafka) is for two-phase commit.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int16, int32, int64, message, since, string


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest:
    """Give me a producer id; a transactional id keeps its own and fences the former user."""

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
