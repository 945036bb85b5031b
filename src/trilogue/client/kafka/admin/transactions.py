"""Transactions: listed, described, aborted; each by its transactional id.

And committed from another process than their producer's: one, or several in one decision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from trilogue.client.errors import ConnectionLost
from trilogue.client.kafka.admin.model import (
    CommittedBatch,
    TransactionDescription,
    TransactionListing,
)
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.coordinators import TRANSACTION, Coordinators
from trilogue.client.kafka.errors import KafkaError, error_for_code, raise_for_code
from trilogue.client.kafka.model import Node, Partition, PreparedTransaction
from trilogue.wire.kafka.transactions.commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsResponse,
    CommitTransactionsTransaction,
    DescribeCommittedBatchRequest,
    DescribeCommittedBatchResponse,
)
from trilogue.wire.kafka.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest, EndTxnResponse
from trilogue.wire.kafka.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

END_NEWEST = 4
"""A newer EndTxn follows the rules of transaction version 2."""
Answer = TypeVar("Answer")


class TransactionAdmin(AdminRequests):
    """Requests about transactions; each goes to the id's coordinator."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster)
        self._transaction_coordinators = Coordinators(cluster, TRANSACTION)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids of all nodes, or those in these states and with these producers.

        `pattern`: a regular expression that ids match whole (KIP-1152); older servers ignore it.
        """
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def list_all() -> list[TransactionListing]:
            found: dict[str, TransactionListing] = {}
            for connection in (await self._all_nodes()).values():
                answer: ListTransactionsResponse = await self._send_request(
                    connection,
                    ListTransactionsRequest(
                        state_filters=wanted_states,
                        producer_id_filters=wanted_ids,
                        transactional_id_pattern=pattern,
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

    async def end_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a transaction that its producer has prepared; KafkaError."""

        async def end() -> None:
            connection = await self._transaction_coordinators.connect(prepared.transactional_id)
            answer: EndTxnResponse = await self._send_request(
                connection,
                EndTxnRequest(
                    transactional_id=prepared.transactional_id,
                    producer_id=prepared.producer_id,
                    producer_epoch=prepared.epoch,
                    committed=commit,
                ),
                most=END_NEWEST,
            )
            raise_for_code(answer.error_code, f"transaction {prepared.transactional_id}")

        await self._retry_at(prepared.transactional_id, end)

    async def commit_transactions(
        self, prepared: Iterable[PreparedTransaction], *, application_id: str, batch_id: int
    ) -> CommittedBatch:
        """Commit several prepared transactions in one decision, as the next batch of a program.

        All of them commit, or none does. Returns the last batch of the application: where that was
        this batch or a later one already, nothing is committed, and the transactions are aborted.
        Unsupported on other servers than Trilogue; KafkaError.
        """
        transactions = list(prepared)
        request = CommitTransactionsRequest(
            application_id=application_id,
            batch_id=batch_id,
            transactions=[
                CommitTransactionsTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                )
                for each in transactions
            ],
        )

        async def commit() -> CommitTransactionsResponse:
            connection = await self._transaction_coordinators.connect(application_id)
            answer: CommitTransactionsResponse = await self._send_request(connection, request)
            about = f"batch {batch_id} of {application_id}"
            raise_for_code(
                answer.error_code,
                f"{about}: {answer.error_message}" if answer.error_message else about,
            )
            return answer

        answer = await self._retry_at(application_id, commit)
        if answer.is_repeated:
            for each in transactions:
                with contextlib.suppress(KafkaError):  # those of the first attempt are committed
                    await self.end_transaction(each, commit=False)
        return CommittedBatch(application_id, answer.batch_id, answer.committed_ms)

    async def last_batch(self, application_id: str) -> CommittedBatch | None:
        """The last batch that an application has committed; as `commit_transactions`."""

        async def describe() -> DescribeCommittedBatchResponse:
            connection = await self._transaction_coordinators.connect(application_id)
            answer: DescribeCommittedBatchResponse = await self._send_request(
                connection, DescribeCommittedBatchRequest(application_id=application_id)
            )
            raise_for_code(answer.error_code, f"last batch of {application_id}")
            return answer

        answer = await self._retry_at(application_id, describe)
        if answer.batch_id < 0:
            return None
        return CommittedBatch(application_id, answer.batch_id, answer.committed_ms)

    async def _retry_at(self, name: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Send a repeatable request to the coordinator of a name, wherever it is."""

        async def attempt() -> Answer:
            try:
                return await work()
            except (ConnectionLost, KafkaError):
                self._transaction_coordinators.forget([name])
                raise

        return await self._retry(attempt)
