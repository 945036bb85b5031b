"""Error codes of the requests of transactions, which depend on the version of the request.

A fenced producer is INVALID_PRODUCER_EPOCH for clients that do not know PRODUCER_FENCED. Where the
broker has aborted a transaction its producer gets TRANSACTION_ABORTABLE (KIP-890), if the version
has it: its application then aborts, and goes on. In others the producer is fenced.
"""

from __future__ import annotations

from trilogue.broker.errors import ProducerFenced, TransactionAborted
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.wire.kafka.errors import ErrorCode

FENCED_SINCE = 2  # of AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
INIT_FENCED_SINCE = 4  # of InitProducerId
ABORTABLE_SINCE = 4  # of AddOffsetsToTxn, EndTxn, TxnOffsetCommit
ADDING_ABORTABLE_SINCE = 5  # of AddPartitionsToTxn


def transaction_code(
    problem: BaseException,
    version: int,
    fenced_since: int = FENCED_SINCE,
    abortable_since: int = ABORTABLE_SINCE,
) -> ErrorCode:
    """Return the error code of a problem for this version of a request."""
    if isinstance(problem, TransactionAborted) and version >= abortable_since:
        return ErrorCode.TRANSACTION_ABORTABLE
    if isinstance(problem, ProducerFenced) and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return to_error_code(problem)
