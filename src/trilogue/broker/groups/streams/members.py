"""The members of a streams group, and the heartbeats that they send."""

from __future__ import annotations

from enum import Enum, auto, unique
from typing import NamedTuple

import msgspec

from trilogue.broker.groups.group_members import GroupMembers
from trilogue.broker.groups.reconciliation import ReconcilingMember
from trilogue.broker.groups.streams.tasks import TaskKey, TaskOwners, Tasks
from trilogue.broker.groups.streams.topology import InternalTopic, Topology
from trilogue.broker.names import TopicName


class Endpoint(NamedTuple):
    """Where other processes of the application reach a member for interactive queries."""

    host: str
    port: int


@unique
class GroupStatus(Enum):
    """What a member learns about its group beside its tasks."""

    STALE_TOPOLOGY = auto()
    MISSING_SOURCE_TOPICS = auto()
    INCORRECTLY_PARTITIONED_TOPICS = auto()
    MISSING_INTERNAL_TOPICS = auto()
    SHUTDOWN_APPLICATION = auto()
    ASSIGNMENT_DELAYED = auto()


class StreamsHeartbeat(msgspec.Struct, frozen=True):
    """A StreamsGroupHeartbeat request. None: nothing new."""

    group: str
    member_id: str
    epoch: int  # JOIN_EPOCH, LEAVE_EPOCH, or the member's
    endpoint_epoch: int = -1
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    shutdown: bool = False
    client_id: str = ""
    client_host: str = ""
    creator: str = ""  # the principal, if it has a name


PartitionsOfTopic = tuple[TopicName, list[int]]


class EndpointPartitions(NamedTuple):
    """The partitions whose stores an endpoint has."""

    endpoint: Endpoint
    active: list[PartitionsOfTopic]
    standby: list[PartitionsOfTopic]


class StreamsHeartbeatResponse(NamedTuple):
    """The answer. `assigned` and `endpoints` are None when they are as they were."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Tasks | None = None
    statuses: tuple[tuple[GroupStatus, str], ...] = ()
    endpoint_epoch: int = 0
    endpoints: list[EndpointPartitions] | None = None
    missing_topics: tuple[InternalTopic, ...] = ()  # to create


class StreamsGroupMember(ReconcilingMember[TaskKey]):
    """One member: a thread of a process of the application."""

    member_id: str
    rack: str | None = None
    process_id: str = ""
    topology_epoch: int = -1
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def description(self) -> tuple[object, ...]:
        """What begins another epoch of the group when it changes."""
        return (
            self.rack,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.process_id,
            self.topology_epoch,
            self.endpoint,
            self.tags,
        )

    @property
    def stored_fields(self) -> tuple[object, ...]:
        """What its row is made of."""
        return (
            *self.description,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.revoking,
        )


class StreamsGroupMembers(GroupMembers[StreamsGroupMember]):
    """The members of one streams group."""

    owners: TaskOwners

    def __init__(self) -> None:
        super().__init__(TaskOwners())

    def add(self, member: StreamsGroupMember) -> None:
        """Take in a member with what it holds."""
        super().add(member)
        self.owners.set_process(member.member_id, member.process_id)

    def remove(self, member: StreamsGroupMember) -> None:
        """Let a member go; what it held is free at once."""
        super().remove(member)
        self.owners.set_process(member.member_id, None)
