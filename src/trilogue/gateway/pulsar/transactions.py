"""Transactions are not served yet: each request for one is refused in its own answer.

A client that is made for transactions learns it earlier: it looks for the topic of the transaction
coordinators, which is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trilogue.wire.pulsar.errors import ServerError

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

ANSWERS = {
    "CommandNewTxn": "newTxnResponse",
    "CommandAddPartitionToTxn": "addPartitionToTxnResponse",
    "CommandAddSubscriptionToTxn": "addSubscriptionToTxnResponse",
    "CommandEndTxn": "endTxnResponse",
    "CommandTcClientConnectRequest": "tcClientConnectResponse",
}


class Asked(Protocol):
    """What all of them have."""

    @property
    def request_id(self) -> int:
        """The number that the answer repeats."""


def refuse(connection: PulsarConnection, command: Asked, _frame: memoryview) -> None:
    """Say no, in the words of the request."""
    connection.say(
        ANSWERS[type(command).__name__],
        request_id=command.request_id,
        error=ServerError.NotAllowedError,
        message="transactions are not served",
    )
