"""The members of a share group, and the heartbeats that they send."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from trilogue.broker.errors import FencedMemberEpoch
from trilogue.broker.groups.classic.members import TimerHandle
from trilogue.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionIndexes
from trilogue.broker.groups.reconciliation import JOIN_EPOCH
from trilogue.broker.names import TopicName


class ShareHeartbeat(msgspec.Struct, frozen=True):
    """A ShareGroupHeartbeat request. None: nothing new."""

    group: str
    member_id: str
    epoch: int  # JOIN_EPOCH, LEAVE_EPOCH, or the member's
    rack: str | None = None
    topics: frozenset[TopicName] | None = None
    client_id: str = ""
    client_host: str = ""
    creator: str = ""  # the principal, if it has a name


class ShareHeartbeatResponse(NamedTuple):
    """The answer. `assigned` is None when it is as it was."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: PartitionIndexes | None = None


class ShareGroupMember(msgspec.Struct):
    """A member: its subscription, its epoch, and the partitions that it reads."""

    member_id: str
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[TopicName] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: PartitionIndexes = NO_PARTITIONS
    timer: TimerHandle | None = None  # of the session

    def check_epoch(self, epoch: int) -> None:
        """Refuse an epoch that is neither the member's nor that of the response before."""
        if epoch not in {self.epoch, self.previous_epoch}:
            raise FencedMemberEpoch(
                f"the member has epoch {epoch}, the group has {self.epoch} for it"
            )

    def set_epoch(self, epoch: int) -> None:
        """Move the member to an epoch."""
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch
