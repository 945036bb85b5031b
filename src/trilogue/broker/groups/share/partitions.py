"""The partitions of share groups on this node, and how an administrator moves their positions.

A share partition is on the node that serves the partition, whichever node coordinates the group. It
is made when a fetch of the group first reads the partition, at the offset that the caller finds by
the group's `share.auto.offset.reset`, or from the stored position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

from trilogue.broker.cursors.share_positions import SharePositions
from trilogue.broker.groups.classic.members import Timers
from trilogue.broker.groups.share.partition import ShareLimits, SharePartition
from trilogue.broker.promise import Promise


class SharePartitions:
    """Share partitions by group and partition id."""

    def __init__(
        self,
        positions: SharePositions,
        timers: Timers,
        now_ms: Callable[[], int],
        limits: Callable[[str], ShareLimits],
    ) -> None:
        self.positions = positions
        self._timers = timers
        self._now_ms = now_ms
        self._limits = limits
        self._partitions: dict[tuple[str, int], SharePartition] = {}

    def find_partition(self, group: str, partition_id: int) -> SharePartition | None:
        """Return a share partition that has a position."""
        found = self._partitions.get((group, partition_id))
        if found is not None and not found.is_gone:
            return found
        position = self.positions.find_position(group, partition_id)
        if position is None:
            return None
        found = SharePartition(
            position, self.positions, self._timers, self._now_ms, lambda: self._limits(group)
        )
        self._partitions[group, partition_id] = found
        return found

    def start(self, group: str, partition_id: int, mark: int) -> SharePartition:
        """Return the share partition; where it has no position, begin at `mark`.

        TooManyPositions.
        """
        found = self.find_partition(group, partition_id)
        if found is None:
            self.positions.start(group, partition_id, mark)
            found = self.find_partition(group, partition_id)
            assert found is not None, "a position of a partition that does not exist"
        return found

    def reset(self, group: str, partition_id: int, mark: int) -> None:
        """Let a group begin again at an offset; TooManyPositions."""
        self.positions.start(group, partition_id, mark)
        found = self._partitions.get((group, partition_id))
        if found is not None:
            found.reset(mark)

    def release_member(self, group: str, partition_id: int, member_id: str) -> None:
        """Give back what a member has of a partition."""
        found = self._partitions.get((group, partition_id))
        if found is not None:
            found.release_member(member_id)

    def remove(self, group: str, partition_ids: Collection[int] | None = None) -> Promise[None]:
        """Remove positions of a group, all without ids; kept when that is durable."""
        durable = self.positions.remove(group, partition_ids)
        self._close_gone()
        return durable

    def drop(self, partition_ids: Collection[int]) -> None:
        """Remove what is known of partitions that were deleted."""
        self.positions.drop(partition_ids)
        self._close_gone()

    def close(self, partition_ids: Container[int]) -> None:
        """End the share partitions of partitions that another node is to own."""
        self.positions.close(partition_ids)
        self._close_gone()

    def _close_gone(self) -> None:
        for key, each in list(self._partitions.items()):
            if each.is_gone:
                each.close()
                del self._partitions[key]
