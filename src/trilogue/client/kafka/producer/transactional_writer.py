"""Ready-made record batches in one transaction, which another process commits.

One task of a job writes; the job's driver commits the transactions of all tasks in one decision
(`admin.commit_transactions`). See batch_writer.py for writing without transactions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import PreparedTransaction
from trilogue.client.kafka.producer.batch_writer import BatchWriter
from trilogue.client.kafka.producer.transactions import TransactionManager
from trilogue.wire.kafka.errors import ErrorCode

SEQUENCES = 2**31


class BatchStamp(NamedTuple):
    """Identity and first sequence number of the next batches of a partition."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class TransactionalWriter:
    """Writes to partitions in one transaction; batches of a partition go one after the other."""

    def __init__(
        self,
        cluster: KafkaCluster,
        transactional_id: str,
        *,
        timeout_s: float,
        retry_s: float = 60.0,
    ) -> None:
        """`timeout_s`: the server aborts a transaction that is not ended by then."""
        self._writer = BatchWriter(cluster, retry_s=retry_s)
        self._manager = TransactionManager(cluster, transactional_id, timeout_s, retry_s)
        self._sequences: dict[tuple[str, int], int] = {}

    async def begin(self) -> None:
        """Begin. A transaction that an earlier writer of the id left open is aborted."""
        await self._manager.initialize()
        self._manager.is_open = True

    async def add_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Add partitions to the transaction, before the first batch of each."""
        new = [each for each in partitions if not self._manager.has(*each)]
        if new:
            await self._manager.add_partitions(new)

    def stamp(self, topic: str, partition: int, records: int) -> BatchStamp:
        """Return what the next batches of a partition carry; together they have `records`."""
        first = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = (first + records) % SEQUENCES
        return BatchStamp(*self._manager.identity, first)

    async def send(self, topic: str, partition: int, batch: bytes) -> None:
        """Store one batch; a repeated one is stored once."""
        name = self._manager.transactional_id
        try:
            await self._writer.send(topic, partition, batch, transactional_id=name)
        except KafkaError as problem:
            if problem.error is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._manager.fail(problem)
                self._manager.check()
                raise

    def prepare(self) -> PreparedTransaction | None:
        """Leave the transaction to the process that commits it; None where nothing is in it."""
        return self._manager.prepare() if self._sequences else None

    async def abort(self) -> None:
        """End it so that nothing of it is read."""
        await self._manager.end(commit=False)


async def fence_producer(cluster: KafkaCluster, transactional_id: str) -> None:
    """Abort the transaction of an id, and let its producer begin no other one; KafkaError."""
    await TransactionManager(cluster, transactional_id, timeout_s=60.0, total_s=30.0).initialize()
