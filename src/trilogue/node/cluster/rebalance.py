"""Plans which slots of a cluster move so that its nodes have about the same load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

import msgspec

from trilogue.meta import slot_loads
from trilogue.meta.leases import RELEASED, read_leases
from trilogue.meta.postgres_connection import Connection
from trilogue.meta.slot_moves import SlotOwners
from trilogue.node.supervisor.slot_plans import plan_rebalance, weigh_slots

LIVING_S: Final = 5.0  # a node that renews its lease within this time lives
LOOK_S: Final = 0.1


class RebalancePlan(msgspec.Struct, frozen=True):
    """The moves, and what they are made of."""

    owners: list[int]  # by slot
    living: list[int]  # nodes that have slots moved, or get some
    silent: list[int]  # other nodes
    weights: list[float]  # load by slot
    moves: dict[int, int]  # slot -> its next owner

    def describe(self) -> list[dict[str, Any]]:
        """Return a row for each living node: its slots and its load, before and after."""
        after = [self.moves.get(slot, owner) for slot, owner in enumerate(self.owners)]
        whole = sum(self.weights) or 1.0

        def load(owners: list[int], node_id: int) -> str:
            own = (self.weights[slot] for slot, owner in enumerate(owners) if owner == node_id)
            return f"{100 * sum(own) / whole:.0f}%"

        return [
            {
                "node": node_id,
                "slots": self.owners.count(node_id),
                "load": load(self.owners, node_id),
                "slots_after": after.count(node_id),
                "load_after": load(after, node_id),
            }
            for node_id in self.living
        ]


async def plan_cluster(
    connection: Connection, known: SlotOwners, tolerance: float
) -> RebalancePlan:
    """Return what to move, by bytes/s and partitions of the slots, among the nodes that live."""
    living = await find_living(connection, known.node_ids)
    rates = await slot_loads.read_loads(connection)
    partitions = await slot_loads.count_partitions(connection, len(known.owners))
    weights = weigh_slots(rates, partitions)
    silent = sorted(set(known.node_ids) - living)
    moves = plan_rebalance(known.owners, living, weights, tolerance)
    return RebalancePlan(known.owners, sorted(living), silent, weights, moves)


async def find_living(connection: Connection, node_ids: Collection[int]) -> set[int]:
    """Return the nodes whose leases are renewed while this function looks."""
    first: dict[int, tuple[int, int]] = {}
    living: set[int] = set()
    ends = time.monotonic() + LIVING_S
    while time.monotonic() < ends:
        leases = [each for each in await read_leases(connection) if each.node_id in node_ids]
        for lease in leases:
            seen = first.setdefault(lease.node_id, (lease.epoch, lease.renewals))
            if lease.renewals == RELEASED:
                living.discard(lease.node_id)
            elif seen != (lease.epoch, lease.renewals):
                living.add(lease.node_id)
        if living.issuperset(each.node_id for each in leases if each.renewals != RELEASED):
            break
        await asyncio.sleep(LOOK_S)
    return living
