"""Which node owns what: partitions, groups and transactional ids belong to slots, slots to nodes.

The rows are meta's, so the answers move when meta's state moves. With one node there is one slot.
While the slots of a dead node are recovered, clients go to their next owners (`expect`) and wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct

from trilogue.broker.facts import (
    BATCH_KEY,
    CURSOR_KEY,
    GROUP_KEY,
    MEMBER_KEY,
    PENDING_KEY,
    TRANSACTION_KEY,
    Protocol,
)
from trilogue.broker.promise import Promise
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.meta.state import MetaState, partition_slot

COPIES_MAX = 3  # nodes that are listed as having a partition
PARTITION_AT = 1  # in the keys of snapshots that begin with a partition id
_PARTITION_ID = Struct(">Q")
_NAME_SIZE = Struct(">H")
NAMED = frozenset({GROUP_KEY, TRANSACTION_KEY, BATCH_KEY})  # the rest of the key is the name


class Ownership:
    """The owners of one moment, as meta has them."""

    __slots__ = (
        "_expected",
        "_given",
        "_held",
        "_leaving",
        "_state",
        "generation",
        "has_own_files",
        "has_own_segments",
        "is_kept_elsewhere",
        "next_change",
    )

    def __init__(self, state: MetaState) -> None:
        self._state = state
        self.has_own_segments = False  # each node has its segments where no other one has access
        self.has_own_files = False  # so it has those that are not in object storage
        self.is_kept_elsewhere = False  # what is acknowledged: any node can serve any slot
        self._held: frozenset[int] | None = None  # slots whose state this process has; None = all
        self._leaving: frozenset[int] = frozenset()  # slots that are on their way to another node
        self._given: frozenset[int] = frozenset()  # slots that this process has given away
        self._expected: dict[int, int] = {}  # next owners of slots whose owner is dead
        self.next_change: Promise[None] = Promise()  # of the slots that are expected or served
        self.generation = 0  # moves when meta has other owners or epochs; for caches

    def hold(self) -> None:
        """Serve no slot but those of now, and those that `adopt` adds with their state."""
        self._held = frozenset(slot for slot in self._state.slots if self._state.owns(slot))

    def adopt(self, slots: Collection[int]) -> None:
        """Serve more slots of this node: their state is read."""
        if self._held is not None:
            self._held |= frozenset(slots)
        self._given -= frozenset(slots)
        self._note_change()

    def expect(self, next_owners: Mapping[int, int]) -> None:
        """Name the next owners of the slots of dead nodes: clients go there, and wait there."""
        node_ids = self.node_ids
        known = {slot: each for slot, each in next_owners.items() if each in node_ids}
        if known != self._expected:
            self._expected = known
            self._note_change()

    @property
    def is_expecting(self) -> bool:
        """Whether slots of a dead node are to be this node's."""
        return self._state.node_id in self._expected.values()

    def expects_slot(self, slot: int) -> bool:
        """Whether a slot is to be this node's, and is not served yet."""
        return self._expected.get(slot) == self._state.node_id and not self.owns_slot(slot)

    def _note_change(self) -> None:
        self.generation += 1
        changed, self.next_change = self.next_change, Promise()
        changed.set_result(None)

    def release(self, slots: Collection[int]) -> None:
        """Serve some slots no more, which another node is to own: `note_given` must follow."""
        assert self._held is not None, "this node serves whatever it owns"
        self._held -= frozenset(slots)
        self._leaving |= frozenset(slots)
        self.generation += 1

    def note_given(self, slots: Collection[int]) -> None:
        """Note that meta has another owner for slots that were released."""
        self._leaving -= frozenset(slots)
        self._given |= frozenset(slots)
        self.generation += 1

    def has_left(self, name: str) -> bool:
        """Whether the slot of a name has left this process, or is leaving it."""
        gone = self._leaving | self._given
        return bool(gone) and self.slot_of(name) in gone

    @property
    def has_given(self) -> bool:
        """Whether this process has given slots away that it has not got back."""
        return bool(self._given)

    def is_given_row(self, key: bytes) -> bool:
        """Whether the row of a flush cut is of a slot that this process has given away."""
        return self.snapshot_slot(key) in self._given

    def owns_slot(self, slot: int) -> bool:
        """Whether this node serves a slot: it is the owner, and has the slot's state."""
        row = self._state.slots.get(slot)
        is_owner = row is not None and row.node_id == self._state.node_id
        return is_owner and (self._held is None or slot in self._held)

    @property
    def gained(self) -> list[int]:
        """The slots that this node owns and does not serve: their state is not read yet."""
        owned = (each for each in self._state.slots if self._state.owns(each))
        return [each for each in owned if each not in self._leaving and not self.owns_slot(each)]

    def slot_owners(self) -> dict[int, int]:
        """Return the owner of each slot."""
        return {slot: row.node_id for slot, row in self._state.slots.items()}

    def served_slots(self) -> list[int]:
        """Return the slots that this node serves."""
        return [each for each in self._state.slots if self.owns_slot(each)]

    @property
    def node_id(self) -> int:
        """The id of this node."""
        return self._state.node_id

    @property
    def is_alone(self) -> bool:
        """Whether this node owns everything."""
        return all(map(self.owns_slot, self._state.slots))

    @property
    def is_master(self) -> bool:
        """Whether this node is TubeMQ's active master: the owner of the first slot."""
        return self.owns_slot(0)

    @property
    def master_id(self) -> int:
        """The id of the node with TubeMQ's active master."""
        return self._state.slots[0].node_id

    def slots_by_node(self) -> dict[int, list[int]]:
        """Return the slots of each node that owns any."""
        found: dict[int, list[int]] = {}
        for slot, row in self._state.slots.items():
            found.setdefault(row.node_id, []).append(slot)
        return found

    @property
    def is_divided(self) -> bool:
        """Whether there are several slots, which may have several owners."""
        return len(self._state.slots) > 1

    def partition_owner(self, partition_id: int) -> int:
        """Return the id of the node that serves a partition."""
        return self._state.slots[self._slot(partition_id)].node_id

    def partition_leader(self, partition_id: int) -> int:
        """Return the id of the node that clients of a partition go to."""
        return self.slot_leader(self._slot(partition_id))

    def slot_leader(self, slot: int) -> int:
        """Return the id of the node that clients of a slot go to: its owner, or the next one."""
        return self._expected.get(slot, self._state.slots[slot].node_id)

    def partition_epoch(self, partition_id: int) -> int:
        """Return the epoch of the owner: Kafka's leader epoch."""
        return self._state.slots[self._slot(partition_id)].epoch

    def owns_partition(self, partition_id: int) -> bool:
        """Whether this node serves a partition."""
        return self.owns_slot(self._slot(partition_id))

    @property
    def serves_any(self) -> bool:
        """Whether this node serves a slot."""
        return any(map(self.owns_slot, self._state.slots))

    def partition_slot(self, partition_id: int) -> int:
        """Return the slot of a partition."""
        return self._slot(partition_id)

    def owns_new_topic(self, topic_id: bytes) -> bool:
        """Whether this node will serve the first partition of a topic with this id."""
        return self.owns_slot(partition_slot(topic_id, 0, len(self._state.slots)))

    def name_owner(self, name: str) -> int:
        """Return the id of the node that coordinates a group or a transactional id."""
        return self._state.slots[self._state.slot_of(name)].node_id

    def name_leader(self, name: str) -> int:
        """Return the id of the node that members of a group, or users of an id, go to."""
        return self.slot_leader(self._state.slot_of(name))

    def owns_name(self, name: str) -> bool:
        """Whether this node coordinates a group or a transactional id."""
        return self.owns_slot(self._state.slot_of(name))

    @property
    def copies_max(self) -> int:
        """How many nodes can serve a partition with all that is acknowledged."""
        return len(self.node_ids) if self.is_kept_elsewhere else 1

    def copies_by_owner(self) -> dict[int, list[int]]:
        """Return by owner the nodes that are listed for its partitions: the owner first."""
        node_ids = self.node_ids
        count = min(COPIES_MAX, self.copies_max)
        ring = node_ids * 2
        return {node_id: ring[at : at + count] for at, node_id in enumerate(node_ids)}

    @property
    def slot_count(self) -> int:
        """The number of slots."""
        return len(self._state.slots)

    def slot_of(self, name: str) -> int:
        """Return the slot of a group or a transactional id."""
        return self._state.slot_of(name)

    def slot_owner(self, slot: int) -> int | None:
        """Return the id of the node that owns a slot; None if there is no such slot."""
        row = self._state.slots.get(slot)
        return None if row is None else row.node_id

    def listeners(self, node_id: int) -> Mapping[str, str]:
        """Return the addresses of a node for clients, by listener; none before its first start."""
        row = self._state.nodes.get(node_id)
        return {} if row is None else row.listeners

    @property
    def node_ids(self) -> list[int]:
        """The ids of the nodes that own slots, in order."""
        return sorted({row.node_id for row in self._state.slots.values()})

    def owns_snapshot(self, key: bytes) -> bool:
        """Whether the row of a flush cut (broker/facts.py) belongs to this node."""
        return self.owns_slot(self.snapshot_slot(key))

    def snapshot_slot(self, key: bytes) -> int:
        """Return the slot that the row of a flush cut belongs to."""
        if len(self._state.slots) == 1:
            return 0
        kind = key[:1]
        if kind in NAMED:
            return self.slot_of(key[1:].decode())
        if kind in {MEMBER_KEY, PENDING_KEY}:
            (size,) = _NAME_SIZE.unpack_from(key, 1)
            return self.slot_of(key[3 : 3 + size].decode())
        at = PARTITION_AT
        if kind == CURSOR_KEY:
            if key[1] == Protocol.KAFKA:
                return self.slot_of(key[2 + _PARTITION_ID.size :].decode())
            at += 1
        (partition_id,) = _PARTITION_ID.unpack_from(key, at)
        return self._slot(partition_id)

    def owns_segment(self, segment: SegmentInfo) -> bool:
        """Whether no other node owns a partition that has entries in a segment."""
        if self._is_private(segment):
            return segment.node_id == self._state.node_id
        if self.is_alone:
            return True
        partitions = self._state.partitions
        return all(
            self.owns_partition(each) for each in segment.partitions.ids if each in partitions
        )

    def reads_segment(self, segment: SegmentInfo) -> bool:
        """Whether a segment has entries of this node's partitions, or of none that is left."""
        if self._is_private(segment):
            return segment.node_id == self._state.node_id
        if self.is_alone:
            return True
        partitions, left = self._state.partitions, False
        for partition_id in segment.partitions.ids:
            if partition_id in partitions:
                left = True
                if self.owns_partition(partition_id):
                    return True
        return not left and self.owns_slot(0)

    def retires_segment(self, segment: SegmentInfo) -> bool:
        """Whether this node removes a segment without live entries: one node does."""
        if self._is_private(segment):
            return segment.node_id == self._state.node_id
        partitions = self._state.partitions
        first = next((each for each in segment.partitions.ids if each in partitions), None)
        return self.is_alone or first is None or self.owns_partition(first)

    def _is_private(self, segment: SegmentInfo) -> bool:
        """Whether no node but the one that wrote a segment can read it."""
        return self.has_own_segments or (self.has_own_files and not segment.store)

    def _slot(self, partition_id: int) -> int:
        row = self._state.partitions.get(partition_id)
        return 0 if row is None else row.slot
