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

from msgspec.structs import replace

from trilogue.log.errors import LogError
from trilogue.meta import slot_moves
from trilogue.meta.leases import RELEASED, Lease, LeaseWatch, read_leases
from trilogue.meta.postgres_connection import Connection, connect, may_pass
from trilogue.node.background.helper import Helper, HelperDiedError
from trilogue.node.background.helper_process import JobFailedError
from trilogue.node.cluster.place import ClusterPlace, SharedPlace
from trilogue.node.cluster.slot_recovery import SlotRecovery, recover_slots
from trilogue.node.errors import StartError
from trilogue.node.storage import NodePlace

if TYPE_CHECKING:
    from trilogue.broker.topics.ownership import Ownership
    from trilogue.node.node import Node

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
FLUSH_LIMIT_S: Final = 60.0  # object storage may be away: then slots stay where they are
NO_HOME: Final = b"-"  # of LeaseWatch: no directory makes a lease one that is over


class SlotWatch:
    """Looks at moves that are wanted, and at the leases of the other nodes."""

    def __init__(self, node: Node, cluster: ClusterPlace, shared: SharedPlace) -> None:
        self._node = node
        self._cluster = cluster
        self._shared = shared
        self._alive = LeaseWatch(shared.lease_s, time.monotonic)
        self._dead = LeaseWatch(shared.lease_s + (shared.spread_after_s or 0), time.monotonic)
        self._recovery: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._prepared: dict[int, int] = {}  # moves to this node that it has flushed for

    async def run(self) -> None:
        """Look again and again, until the node is to start again."""
        try:
            await self._watch()
        finally:
            self._close()

    async def _watch(self) -> None:
        wanted = self._node.hand_over.wanted
        while not wanted.is_set():
            try:
                self._connection = self._connection or await connect(self._cluster.url)
                await self._look(self._connection)
            except Exception as error:
                if not may_pass(error):
                    raise
                log.debug("slots.not_watched", extra={"reason": repr(error)})
                self._disconnect()
                self._alive.reset()
                self._dead.reset()
            await asyncio.sleep(LOOK_S)

    def _close(self) -> None:
        """End a recovery and close the connection."""
        if self._recovery is not None:
            self._recovery.cancel()
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
        self._recover_dead(leases, alive)
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

    # -- dead nodes

    def _recover_dead(self, leases: list[Lease], alive: Collection[int]) -> None:
        """Begin to give the slots of a dead node away, if this is the node to do it."""
        dead = self._dead.over(leases, NO_HOME)
        if self._shared.spread_after_s is None or not self._is_idle:
            return
        owners = self._ownership.slots_by_node()
        found = [
            each for each in dead if each.renewals != RELEASED and owners.get(each.node_id)
        ]  # one that was stopped in order keeps its slots
        if not found or self._ownership.node_id != min(alive, default=0):
            return
        lease = min(found, key=lambda each: each.node_id)
        shared = replace(self._shared, is_standby=False, after_epoch=lease.epoch)
        place = NodePlace(lease.node_id, cluster=replace(self._cluster, shared=shared))
        job = SlotRecovery(self._node.settings, place, tuple(sorted(alive)))
        self._recovery = asyncio.create_task(self._recover(job))

    @property
    def _is_idle(self) -> bool:
        return self._recovery is None or self._recovery.done()

    async def _recover(self, job: SlotRecovery) -> None:
        began = time.monotonic()
        extra: dict[str, object] = {"node": job.place.node_id}
        log.warning("slots.recovering", extra=extra)
        helper = Helper(niceness=0)
        try:
            extra["slots"] = await helper.run(recover_slots, job)
        except (StartError, LogError, OSError, HelperDiedError, JobFailedError) as error:
            log.warning("slots.not_recovered", extra=extra | {"reason": str(error)})
        else:
            log.info(
                "slots.recovered", extra=extra | {"took_s": round(time.monotonic() - began, 3)}
            )
        finally:
            await helper.close()

    async def _flush(self) -> bool:
        """Flush while serving; return whether that is done in time."""
        try:
            async with asyncio.timeout(FLUSH_LIMIT_S):
                await self._node.flusher.flush_all()
        except TimeoutError:
            log.warning("slots.not_flushed", extra={"limit_s": FLUSH_LIMIT_S})
            return False
        return True
