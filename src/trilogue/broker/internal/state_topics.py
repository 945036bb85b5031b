"""What the internal topics have: offsets, groups with their members, and transactional ids.

A classic group is one record. Groups with epochs (KIP-848, KIP-932, KIP-1071) have records of their
own and some of each member; those that changed are written when the rows of members are stored
(groups/membership.py) and, in steps, when a group has another target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Final

from trilogue.broker.cursors.committed_offsets import CommittedOffsets
from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.cursors.share_positions import SharePositions
from trilogue.broker.errors import BrokerError
from trilogue.broker.facts import FactJournal, Protocol
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.consumer.mixed_group import MixedGroup
from trilogue.broker.groups.group import SHARE, Group
from trilogue.broker.groups.membership import GROUP
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.groups.share.group import ShareGroup
from trilogue.broker.groups.streams.group import StreamsGroup
from trilogue.broker.internal.records import InternalRecords, KeyValue, SharedPartitions
from trilogue.broker.internal.state_topic import StateTopic
from trilogue.broker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicName
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.transaction import Transaction
from trilogue.broker.transactions.transaction_table import TransactionTable
from trilogue.log.steps import Steps

PER_STEP: Final = 200  # groups that are searched for offsets of a deleted topic
MEMBERS_IN_STEP: Final = 50  # whose targets are written
WRITTEN_MAX: Final = 100_000  # records of groups that are known to be as they are

EpochGroup = MixedGroup | ShareGroup | StreamsGroup


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
        group_context: ConsumerGroupContext,
        share_positions: SharePositions,
        transactions: TransactionTable,
    ) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._load_records = load_records
        self._committed_offsets = offsets
        self._groups = groups
        self._group_context = group_context
        self._share_positions = share_positions
        self._table = transactions
        self._journal: FactJournal
        self._moving: dict[str, list[list[int]]] = {}  # by group: commits that are not durable yet
        self._written: dict[int, int] = {}  # hash of a key -> of its last value
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
        self._groups.on_members = self._write_classic
        self._groups.on_replaced = self._write_replacement
        self._groups.on_dropped = self._write_drop
        self._groups.membership.on_change = self._write_members
        self._group_context.on_target = self._write_target
        self._share_positions.on_change = self._write_shared
        self._table.on_change = self._write_transaction
        self._cluster.removal_steps.append(self._remove_topic)

    def adopt_partitions(self) -> None:
        """Go on in partitions that have come with their slots."""
        self.offsets.adopt_partitions()
        self.transactions.adopt_partitions()

    def forget_written(self) -> None:
        """Write everything again that changes: other nodes may have written meanwhile."""
        self._written.clear()

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

    def _write_classic(self, group: ClassicGroup) -> None:
        """Write a classic group with its members."""
        self._write_records(group.name, self._classic_records(group))

    def _write_members(self, name: str, keys: Collection[str]) -> None:
        """Write members of a group with epochs that changed or are gone, and the group."""
        group = self._groups.find_group(name)
        if isinstance(group, EpochGroup):
            self._write_records(name, self._epoch_records(group, keys))

    def _write_target(self, name: str) -> None:
        """Write the target of a group; of many members in steps."""
        group = self._groups.find_group(name)
        if isinstance(group, EpochGroup) and self.offsets.exists:
            self._group_context.turns.start(self._write_target_steps(group), lambda _: None)

    def _write_target_steps(self, group: EpochGroup) -> Steps[None]:
        ids = list(group.target)
        for start in range(0, len(ids), MEMBERS_IN_STEP):
            if self._groups.find_group(group.name) is not group:
                return
            some = ids[start : start + MEMBERS_IN_STEP]
            self._write_records(group.name, self._target_records(group, some))
            yield
        self._write_records(group.name, self._epoch_records(group, ()))

    def _write_shared(self, name: str) -> None:
        """Write that a share group has positions of other partitions."""
        self._write_members(name, ())

    def _write_replacement(self, group: Group, former: Group | None) -> None:
        """Write that a group has become one of another kind, with the members it begins with."""
        name = group.name
        if former is not None and former.type != group.type:
            if isinstance(former, EpochGroup):
                self._write_records(name, self._member_removals(former))
            self._write_drop(name, former.type)
        if isinstance(group, EpochGroup) and not group.is_empty:
            ids = [each.member_id for each in group.members]
            self._write_records(name, self._epoch_records(group, ids))

    def _write_drop(self, name: str, type_: str) -> None:
        """Write that a group without members is gone."""
        self._write_records(name, self._removal_records(name, type_))

    def _write_records(self, name: str, records: Iterator[KeyValue]) -> None:
        """Write records of a group that are not there yet; without a topic none is made.

        What the log does not take now, the next change of the group brings.
        """
        if not self.offsets.exists:
            self._written.clear()
            return
        written = self._written
        fresh = [each for each in records if written.get(hash(each[0])) != hash(each[1])]
        if not fresh:
            return
        with suppress(BrokerError):
            self.offsets.append(name, fresh)
            if len(written) > WRITTEN_MAX:
                written.clear()
            written.update((hash(key), hash(value)) for key, value in fresh)

    def _classic_records(self, group: ClassicGroup) -> Iterator[KeyValue]:
        yield self._records.group(group, self._now_ms())

    def _removal_records(self, name: str, type_: str) -> Iterator[KeyValue]:
        yield from self._records.removed_group(name, type_)

    def _member_removals(self, group: EpochGroup) -> Iterator[KeyValue]:
        for each in group.members:
            yield from self._records.removed_member(group.name, group.type, each.member_id)

    def _target_records(self, group: EpochGroup, ids: Iterable[str]) -> Iterator[KeyValue]:
        for member_id in ids:
            yield from self._records.target(group, member_id)

    def _epoch_records(self, group: EpochGroup, keys: Iterable[str]) -> Iterator[KeyValue]:
        """Yield the records of a group with epochs and of some members, present or gone."""
        for member_id in keys:
            if member_id != GROUP:
                yield from self._records.member(group, member_id)
        yield from self._records.group_state(group, self._find_shared(group))

    def _find_shared(self, group: EpochGroup) -> SharedPartitions:
        if group.type != SHARE:
            return {}
        found: dict[tuple[bytes, TopicName], list[int]] = {}
        for partition_id in self._share_positions.of_group(group.name):
            topic = self._cluster.topic_of(partition_id)
            if topic is not None:
                numbers = found.setdefault((topic.topic_id, topic.name), [])
                numbers.append(topic.number_of(partition_id))
        return found

    def _list_groups(self) -> Iterator[tuple[str, Iterable[KeyValue]]]:
        for group in self._groups:
            if isinstance(group, EpochGroup):
                ids = [each.member_id for each in group.members]
                yield group.name, self._epoch_records(group, ids)
            elif isinstance(group, ClassicGroup) and not group.is_empty:
                yield group.name, [self._records.group(group, self._now_ms())]
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
