"""The transactions of one producer: its requests to the coordinators, and what a caller works with.

    async with producer.transaction() as transaction:
        await producer.send(...)
        await transaction.send_positions(consumer)

The rules are those of transaction version 1, which every server since 0.11 has: each partition is
added before the first message to it is sent, and each group before its positions. After a failure
a transaction can only be aborted; another producer of the same transactional id ends all.
Source: KIP-98, KIP-360, KIP-447.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.coordinators import GROUP, TRANSACTION, Coordinators
from trilogue.client.kafka.errors import KafkaError, ProducerFenced, TransactionAborted
from trilogue.client.kafka.model import Partition, PreparedTransaction, group_by_topic
from trilogue.client.kafka.producer.batch import NO_IDENTITY, ProducerIdentity
from trilogue.client.retry import retry
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.add_offsets import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from trilogue.wire.kafka.transactions.add_partitions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest, EndTxnResponse
from trilogue.wire.kafka.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from trilogue.wire.kafka.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from trilogue.client.kafka.consumer.consumer import Consumer, Offsets
    from trilogue.client.kafka.consumer.offset_committer import MemberIdentity

INIT_NEWEST, ADD_PARTITIONS_NEWEST, ADD_OFFSETS_NEWEST, END_NEWEST = 5, 3, 3, 4
TXN_OFFSET_COMMIT_NEWEST = 4
"""Newer versions follow the rules of transaction version 2."""
COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
PASSES: Final = COORDINATOR_MOVED | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
}
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
Answer = TypeVar("Answer")


class TransactionManager:
    """The transactional id of one producer, and its transaction as the servers have it."""

    def __init__(
        self, cluster: KafkaCluster, transactional_id: str, timeout_s: float, total_s: float
    ) -> None:
        """`total_s`: how long a request may take with its retries."""
        self.transactional_id = transactional_id
        self.identity = NO_IDENTITY
        self.is_open = self.is_prepared = False
        self.problem: Exception | None = None
        """Why the transaction can only be aborted."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._total_s = total_s
        self._coordinators = Coordinators(cluster, TRANSACTION)
        self._groups = Coordinators(cluster, GROUP)
        self._partitions: set[tuple[str, int]] = set()
        self._has_groups = False
        self._fenced: ProducerFenced | None = None

    def check(self) -> None:
        """Raise ProducerFenced once another producer has the transactional id."""
        if self._fenced is not None:
            raise self._fenced

    def fail(self, problem: Exception) -> None:
        """Note that a message or a position of the transaction was not stored."""
        if isinstance(problem, KafkaError) and problem.error in FENCED:
            self._fenced = self._fenced or ProducerFenced(
                problem.code,
                f"transactional id {self.transactional_id}",
                advice="another producer has it by now: this one is of no more use",
            )
            problem = self._fenced
        self.problem = self.problem or problem

    def prepare(self) -> PreparedTransaction:
        """Leave the transaction to another process."""
        self.is_open = False
        self.is_prepared = True
        return PreparedTransaction(
            self.transactional_id, self.identity.producer_id, self.identity.epoch
        )

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition was added to the transaction."""
        return (topic, partition) in self._partitions

    async def initialize(self) -> None:
        """Get a producer id and epoch: earlier producers of the id are fenced.

        A producer that has one gets the next epoch, so that what it sent before counts no more.
        """
        known = self.identity

        async def attempt(connection: KafkaConnection) -> InitProducerIdResponse:
            answer: InitProducerIdResponse = await connection.request(
                InitProducerIdRequest(
                    transactional_id=self.transactional_id,
                    transaction_timeout_ms=int(self._timeout_s * 1_000),
                    producer_id=known.producer_id,
                    producer_epoch=known.epoch,
                ),
                most=INIT_NEWEST,
            )
            self._raise_for(answer.error_code, "producer id")
            return answer

        answer = await self._call(attempt)
        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def add_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Add partitions to the transaction."""
        wanted = list(partitions)
        topics = [
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in group_by_topic(Partition(*each) for each in wanted).items()
        ]

        async def attempt(connection: KafkaConnection) -> None:
            answer: AddPartitionsToTxnResponse = await connection.request(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=self.identity.producer_id,
                    v3_and_below_producer_epoch=self.identity.epoch,
                    v3_and_below_topics=topics,
                ),
                most=ADD_PARTITIONS_NEWEST,
            )
            rows = [
                (row.partition_error_code, f"{topic.name}-{row.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]
            # One that was refused keeps the others from being added (55): it is the reason.
            rows.sort(key=lambda row: row[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for code, name in rows:
                self._raise_for(code, f"adding {name}")

        await self._call(attempt)
        self._partitions.update(wanted)

    async def add_positions(
        self,
        group: str,
        offsets: Mapping[Partition, GroupOffset],
        identity: Callable[[], MemberIdentity],
    ) -> None:
        """Add positions of a group: they move when the transaction commits."""

        async def add_group(connection: KafkaConnection) -> None:
            answer: AddOffsetsToTxnResponse = await connection.request(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch,
                    group_id=group,
                ),
                most=ADD_OFFSETS_NEWEST,
            )
            self._raise_for(answer.error_code, f"adding group {group}")

        async def commit(connection: KafkaConnection) -> None:
            member = identity()
            answer: TxnOffsetCommitResponse = await connection.request(
                TxnOffsetCommitRequest(
                    transactional_id=self.transactional_id,
                    group_id=group,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch,
                    generation_id=member.generation,
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    topics=_rows(offsets),
                ),
                most=TXN_OFFSET_COMMIT_NEWEST,
            )
            for topic in answer.topics:
                for row in topic.partitions:
                    self._raise_for(
                        row.error_code, f"position of {group} in {topic.name}-{row.partition_index}"
                    )

        await self._call(add_group)
        self._has_groups = True
        await self._call(commit, self._groups, group)

    async def end(self, *, commit: bool) -> None:
        """End the transaction; nothing is sent where nothing was added."""
        is_empty = not self._partitions and not self._has_groups

        async def attempt(connection: KafkaConnection) -> None:
            answer: EndTxnResponse = await connection.request(
                EndTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch,
                    committed=commit,
                ),
                most=END_NEWEST,
            )
            self._raise_for(answer.error_code, "commit" if commit else "abort")

        if not is_empty:
            await self._call(attempt, is_end=True)
        self.reset()

    def reset(self) -> None:
        """Have no transaction: the last one has ended."""
        self._partitions.clear()
        self._has_groups = self.is_open = False
        self.problem = None

    def _raise_for(self, code: int, about: str) -> None:
        if code:
            raise KafkaError(code, f"transaction of {self.transactional_id}: {about}")

    async def _call(
        self,
        work: Callable[[KafkaConnection], Awaitable[Answer]],
        coordinators: Coordinators | None = None,
        name: str = "",
        *,
        is_end: bool = False,
    ) -> Answer:
        """Send a request to a coordinator, and again while its error may pass."""
        where, key = coordinators or self._coordinators, name or self.transactional_id

        async def attempt() -> Answer:
            return await work(await where.connect(key))

        def may_pass(problem: ClientError) -> bool:
            if isinstance(problem, ConnectionLost):
                where.forget([key])
                return True
            if not isinstance(problem, KafkaError):
                return False
            if problem.error in COORDINATOR_MOVED:
                where.forget([key])
            return problem.error in PASSES

        self.check()
        try:
            return await retry(
                attempt,
                about=f"coordinator of {key}",
                server=self._cluster.servers,
                total_s=self._total_s,
                may_pass=may_pass,
            )
        except ClientError as problem:
            if not is_end or (isinstance(problem, KafkaError) and problem.error in FENCED):
                self.fail(problem)
            self.check()
            raise


class TransactionalProducer(Protocol):
    """What a transaction needs of its producer."""

    async def begin_transaction(self) -> None:
        """Begin; fence other producers of the transactional id first."""

    async def flush(self) -> None:
        """Wait until the fate of all messages is known."""

    async def abort_transaction(self) -> None:
        """Give up what waits, and abort."""


class Transaction:
    """One transaction of a producer; as a context manager it commits, or aborts after an error.

    Messages that the producer sends meanwhile are in it.
    """

    def __init__(self, producer: TransactionalProducer, manager: TransactionManager) -> None:
        self._producer = producer
        self._manager = manager
        self._has_ended = False

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        problem: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._has_ended:
            return
        if problem is None:
            await self.commit()
        elif isinstance(problem, ProducerFenced):
            self._manager.is_open = False
        else:
            await self.abort()

    async def send_positions(self, consumer: Consumer, offsets: Offsets | None = None) -> None:
        """Move the group of a consumer with this transaction: to where it has read, or to these.

        Without automatic commits (`auto_commit_s=None`). KafkaError where the group has given the
        partitions to another member; the transaction can only be aborted then.
        """
        group, positions, identity = consumer.positions_to_commit(offsets)
        if positions:
            await self._manager.add_positions(group, positions, identity)

    async def commit(self) -> None:
        """Make all of it visible at once; the messages are stored by then.

        TransactionAborted where one of them was not: nothing of the transaction is read.
        """
        await self._store()
        self._has_ended = True
        await self._manager.end(commit=True)

    async def _store(self) -> None:
        """Wait until all messages are stored; abort and raise TransactionAborted if one is not."""
        await self._producer.flush()
        problem = self._manager.problem
        if problem is not None:
            self._manager.check()
            await self.abort()
            raise TransactionAborted(f"the transaction was aborted: {problem}") from problem

    async def prepare(self) -> PreparedTransaction:
        """Store everything, and leave it open for `admin.commit_transactions` of any process.

        It ends by its time-out where nothing ends it. The producer begins no other transaction.
        TransactionAborted as `commit`.
        """
        await self._store()
        self._has_ended = True
        return self._manager.prepare()

    async def abort(self) -> None:
        """End it so that nothing of it is read."""
        self._has_ended = True
        await self._producer.abort_transaction()


def _rows(offsets: Mapping[Partition, GroupOffset]) -> list[TxnOffsetCommitRequestTopic]:
    return [
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[Partition(topic, number)].offset,
                    committed_leader_epoch=offsets[Partition(topic, number)].leader_epoch,
                    committed_metadata=offsets[Partition(topic, number)].metadata,
                )
                for number in numbers
            ],
        )
        for topic, numbers in group_by_topic(offsets).items()
    ]
