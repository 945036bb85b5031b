"""Moves slots between the nodes of a cluster with `ack=shared`, and spreads those of dead nodes.

```
 slot_moves has a slot of this node      flush it and give it away while serving (slot_release.py)
 meta has a slot that is new here        adopt it while serving (adoption.py)
 a lease is over, and stays over         serve as that node without listeners, in a helper process:
                                         flush its journal, hand its slots over to the living
 slot_moves has a slot of a dead node    send its clients to the next owner, where they wait
```

Every node does this, and several may try at once: a slot changes its owner only in a transaction
that is fenced by the epoch of its former owner (slot_release.py, slot_recovery.py). What is seen
here says when to try.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from trilogue.log.errors import LogError
from trilogue.meta import slot_loads, slot_moves
from trilogue.meta.leases import Lease, read_leases, read_presence
from trilogue.meta.postgres_connection import Connection, connect, may_pass
from trilogue.node.background.helper import Helper, HelperDiedError
from trilogue.node.background.helper_process import JobFailedError
from trilogue.node.cluster.control_plane import ClusterView, ControlPlane, slots_to_give
from trilogue.node.cluster.place import ClusterPlace, SharedPlace
from trilogue.node.cluster.slot_rates import SlotRates
from trilogue.node.cluster.slot_recovery import SlotRecovery, prepare_recovery, recover_slots
from trilogue.node.cluster.slot_release import SlotRelease
from trilogue.node.errors import StartError
from trilogue.node.storage import NodePlace
from trilogue.node.supervisor.slot_plans import spread_over

if TYPE_CHECKING:
    from trilogue.broker.topics.ownership import Ownership
    from trilogue.node.node import Node

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
FLUSH_LIMIT_S: Final = 60.0  # object storage may be away: then slots stay where they are
KEPT_S: Final = 30 * 86_400.0  # a process without a recovery


class SlotWatch:
    """Looks at moves that are wanted, and at the leases of the other nodes."""

    def __init__(self, node: Node, cluster: ClusterPlace, shared: SharedPlace) -> None:
        self._node = node
        self._cluster = cluster
        self._shared = shared
        self._plane = ControlPlane(
            self._ownership.node_id, shared.lease_s, shared.spread_after_s, time.monotonic
        )
        self._alive: frozenset[int] = frozenset()
        self._release = SlotRelease(node)
        self._rates = SlotRates(node.storage.broker.cluster, time.monotonic)
        self._recovery: asyncio.Task[None] | None = None
        self._withdrawn: dict[int, int] = {}  # moves that a recovery did not do
        self._helper = _new_helper()
        self._warming: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._read_s = 0.0
        self._leases: list[Lease] = []
        self._present: frozenset[bytes] = frozenset()

    async def run(self) -> None:
        """Look again and again, until the node is to start again."""
        try:
            await self._watch()
        finally:
            self._close()
            if self._warming is not None:
                self._warming.cancel()
                await asyncio.gather(self._warming, return_exceptions=True)
            await self._helper.close()

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
                self._plane.reset()
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
        ownership = self._ownership
        asked_s = time.monotonic()
        moves = await slot_moves.read_moves(connection)
        if self._plane.needs_leases(asked_s, moves):
            self._present = await read_presence(connection)
            self._leases = await read_leases(connection)
            self._read_s = asked_s
        view = ClusterView(
            self._read_s,
            self._leases,
            moves,
            ownership.slot_owners(),
            ownership.served_slots(),
            self._present,
        )
        decision = self._plane.decide(view)
        self._alive = decision.alive
        if self._withdrawn:
            await slot_moves.remove_moves(connection, self._withdrawn.items())
            self._withdrawn = {}
        ownership.expect(decision.expected)
        if decision.dead is not None and self._is_idle:
            await self._begin_recovery(connection, decision.dead)
        if decision.spreads_next and self._warming is None:
            self._warming = asyncio.create_task(self._warm())
        if decision.finished:
            await slot_moves.remove_moves(connection, decision.finished)
        if self._rates.is_due and (rates := await self._rates.read()):
            await slot_loads.write_loads(connection, rates)
        if decision.given:
            await self._give(connection, decision.given)

    async def _give(self, connection: Connection, given: Mapping[int, int]) -> None:
        if not await self._flush():
            return
        moves = await slot_moves.read_moves(connection)  # some may not be wanted any more
        served = self._ownership.served_slots()
        now = slots_to_give(self._ownership.node_id, moves, served, self._alive)
        still = {slot: to for slot, to in now.items() if slot in given}
        if still and not self._node.failed.is_set():
            log.info("slots.moving", extra={"slots": still})
            await self._release.give(still)

    # -- dead nodes

    async def _begin_recovery(self, connection: Connection, lease: Lease) -> None:
        """Begin to give the slots of a dead node away; all nodes read who is to have them."""
        shared = replace(
            self._shared,
            is_standby=False,
            is_recovery=True,
            after_epoch=lease.epoch,
            after_renewals=lease.renewals,
        )
        place = NodePlace(lease.node_id, cluster=replace(self._cluster, shared=shared))
        others = tuple(sorted(self._alive))
        job = SlotRecovery(self._node.settings, place, others)
        owners = [owner for _, owner in sorted(self._ownership.slot_owners().items())]
        planned = spread_over(owners, lease.node_id, others)
        self._recovery = asyncio.create_task(self._recover(job, planned))
        await slot_moves.request_moves(connection, planned)
        self._ownership.expect(planned)

    @property
    def _is_idle(self) -> bool:
        return self._recovery is None or self._recovery.done()

    async def _recover(self, job: SlotRecovery, planned: dict[int, int]) -> None:
        began = time.monotonic()
        extra: dict[str, object] = {"node": job.place.node_id}
        log.warning("slots.recovering", extra=extra)
        helper, self._helper = self._helper, _new_helper()
        try:
            extra["slots"] = await helper.run(recover_slots, job)
        except (StartError, LogError, OSError, HelperDiedError, JobFailedError) as error:
            log.warning("slots.not_recovered", extra=extra | {"reason": str(error)})
            self._withdrawn = planned
        else:
            if not extra["slots"]:
                self._withdrawn = planned  # another process does it
            log.info(
                "slots.recovered", extra=extra | {"took_s": round(time.monotonic() - began, 3)}
            )
        finally:
            self._warming = None
            await helper.close()

    async def _warm(self) -> None:
        """Start the process of the next recovery now: its imports take as long as all the rest."""
        try:
            await self._helper.run(prepare_recovery, self._cluster.url)
        except (LogError, OSError, HelperDiedError, JobFailedError) as error:
            log.warning("slots.not_prepared", extra={"reason": str(error)})

    async def _flush(self) -> bool:
        """Flush while serving; return whether that is done in time."""
        try:
            async with asyncio.timeout(FLUSH_LIMIT_S):
                await self._node.flusher.flush_all()
        except TimeoutError:
            log.warning("slots.not_flushed", extra={"limit_s": FLUSH_LIMIT_S})
            return False
        return True


def _new_helper() -> Helper:
    return Helper(niceness=0, idle_limit_s=KEPT_S)
