"""Takes up slots that this node has got, while it serves others.

```
 meta has a slot that is new here ──► rows of its snapshots ──► segments, partitions, state
   MetadataFollower                     a thread                  one step of the loop
```

The former owner gave the slot away when nothing of it was left in its journal (hand_over.py), so
meta, its snapshots and object storage have everything. Until the step the node refuses clients of
the slot, and its other partitions and connections go on. What fails is tried by a start instead,
which has the patience for a database that is away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from trilogue.broker.topics.ownership import Ownership
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError
from trilogue.node.cluster.hand_over import HandOver
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)


class SlotAdoption:
    """Follows the owners of slots for one node."""

    def __init__(self, storage: Storage, hand_over: HandOver) -> None:
        self._storage = storage
        self._hand_over = hand_over

    async def follow(self, ownership: Ownership) -> None:
        """Adopt the slots that this node has got, if any; after a failure it is to start again."""
        slots = ownership.gained
        if not slots or self._hand_over.wanted.is_set():
            return
        began = time.monotonic()
        try:
            rows = await asyncio.to_thread(self._read_rows, slots)
            self._adopt(slots, rows)
        except (LogError, MetaError, OSError) as error:
            log.warning("slots.not_adopted", extra={"slots": slots, "reason": repr(error)})
            self._hand_over.request({})
            return
        took_s = round(time.monotonic() - began, 3)
        log.info("slots.adopted", extra={"slots": slots, "rows": len(rows), "took_s": took_s})

    def _read_rows(self, slots: Collection[int]) -> list[tuple[bytes, bytes]]:
        """Read the snapshot rows of slots: of all of them, since keys have no slot."""
        slot_of, wanted = self._storage.broker.cluster.ownership.snapshot_slot, set(slots)
        return [row for row in self._storage.meta.snapshots() if slot_of(row[0]) in wanted]

    def _adopt(self, slots: Collection[int], rows: list[tuple[bytes, bytes]]) -> None:
        storage = self._storage
        state, ownership = storage.meta.state, storage.broker.cluster.ownership
        ownership.adopt(slots)
        storage.log.adopt_segments(
            sorted(
                filter(ownership.reads_segment, state.segments.values()),
                key=lambda each: each.first_sequence,
            )
        )
        storage.broker.adopt_slots(rows)
