"""ListTransactions (66) v0-v2: the transactional ids that the coordinator knows (KIP-664).

v1 filter by age · v2 filter by pattern (KIP-1152).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    """List transactional ids by state, producer, age or pattern."""

    state_filters: list[string] = since(0)
    producer_id_filters: list[int64] = since(0)
    duration_filter: int64 = since(1, default=-1)
    transactional_id_pattern: string | None = since(2, null=2, default=None)


@message()
class ListedTransaction:
    """The state and producer of a transactional id."""

    transactional_id: string = since(0)
    producer_id: int64 = since(0)
    transaction_state: string = since(0)


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    """The transactional ids, and the unknown state filters."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    unknown_state_filters: list[string] = since(0)
    transaction_states: list[ListedTransaction] = since(0)
