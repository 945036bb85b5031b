"""Meta that forgets at the end of the process: for tests, simulation and brokers without a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trilogue.log.errors import StorageFailed
from trilogue.log.manifest import Manifest
from trilogue.meta.ids import Ids
from trilogue.meta.port import (
    ID_BLOCKS,
    AllocateIds,
    CommitResult,
    Fence,
    Op,
    Precondition,
)
from trilogue.meta.state import GONE, SNAPSHOTS, MetaState, change


class MemoryMeta:
    """A store whose commits are done when they are asked for."""

    def __init__(
        self, cluster_id: bytes = bytes(16), node_id: int = 1, node_epoch: int = 1
    ) -> None:
        self.state = MetaState(cluster_id, node_id, node_epoch)
        self.failed: Exception | None = None
        self._snapshots: dict[bytes, bytes] = {}
        self._ids = Ids()
        self._fetch(*(AllocateIds(kind, count) for kind, count in ID_BLOCKS.items()))

    async def commit(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> CommitResult:
        """Do all of it or nothing."""
        return self.commit_now(ops, preconditions, fence)

    def commit_now(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> CommitResult:
        """Do the same for callers that never wait."""
        if self.failed is not None:
            raise StorageFailed(str(self.failed)) from self.failed
        made = change(self.state, ops, preconditions, fence)
        for table, key, value in made.writes:
            if table == SNAPSHOTS and value is GONE:
                self._snapshots.pop(key, None)
            elif table == SNAPSHOTS:
                self._snapshots[key] = value
        return CommitResult(made.version, tuple(made.blocks))

    def allocate(self, kind: str) -> int:
        """Give one id."""
        if not self._ids.left(kind) and kind in ID_BLOCKS:
            self._fetch(AllocateIds(kind, ID_BLOCKS[kind]))
        return self._ids.take(kind)

    async def reserve(self, kind: str, count: int) -> None:
        """Fetch what is missing."""
        missing = count - self._ids.left(kind)
        if missing > 0:
            self._fetch(AllocateIds(kind, missing))

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots, in the order of their keys."""
        yield from sorted(self._snapshots.items())

    def manifest(self) -> Manifest:
        """Say what exists now."""
        return self.state.manifest()

    def close(self) -> None:
        """Refuse what comes later."""
        self.failed = self.failed or StorageFailed("meta is closed")

    def _fetch(self, *ops: AllocateIds) -> None:
        for block in self.commit_now(ops).blocks:
            self._ids.add(block)
