"""The names of the states of transactions, as Kafka's tools show and filter them."""

from __future__ import annotations

from trilogue.broker.transactions.records import TransactionState

NAMES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}
KNOWN = {*NAMES.values(), "Dead", "PrepareEpochFence"}
"""What a filter may name; an id is never in the last two states here."""


def state_name(state: TransactionState) -> str:
    """Return Kafka's name of a state."""
    return NAMES[state]
