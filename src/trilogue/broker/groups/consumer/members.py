"""The members of a consumer group (KIP-848), by id and by instance.

How they get from their assignments to their targets is in groups/reconciliation.py.
"""

from __future__ import annotations

import msgspec

from trilogue.broker.groups.consumer.subscribed_topics import TopicSubscription
from trilogue.broker.groups.group_members import GroupMembers, PartitionOwners
from trilogue.broker.groups.reconciliation import ReconcilingMember
from trilogue.broker.names import TopicName


class ClassicMemberMetadata(msgspec.Struct, frozen=True):
    """The JoinGroup fields of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol(self) -> str:
        """The protocol of its responses: its preferred one."""
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        """The metadata of that protocol."""
        return self.protocols[0][1]


class ConsumerGroupMember(ReconcilingMember[bytes]):
    """One member: who it is, what it wants, what it has."""

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    topics: frozenset[TopicName] = frozenset()
    pattern: str = ""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None

    @property
    def subscription(self) -> TopicSubscription:
        """The topics it wants."""
        return self.topics, self.pattern

    @property
    def stored_fields(self) -> tuple[object, ...]:
        """What its row is made of; quick to compare while nothing has changed."""
        return (
            self.member_id,
            self.instance_id,
            self.rack,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topics,
            self.pattern,
            self.assignor,
            self.classic,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.revoking,
        )


class ConsumerGroupMembers(GroupMembers[ConsumerGroupMember]):
    """The members of one consumer group, by id and by instance."""

    def __init__(self) -> None:
        super().__init__(PartitionOwners[bytes]())
        self._static: dict[str, ConsumerGroupMember] = {}

    def static(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return the member that stands for an instance."""
        return None if instance_id is None else self._static.get(instance_id)

    def add(self, member: ConsumerGroupMember) -> None:
        """Take in a member with what it holds."""
        super().add(member)
        if member.instance_id is not None:
            self._static[member.instance_id] = member

    def remove(self, member: ConsumerGroupMember) -> None:
        """Let a member go; what it held is free at once."""
        if member.instance_id is not None and self._static.get(member.instance_id) is member:
            del self._static[member.instance_id]
        super().remove(member)
