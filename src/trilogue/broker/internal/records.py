"""The records of internal topics: a port, because their bytes are those of a protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol as Port

from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.group import Group
from trilogue.broker.names import TopicName
from trilogue.broker.transactions.records import TransactionRow

KeyValue = tuple[bytes, bytes | None]  # without a value: the key is gone
SharedPartitions = Mapping[tuple[bytes, TopicName], Sequence[int]]  # by topic id and topic


class InternalRecords(Port):
    """Encodes the records of internal topics."""

    def committed_offset(
        self, group: str, topic: TopicName, number: int, offset: CommittedOffset | None
    ) -> KeyValue:
        """Return the record of an offset, or of its removal."""

    def group(self, group: ClassicGroup, now_ms: int) -> KeyValue:
        """Return the record of a classic group and its members."""

    def group_state(self, group: Group, shared: SharedPartitions) -> Iterable[KeyValue]:
        """Return the records of a group with epochs, without its members.

        `shared` are the partitions that a share group has positions of.
        """

    def member(self, group: Group, member_id: str) -> Iterable[KeyValue]:
        """Return the records of a member of a group with epochs; of its removal if it is gone."""

    def target(self, group: Group, member_id: str) -> Iterable[KeyValue]:
        """Return the record of the target of a member of a group with epochs."""

    def removed_member(self, name: str, type_: str, member_id: str) -> Iterable[KeyValue]:
        """Return the records of the removal of a member of a group with epochs."""

    def removed_group(self, name: str, type_: str) -> Iterable[KeyValue]:
        """Return the records of the removal of a group without members."""

    def transaction(
        self, name: str, row: TransactionRow | None, partitions: Mapping[TopicName, Sequence[int]]
    ) -> KeyValue:
        """Return the record of a transactional id, or of its removal."""
