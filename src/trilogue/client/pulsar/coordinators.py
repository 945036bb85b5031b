"""The transaction coordinators of a cluster: where each of them is, and the requests to it.

The coordinators are the partitions of a topic that is there for their lookup only. A broker of
protocol 19 serves a coordinator after TC_CLIENT_CONNECT_REQUEST, an older one at once. The most
bits of a TxnID are the number of its coordinator. A request is repeated while its error may pass,
as when a coordinator moves; source: TransactionMetaStoreHandler of Pulsar's Java client.
"""

from __future__ import annotations

from typing import Any, Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pulsar.attachment import ClientContext
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import RETRIABLE, PulsarError
from trilogue.client.pulsar.message import TxnId
from trilogue.client.pulsar.topic_names import partition_name
from trilogue.client.retry import FOREVER_S, pauses, retry
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    Subscription,
    TxnAction,
)

TOPIC: Final = "persistent://pulsar/system/transaction_coordinator_assign"
PASSES: Final = RETRIABLE | {ServerError.TransactionCoordinatorNotFound}


class TransactionCoordinators:
    """Sends the requests of transactions; PulsarError, ServerUnreachable."""

    def __init__(self, core: ClientContext) -> None:
        self._core = core
        self._topics: list[str] = []
        self._connections: dict[int, PulsarConnection] = {}
        self._next = 0

    async def begin(self, timeout_s: float) -> TxnId:
        """Begin a transaction at the next coordinator; the broker aborts it after `timeout_s`."""
        if not self._topics:
            count = await self._core.lookup.partitions(TOPIC)
            self._topics = [partition_name(TOPIC, number) for number in range(count)] or [TOPIC]
        number = self._next = (self._next + 1) % len(self._topics)
        # The field is named for seconds and has milliseconds, in all clients and brokers.
        command = CommandNewTxn(txn_ttl_seconds=int(timeout_s * 1_000), tc_id=number)
        answer = await self._call(number, "newTxn", command, "new transaction")
        return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

    async def add_topic(self, txn_id: TxnId, topic: str) -> None:
        """Add a topic without partitions, or a partition, before the first message to it."""
        command = CommandAddPartitionToTxn(
            txnid_most_bits=txn_id.most, txnid_least_bits=txn_id.least, partitions=[topic]
        )
        about = f"transaction {txn_id}: adding {topic}"
        await self._call(txn_id.most, "addPartitionToTxn", command, about)

    async def add_subscription(self, txn_id: TxnId, topic: str, subscription: str) -> None:
        """Add a subscription before the first ack in it."""
        command = CommandAddSubscriptionToTxn(
            txnid_most_bits=txn_id.most,
            txnid_least_bits=txn_id.least,
            subscription=[Subscription(topic=topic, subscription=subscription)],
        )
        about = f"transaction {txn_id}: adding subscription {subscription} of {topic}"
        await self._call(txn_id.most, "addSubscriptionToTxn", command, about)

    async def end(self, txn_id: TxnId, *, commit: bool) -> None:
        """Commit or abort."""
        command = CommandEndTxn(
            txnid_most_bits=txn_id.most,
            txnid_least_bits=txn_id.least,
            txn_action=TxnAction.COMMIT if commit else TxnAction.ABORT,
        )
        about = f"transaction {txn_id}: {'commit' if commit else 'abort'}"
        await self._call(txn_id.most, "endTxn", command, about)

    async def _call(self, number: int, field: str, command: Any, about: str) -> Any:
        """Send a request to a coordinator, and again while its error may pass."""

        async def attempt() -> Any:
            connection = await self._connect(number)
            return await connection.call(field, command, about)

        def may_pass(problem: ClientError) -> bool:
            passes = isinstance(problem, ConnectionLost) or (
                isinstance(problem, PulsarError) and problem.error in PASSES
            )
            if passes:
                self._connections.pop(number, None)
            return passes

        return await retry(
            attempt,
            about=about,
            server=self._core.address,
            total_s=self._core.options.request_timeout_s,
            may_pass=may_pass,
            growing=pauses(0.05, 2.0, FOREVER_S, self._core.dice),
        )

    async def _connect(self, number: int) -> PulsarConnection:
        """A connection to the broker that serves a coordinator."""
        known = self._connections.get(number)
        if known is not None and known.is_open:
            return known
        connection = await self._core.lookup.broker(self._topics[number])
        if connection.supports(BaseCommand.TC_CLIENT_CONNECT_REQUEST):
            command = CommandTcClientConnectRequest(tc_id=number)
            about = f"transaction coordinator {number}"
            await connection.call("tcClientConnectRequest", command, about)
        self._connections[number] = connection
        return connection
