"""The records of `__consumer_offsets` and `__transaction_state` from the broker's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.facts import DEFAULT_RETENTION
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.group import CLASSIC, Group
from trilogue.broker.internal.records import KeyValue, SharedPartitions
from trilogue.broker.names import TopicName, format_kafka
from trilogue.broker.transactions.records import TransactionRow
from trilogue.gateway.kafka.groups.group_records import (
    group_state_records,
    member_records,
    removed_group_records,
    removed_member_records,
    target_records,
)
from trilogue.wire.kafka import internal_topics as wire


class KafkaInternalRecords:
    """Encodes them as Kafka does."""

    def committed_offset(
        self, group: str, topic: TopicName, number: int, offset: CommittedOffset | None
    ) -> KeyValue:
        """Return the record of an offset, or of its removal."""
        key = wire.encode_offset_key(group, format_kafka(topic), number)
        if offset is None:
            return key, None
        committed_ms, retention_ms = offset.committed_ms, offset.retention_ms
        return key, wire.encode_offset_value(
            offset.mark,
            offset.owner_epoch,
            offset.metadata,
            committed_ms,
            wire.NO_EXPIRY if retention_ms == DEFAULT_RETENTION else committed_ms + retention_ms,
        )

    def group(self, group: ClassicGroup, now_ms: int) -> KeyValue:
        """Return the record of a classic group and its members."""
        key = wire.encode_group_key(group.name)
        members, leader, protocol = group.members, group.members.leader, group.protocol
        return key, wire.encode_group_value(
            group.protocol_type,
            group.generation,
            protocol=protocol or None,
            leader=None if leader is None else leader.member_id,
            since_ms=now_ms,
            members=[
                wire.StoredMember(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    each.rebalance_timeout_ms,
                    each.session_timeout_ms,
                    each.metadata(protocol),
                    each.assignment,
                )
                for each in members
            ],
        )

    def group_state(self, group: Group, shared: SharedPartitions) -> Iterable[KeyValue]:
        """Return the records of a group with epochs, without its members."""
        return group_state_records(group, shared)

    def member(self, group: Group, member_id: str) -> Iterable[KeyValue]:
        """Return the records of a member of a group with epochs; of its removal if it is gone."""
        return member_records(group, member_id)

    def target(self, group: Group, member_id: str) -> Iterable[KeyValue]:
        """Return the record of the target of a member of a group with epochs."""
        return target_records(group, member_id)

    def removed_member(self, name: str, type_: str, member_id: str) -> Iterable[KeyValue]:
        """Return the records of the removal of a member of a group with epochs."""
        return removed_member_records(name, type_, member_id)

    def removed_group(self, name: str, type_: str) -> Iterable[KeyValue]:
        """Return the records of the removal of a group without members."""
        if type_ == CLASSIC:
            return [(wire.encode_group_key(name), None)]
        return removed_group_records(name, type_)

    def transaction(
        self, name: str, row: TransactionRow | None, partitions: Mapping[TopicName, Sequence[int]]
    ) -> KeyValue:
        """Return the record of a transactional id, or of its removal."""
        key = wire.encode_transaction_key(name)
        if row is None:
            return key, None
        return key, wire.encode_transaction_value(
            row.producer_id,
            row.epoch,
            timeout_ms=row.timeout_ms,
            status=row.state,
            partitions={format_kafka(topic): numbers for topic, numbers in partitions.items()},
            changed_ms=row.changed_ms,
            started_ms=row.started_ms,
        )
