"""Transactions: listed, described, aborted; each by its transactional id."""

from __future__ import annotations

from collections.abc import Iterable

from trilogue.client.kafka.admin.model import TransactionDescription, TransactionListing
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.coordinators import TRANSACTION, Coordinators
from trilogue.client.kafka.errors import KafkaError, error_for_code, raise_for_code
from trilogue.client.kafka.model import Node, Partition
from trilogue.wire.kafka.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest, EndTxnResponse
from trilogue.wire.kafka.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


class TransactionAdmin(AdminRequests):
    """Requests about transactions; each goes to the id's coordinator."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster)
        self._transaction_coordinators = Coordinators(cluster, TRANSACTION)

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
    ) -> list[TransactionListing]:
        """All transactional ids of all nodes, or those in these states and with these producers."""
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def list_all() -> list[TransactionListing]:
            found: dict[str, TransactionListing] = {}
            for connection in (await self._all_nodes()).values():
                answer: ListTransactionsResponse = await self._send_request(
                    connection,
                    ListTransactionsRequest(
                        state_filters=wanted_states, producer_id_filters=wanted_ids
                    ),
                )
                raise_for_code(answer.error_code, "list transactions")
                for row in answer.transaction_states:
                    found[row.transactional_id] = TransactionListing(
                        row.transactional_id, row.producer_id, row.transaction_state
                    )
            return [found[name] for name in sorted(found)]

        return await self._retry(list_all)

    async def describe_transactions(
        self, names: Iterable[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """State, producer and partitions of transactional ids."""

        async def describe(
            connection: KafkaConnection, node: Node, some: list[str]
        ) -> dict[str, TransactionDescription | KafkaError]:
            answer: DescribeTransactionsResponse = await self._send_request(
                connection, DescribeTransactionsRequest(transactional_ids=some)
            )
            found: dict[str, TransactionDescription | KafkaError] = {}
            for row in answer.transaction_states:
                name = row.transactional_id
                problem = error_for_code(row.error_code, f"transaction {name}")
                found[name] = problem or TransactionDescription(
                    name,
                    row.transaction_state,
                    row.producer_id,
                    row.producer_epoch,
                    row.transaction_timeout_ms,
                    row.transaction_start_time_ms,
                    tuple(Partition(each.topic, n) for each in row.topics for n in each.partitions),
                    node,
                )
            return found

        return await self._request_coordinators(
            self._transaction_coordinators, names, describe, repeatable=True
        )

    async def abort_transactions(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Abort the ongoing transactions of ids, as their producers would.

        A server with version 2 of transactions gives the producer another epoch, which fences it.
        """
        described = await self.describe_transactions(names)

        async def abort(
            connection: KafkaConnection, _node: Node, some: list[str]
        ) -> dict[str, KafkaError | None]:
            found: dict[str, KafkaError | None] = {}
            for name in some:
                outcome = described[name]
                if isinstance(outcome, KafkaError):
                    found[name] = outcome
                    continue
                answer: EndTxnResponse = await self._send_request(
                    connection,
                    EndTxnRequest(
                        transactional_id=name,
                        producer_id=outcome.producer_id,
                        producer_epoch=outcome.producer_epoch,
                        committed=False,
                    ),
                )
                found[name] = error_for_code(answer.error_code, f"abort transaction {name}")
            return found

        return await self._request_coordinators(self._transaction_coordinators, described, abort)
