"""What the internal topics have: offsets and classic groups, and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Final

from trilogue.broker.cursors.committed_offsets import CommittedOffsets
from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.errors import BrokerError
from trilogue.broker.facts import FactJournal, Protocol
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.internal.records import InternalRecords, KeyValue
from trilogue.broker.internal.state_topic import StateTopic
from trilogue.broker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicName
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.transaction import Transaction
from trilogue.broker.transactions.transaction_table import TransactionTable

PER_STEP: Final = 200  # groups that are searched for offsets of a deleted topic


class StateTopics:
    """Writes the internal topics of this node, as far as they exist."""

    def __init__(
        self,
        cluster: Cluster,
        now_ms: Callable[[], int],
        load_records: Callable[[], InternalRecords],
        *,
        offsets: CommittedOffsets,
        groups: GroupRegistry,
        transactions: TransactionTable,
    ) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._load_records = load_records
        self._committed_offsets = offsets
        self._groups = groups
        self._table = transactions
        self._journal: FactJournal
        self._moving: dict[str, list[list[int]]] = {}  # by group: commits that are not durable yet
        self.offsets = StateTopic(OFFSETS_TOPIC, cluster, now_ms, self._list_groups)
        self.transactions = StateTopic(TRANSACTIONS_TOPIC, cluster, now_ms, self._list_transactions)

    @cached_property
    def _records(self) -> InternalRecords:
        return self._load_records()

    def attach(self, journal: FactJournal) -> None:
        """Begin to write: everything is restored."""
        self.offsets.attach(journal)
        self.transactions.attach(journal)
        self._journal = journal
        self._committed_offsets.on_moves = self._write_moves
        self._committed_offsets.on_removal = self._write_removal
        self._groups.on_members = self._write_group
        self._table.on_change = self._write_transaction
        self._cluster.removal_steps.append(self._remove_topic)

    # -- offsets and groups

    def _write_moves(self, group: str, moves: Iterable[tuple[int, CommittedOffset]]) -> None:
        """Write offsets of a group that move; raises BrokerError."""
        if self.offsets.exists:
            moving = [*moves]
            self.offsets.append(group, self._offset_records(group, moving))
            ids = [each for each, _ in moving]
            self._moving.setdefault(group, []).append(ids)
            self._journal.on_commit(lambda _: self._moved(group))

    def _moved(self, group: str) -> None:
        """Forget the oldest commit of a group that was on its way to the disk."""
        left = self._moving[group]
        del left[0]
        if not left:
            del self._moving[group]

    def _write_removal(self, group: str, partition_ids: Collection[int] | None) -> None:
        """Write that offsets are gone, or all (None), also those on their way to the disk."""
        if not self.offsets.exists:
            return
        ids: Iterable[int] | None = partition_ids
        if ids is None:
            present = self._committed_offsets.positions(Protocol.KAFKA, group)
            ids = {*present, *chain.from_iterable(self._moving.get(group, ()))}
        self.offsets.append(group, self._offset_records(group, [(each, None) for each in ids]))

    def _offset_records(
        self, group: str, moves: Iterable[tuple[int, CommittedOffset | None]]
    ) -> Iterator[KeyValue]:
        for partition_id, offset in moves:
            topic = self._cluster.topic_of(partition_id)
            if topic is not None:
                number = topic.number_of(partition_id)
                yield self._records.committed_offset(group, topic.name, number, offset)

    def _write_group(self, name: str, group: ClassicGroup | None) -> None:
        """Write the members of a group; what the log does not take now, its next change brings."""
        if self.offsets.exists:
            with suppress(BrokerError):
                self.offsets.append(name, [self._records.group(name, group, self._now_ms())])

    def _list_groups(self) -> Iterator[tuple[str, Iterable[KeyValue]]]:
        for group in self._groups:
            if isinstance(group, ClassicGroup) and not group.is_empty:
                yield group.name, [self._records.group(group.name, group, self._now_ms())]
        offsets = self._committed_offsets
        for name in offsets.names(Protocol.KAFKA):
            positions = offsets.positions(Protocol.KAFKA, name)
            yield name, self._offset_records(name, list(positions.items()))

    def _remove_topic(self, topic: Topic) -> Iterator[None]:
        """Remove the offsets of a topic that was deleted."""
        if not self.offsets.exists:
            return
        offsets, ids = self._committed_offsets, topic.row.partitions
        for count, name in enumerate(offsets.names(Protocol.KAFKA), 1):
            present = offsets.positions(Protocol.KAFKA, name)
            gone = [
                self._records.committed_offset(name, topic.name, number, None)
                for number, partition_id in enumerate(ids)
                if partition_id in present
            ]
            if gone:
                with suppress(BrokerError):
                    self.offsets.append(name, gone)
            if count % PER_STEP == 0:
                yield

    # -- transactional ids

    def _write_transaction(self, name: str, transaction: Transaction | None) -> None:
        """Write the state of an id; what the log does not take now, its next change brings."""
        if self.transactions.exists:
            with suppress(BrokerError):
                self.transactions.append(name, [self._transaction_record(name, transaction)])

    def _transaction_record(self, name: str, transaction: Transaction | None) -> KeyValue:
        if transaction is None:
            return self._records.transaction(name, None, {})
        return self._records.transaction(name, transaction.row, self._find_parts(transaction))

    def _find_parts(self, transaction: Transaction) -> Mapping[TopicName, list[int]]:
        found: dict[TopicName, list[int]] = {}
        for partition_id in transaction.contained.partitions:
            topic = self._cluster.topic_of(partition_id)
            if topic is not None:
                found.setdefault(topic.name, []).append(topic.number_of(partition_id))
        return found

    def _list_transactions(self) -> Iterator[tuple[str, Iterable[KeyValue]]]:
        for transaction in self._table:
            name = transaction.row.transactional_id
            yield name, [self._transaction_record(name, transaction)]
