"""Gives slots of this node to other nodes of the cluster while it serves its other slots.

```
 flush while serving ──► close the slots ──► flush the rest ──► new owners in meta ──► forget them
   SlotWatch               one step, clients      seconds: what      one transaction,     in steps,
                           wait from here         came meanwhile     fenced by this node  clients go
```

The other partitions and connections of the node go on. The transaction comes when nothing of the
slots is left in the journal: the next owner has everything in object storage and in meta. What
fails is done by an end and a start of the node instead (hand_over.py), which finds the owners that
meta has, whatever became of the transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, Protocol

from trilogue.log.errors import DiskFull, LogError
from trilogue.meta.errors import MetaError
from trilogue.meta.operations import GiveSlots
from trilogue.node.background.flush import Flusher
from trilogue.node.background.maintenance import Maintenance
from trilogue.node.cluster.hand_over import GIVE_S, HandOver
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

PREPARE_S: Final = 30.0  # for a merge under way, and for decisions of transactions
FLUSH_S: Final = 20.0  # for what came since the flush before
HOLD_S: Final = 1.0  # of ends of transactions, until those under way have ended
LOOK_S: Final = 0.005


class ServingNode(Protocol):
    """A node that serves, as far as slots can leave it."""

    storage: Storage
    flusher: Flusher
    maintenance: Maintenance
    metadata_writer: MetadataWriter
    hand_over: HandOver


class SlotRelease:
    """Gives slots of one node away."""

    def __init__(self, node: ServingNode) -> None:
        self._node = node

    async def give(self, owners: Mapping[int, int]) -> None:
        """Give slots to these owners; after a failure the node is to start again, for the same."""
        began_s = time.monotonic()
        closed_s = began_s
        node, broker = self._node, self._node.storage.broker
        is_given = False
        try:
            async with asyncio.timeout(PREPARE_S) as limit, node.maintenance.paused():
                await node.metadata_writer.finish()
                await self._close(owners)
                closed_s = time.monotonic()
                limit.reschedule(asyncio.get_running_loop().time() + FLUSH_S)
                if not await node.flusher.flush_added():
                    raise DiskFull("the journal file cannot be sealed")
                limit.reschedule(asyncio.get_running_loop().time() + GIVE_S)
                storage = node.storage
                await storage.meta.write([GiveSlots(dict(owners))], (), storage.fence)
                is_given = True
            for _ in broker.forget_slots(owners):
                await asyncio.sleep(0)
        except (LogError, MetaError, OSError, TimeoutError) as error:
            log.warning("slots.not_released", extra={"slots": owners, "reason": repr(error)})
            node.hand_over.request({} if is_given else owners)
            return
        ended_s = time.monotonic()
        log.info(
            "slots.given",
            extra={
                "slots": owners,
                "prepared_s": round(closed_s - began_s, 3),
                "took_s": round(ended_s - closed_s, 3),
            },
        )

    async def _close(self, owners: Mapping[int, int]) -> None:
        """Serve the slots no more, from a step in which no transaction of their ids is ending.

        Others are not ended meanwhile, for a while: one under way may wait for a node that is away.
        """
        broker = self._node.storage.broker
        while True:
            with broker.holding_ends(owners):
                ends_s = time.monotonic() + HOLD_S
                while (ending := broker.is_ending_in(owners)) and time.monotonic() < ends_s:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
                if not ending:
                    broker.release_slots(owners)
                    return
            await asyncio.sleep(HOLD_S)
