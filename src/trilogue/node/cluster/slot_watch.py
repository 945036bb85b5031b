"""Moves slots between the nodes of a cluster with `ack=shared`, and spreads those of dead nodes.

```
 slot_moves has a slot of this node      flush while serving, hand it over, start again without it
 meta has a slot that is new here        start again with it
 a lease is over, and stays over         serve as that node without listeners, in a helper process:
                                         flush its journal, hand its slots over to the living
```

Every node does this, and several may try at once: a slot changes its owner only in a transaction
that is fenced by the epoch of its former owner (hand_over.py, slot_recovery.py). What is seen here
says when to try.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from trilogue.meta import slot_moves
from trilogue.meta.leases import LeaseWatch, read_leases
from trilogue.meta.postgres_connection import Connection, connect, may_pass

if TYPE_CHECKING:
    from trilogue.broker.topics.ownership import Ownership
    from trilogue.node.node import Node

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
FLUSH_LIMIT_S: Final = 60.0  # object storage may be away: then slots stay where they are
NO_HOME: Final = b"-"  # of LeaseWatch: no directory makes a lease one that is over


class SlotWatch:
    """Looks at moves that are wanted, and at the leases of the other nodes."""

    def __init__(self, node: Node, url: str, lease_s: float) -> None:
        self._node = node
        self._url = url
        self._alive = LeaseWatch(lease_s, time.monotonic)
        self._connection: Connection | None = None
        self._prepared: dict[int, int] = {}  # moves to this node that it has flushed for

    async def run(self) -> None:
        """Look again and again, until the node is to start again."""
        wanted = self._node.hand_over.wanted
        while not wanted.is_set():
            try:
                self._connection = self._connection or await connect(self._url)
                await self._look(self._connection)
            except Exception as error:
                if not may_pass(error):
                    raise
                log.debug("slots.not_watched", extra={"reason": repr(error)})
                self._disconnect()
                self._alive.reset()
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    @property
    def _ownership(self) -> Ownership:
        return self._node.storage.broker.cluster.ownership

    async def _look(self, connection: Connection) -> None:
        self._node.hand_over.follow(self._ownership)
        moves = await slot_moves.read_moves(connection)
        leases = await read_leases(connection)
        over = self._alive.over(leases, NO_HOME)
        alive = {each.node_id for each in leases if each not in over}
        await self._finish_moves(connection, moves)
        if given := self._given(moves, alive):
            await self._give(connection, given, alive)
        elif moves:
            await self._prepare(moves)

    def _given(self, moves: Mapping[int, int], alive: Collection[int]) -> dict[int, int]:
        """Return the slots of this node that are to move, to nodes that are alive."""
        owned, node_id = self._ownership.owns_slot, self._ownership.node_id
        return {
            slot: to for slot, to in moves.items() if to != node_id and to in alive and owned(slot)
        }

    async def _finish_moves(self, connection: Connection, moves: Mapping[int, int]) -> None:
        """Remove the moves to this node that are done."""
        ownership = self._ownership
        done = [
            (slot, to)
            for slot, to in moves.items()
            if to == ownership.node_id and ownership.owns_slot(slot)
        ]
        if done:
            await slot_moves.remove_moves(connection, done)

    async def _prepare(self, moves: Mapping[int, int]) -> None:
        """Flush before slots come: the start that follows has less to read and to flush."""
        to_this = {slot: to for slot, to in moves.items() if to == self._ownership.node_id}
        if to_this and to_this != self._prepared:
            self._prepared = to_this
            await self._flush()

    async def _give(
        self, connection: Connection, given: Mapping[int, int], alive: Collection[int]
    ) -> None:
        if not await self._flush():
            return
        moves = await slot_moves.read_moves(connection)  # some may not be wanted any more
        still = {slot: to for slot, to in self._given(moves, alive).items() if slot in given}
        if still and not self._node.failed.is_set():
            log.info("slots.moving", extra={"slots": still})
            self._node.hand_over.request(still)

    async def _flush(self) -> bool:
        """Flush while serving; return whether that is done in time."""
        try:
            async with asyncio.timeout(FLUSH_LIMIT_S):
                await self._node.flusher.flush_all()
        except TimeoutError:
            log.warning("slots.not_flushed", extra={"limit_s": FLUSH_LIMIT_S})
            return False
        return True
