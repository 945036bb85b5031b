"""Metadata in memory only: for tests, simulation and brokers without a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trilogue.log.errors import StorageFailed
from trilogue.log.segments.manifest import Manifest
from trilogue.meta.ids import IdPool
from trilogue.meta.operations import (
    ID_BLOCKS,
    AllocateIds,
    ChangeResult,
    Fence,
    Op,
    Precondition,
)
from trilogue.meta.state import REMOVED, SNAPSHOTS, MetaState, apply_change


class MemoryMeta:
    """A store whose changes are done during the call."""

    def __init__(
        self, cluster_id: bytes = bytes(16), node_id: int = 1, node_epoch: int = 1
    ) -> None:
        self.state = MetaState.new(cluster_id, node_id, node_epoch)
        self.failed: Exception | None = None
        self._snapshots: dict[bytes, bytes] = {}
        self._ids = IdPool()
        self._fetch(*(AllocateIds(kind, count) for kind, count in ID_BLOCKS.items()))

    async def write(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        """Do all of it or nothing."""
        return self.write_now(ops, preconditions, fence)

    def write_now(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        """Do the same without waiting."""
        if self.failed is not None:
            raise StorageFailed(str(self.failed)) from self.failed
        made = apply_change(self.state, ops, preconditions, fence)
        for table, key, value in made.writes:
            if table == SNAPSHOTS and value is REMOVED:
                self._snapshots.pop(key, None)
            elif table == SNAPSHOTS:
                self._snapshots[key] = value
        return ChangeResult(made.version, tuple(made.blocks))

    @property
    def unavailable_s(self) -> float:
        """Memory is always there."""
        return 0.0

    def allocate(self, kind: str) -> int:
        """Return one id."""
        if not self._ids.available(kind) and kind in ID_BLOCKS:
            self._fetch(AllocateIds(kind, ID_BLOCKS[kind]))
        return self._ids.take_id(kind)

    async def reserve(self, kind: str, count: int) -> None:
        """Allocate the ids that are missing."""
        missing = count - self._ids.available(kind)
        if missing > 0:
            self._fetch(AllocateIds(kind, missing))

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots, in the order of their keys."""
        yield from sorted(self._snapshots.items())

    def manifest(self) -> Manifest:
        """Return the present topics, partitions and segments."""
        return self.state.manifest()

    def close(self) -> None:
        """Refuse later changes."""
        self.failed = self.failed or StorageFailed("meta is closed")

    def _fetch(self, *ops: AllocateIds) -> None:
        for block in self.write_now(ops).blocks:
            self._ids.add(block)
