"""The records of internal topics: a port, because their bytes are those of a protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol as Port

from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.names import TopicName
from trilogue.broker.transactions.records import TransactionRow

KeyValue = tuple[bytes, bytes | None]  # without a value: the key is gone


class InternalRecords(Port):
    """Encodes the records of internal topics."""

    def committed_offset(
        self, group: str, topic: TopicName, number: int, offset: CommittedOffset | None
    ) -> KeyValue:
        """Return the record of an offset, or of its removal."""

    def group(self, name: str, group: ClassicGroup | None, now_ms: int) -> KeyValue:
        """Return the record of a group and its members, or of its removal."""

    def transaction(
        self, name: str, row: TransactionRow | None, partitions: Mapping[TopicName, Sequence[int]]
    ) -> KeyValue:
        """Return the record of a transactional id, or of its removal."""
