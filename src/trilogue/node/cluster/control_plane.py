"""What a node of a cluster with `ack=shared` does about slots and other nodes: decisions only.

```
 ClusterView, as it was read ──► ControlPlane.decide() ──► Decision, for SlotWatch to carry out
```

No I/O, and the clock is an argument, so a simulation plays thousands of failures. A wrong decision
costs an attempt: an owner changes only in a transaction that its former owner's epoch fences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from trilogue.meta.leases import GONE_PART, RELEASED, Lease, LeaseWatch

NO_HOME = b"-"  # of LeaseWatch: no directory makes a lease one that is over
WATCHERS = 3  # nodes that read the leases at each look: those with the lowest ids
RARELY_S = 2.0  # for the others, which take their place when they die


class ClusterView(msgspec.Struct, frozen=True):
    """What a node sees at one look."""

    asked_s: float  # before the leases were read, by this process's clock
    leases: Sequence[Lease]
    moves: Mapping[int, int]  # slot -> its next owner, as an operator wants it
    owners: Mapping[int, int]  # slot -> its owner
    served: Collection[int]  # slots that this node serves
    present: Collection[bytes] = ()  # homes of the processes that are connected


class Decision(msgspec.Struct, frozen=True):
    """What a node does now."""

    alive: frozenset[int]
    finished: list[tuple[int, int]]  # moves to remove: slots, and this node
    given: dict[int, int]  # slots that this node hands over, after a flush
    dead: Lease | None  # of the node whose slots this node spreads
    spreads_next: bool  # this node would do it for the next one that dies
    expected: dict[int, int]  # slots of dead nodes, and who is to own them


class ControlPlane:
    """What one node has seen of the leases of all."""

    def __init__(
        self,
        node_id: int,
        lease_s: float,
        spread_after_s: float | None,
        monotonic: Callable[[], float],
    ) -> None:
        """With `spread_after_s` None the slots of dead nodes wait for their node."""
        self.node_id = node_id
        self._spreads = spread_after_s is not None
        after_s, gone_s = spread_after_s or 0, lease_s * GONE_PART
        self._alive = LeaseWatch(lease_s, monotonic, gone_s)
        self._dead = LeaseWatch(lease_s + after_s, monotonic, gone_s + after_s)
        self._is_watcher = True
        self._read_s: float | None = None

    def reset(self) -> None:
        """Forget what was seen: PostgreSQL was away, so nodes could not renew their leases."""
        self._alive.reset()
        self._dead.reset()
        self._read_s = None

    def needs_leases(self, now_s: float, moves: Collection[int]) -> bool:
        """Whether to read the leases now. If all nodes always did, rows would grow with n²."""
        if self._is_watcher or moves or self._read_s is None:
            return True
        return now_s - self._read_s >= RARELY_S

    def decide(self, view: ClusterView) -> Decision:
        """Return what to do, given what was read now."""
        leases = list(view.leases)
        self._read_s = view.asked_s
        over = self._alive.over(leases, NO_HOME, view.asked_s, view.present)
        dead = self._dead.over(leases, NO_HOME, view.asked_s, view.present)
        alive = frozenset(
            each.node_id for each in leases if each not in over and not each.is_recovery
        )
        self._is_watcher = self.node_id in sorted(alive | {self.node_id})[:WATCHERS]
        return Decision(
            alive,
            [
                (slot, to)
                for slot, to in view.moves.items()
                if to == self.node_id and slot in view.served
            ],
            slots_to_give(self.node_id, view.moves, view.served, alive),
            self._node_to_spread(view, dead, alive) if self._spreads else None,
            self._spreads and len(alive) > 1 and self.node_id == min(alive),
            {
                slot: to
                for slot, to in view.moves.items()
                if to in alive and view.owners.get(slot) not in alive
            },
        )

    def _node_to_spread(
        self, view: ClusterView, dead: Sequence[Lease], alive: Collection[int]
    ) -> Lease | None:
        """Return the dead node that this one is to spread: one living node does it, by its id."""
        if self.node_id != min(alive, default=None):
            return None
        owners = set(view.owners.values())
        found = (
            each for each in dead if each.renewals != RELEASED and each.node_id in owners
        )  # one that was stopped in order keeps its slots
        return min(found, key=lambda each: each.node_id, default=None)


def slots_to_give(
    node_id: int, moves: Mapping[int, int], served: Collection[int], alive: Collection[int]
) -> dict[int, int]:
    """Return the slots of a node that are to move, to nodes that are alive."""
    return {
        slot: to for slot, to in moves.items() if to != node_id and to in alive and slot in served
    }
