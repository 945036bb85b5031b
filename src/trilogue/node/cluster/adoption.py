"""Takes up slots that this node has got, while it serves others.

```
 meta has a slot that is new here ──► rows of its snapshots ──► segments, partitions, state
   MetadataFollower                     a thread                  one step of the loop for each slot
```

The former owner gave the slot away when nothing of it was left in its journal (hand_over.py), so
meta, its snapshots and object storage have everything. Until its step the node refuses clients of
a slot, and its other partitions and connections go on. What fails is tried by a start instead,
which has the patience for a database that is away; slots before it are served until then.
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

Row = tuple[bytes, bytes]  # of a snapshot: key and value


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
            for slot in slots:
                await asyncio.sleep(0)
                self._adopt(slot, rows[slot])
        except (LogError, MetaError, OSError) as error:
            log.warning("slots.not_adopted", extra={"slots": slots, "reason": repr(error)})
            self._hand_over.request({})
            return
        took_s = round(time.monotonic() - began, 3)
        count = sum(map(len, rows.values()))
        log.info("slots.adopted", extra={"slots": slots, "rows": count, "took_s": took_s})

    def _read_rows(self, slots: Collection[int]) -> dict[int, list[Row]]:
        """Return the snapshot rows of each slot; all are read, since keys have no slot."""
        slot_of = self._storage.broker.cluster.ownership.snapshot_slot
        rows: dict[int, list[Row]] = {slot: [] for slot in slots}
        for row in self._storage.meta.snapshots():
            if (found := rows.get(slot_of(row[0]))) is not None:
                found.append(row)
        return rows

    def _adopt(self, slot: int, rows: list[Row]) -> None:
        ownership = self._storage.broker.cluster.ownership
        ownership.adopt([slot])
        try:
            self._load(slot, rows)
        except BaseException:
            ownership.release([slot])  # until the start that follows its clients are refused
            raise

    def _load(self, slot: int, rows: list[Row]) -> None:
        """Add a slot's segments, partitions and state."""
        storage = self._storage
        ownership, known = storage.broker.cluster.ownership, storage.log.segments
        others = (each for key, each in storage.meta.state.segments.items() if key not in known)
        storage.log.adopt_segments(
            sorted(filter(ownership.reads_segment, others), key=lambda each: each.first_sequence)
        )
        storage.broker.adopt_slots({slot}, rows)
