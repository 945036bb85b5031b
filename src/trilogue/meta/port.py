"""The interface of a metadata store: changes in, durable state out.

What the broker decided is read from memory (`Meta.state`), which moves only when a change is
durable, in the order of the changes.

```
 decide (broker) ──► write(ops, preconditions, fence) ──► durable ──► state moves ──► response
                          │ PreconditionFailed, InvalidChange: this change only; nothing happened
                          │ Fenced, StorageFailed: the store is finished, the process must stop
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from trilogue.log.segments.manifest import ManifestStore
from trilogue.meta.operations import ChangeResult, Fence, Op, Precondition
from trilogue.meta.state import MetaState


class Meta(ManifestStore, Protocol):
    """A store of metadata: MemoryMeta, SqliteMeta, PostgresMeta."""

    @property
    def state(self) -> MetaState:
        """The durable state, for reading only."""

    @property
    def failed(self) -> Exception | None:
        """The error that ended this store, or None."""

    async def write(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        """Make a change durable and then visible in `state`; or raise, and nothing happened.

        Changes take effect in the order of the calls. If the caller is cancelled while it waits,
        the change goes on. A store that is reached by a network waits until it is there again:
        a caller that cannot wait looks at `unavailable_s`, and may stop waiting.
        """

    @property
    def unavailable_s(self) -> float:
        """For how many seconds the store has not been reachable; 0 if it is."""

    def allocate(self, kind: str) -> int:
        """Return the next id of a durable block; the block after it is reserved in time."""

    async def reserve(self, kind: str, count: int) -> None:
        """Wait until `allocate` can return `count` ids."""

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all durable snapshots; they are not kept in memory."""

    def close(self) -> None:
        """Finish the changes in the queue and close the store."""
