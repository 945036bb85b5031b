"""The state of metadata in plain dicts, and the rules of every change of it.

Each store holds a `MetaState`; the rules are here once, so that memory and SQLite cannot differ.
`apply_change` does all operations or none: every write to a dict records the former value, so a
change can be undone when a later operation, or the disk, refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec
from msgspec.structs import replace

from trilogue.log.segments.extents import Extents
from trilogue.log.segments.manifest import Manifest, ManifestTopic, PartitionRange
from trilogue.log.segments.segment_info import SegmentInfo, without
from trilogue.log.transactions import stable_end_of
from trilogue.meta import operations
from trilogue.meta.errors import Fenced, InvalidChange, PreconditionFailed
from trilogue.meta.operations import (
    INT_MAX,
    IdBlock,
    NodeRow,
    PartitionState,
    SlotRow,
    TopicKey,
    TopicRow,
)

VERSION = "version"
SLOTS_MAX = 4_096
SNAPSHOTS = "snapshots"  # a table that is not kept in memory
REMOVED: Final = object()  # in place of a row's value: the row is removed

Write: TypeAlias = tuple[str, Any, Any]  # table, key, value or REMOVED


class MetaState(msgspec.Struct):
    """Rows by their keys. Only a store changes them."""

    cluster_id: bytes
    node_id: int  # of this process
    node_epoch: int  # of this process; `nodes` has a higher one if it was started again since
    nodes: dict[int, NodeRow] = msgspec.field(default_factory=dict)
    slots: dict[int, SlotRow] = msgspec.field(default_factory=dict)  # 0 .. count - 1
    topics: dict[TopicKey, TopicRow] = msgspec.field(default_factory=dict)
    topic_keys: dict[bytes, TopicKey] = msgspec.field(default_factory=dict)  # by topic id
    partitions: dict[int, PartitionState] = msgspec.field(default_factory=dict)
    segments: dict[int, SegmentInfo] = msgspec.field(default_factory=dict)
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    next_ids: dict[str, int] = msgspec.field(default_factory=dict)  # by kind; the first id is 1
    counters: dict[str, int] = msgspec.field(default_factory=lambda: {VERSION: 0})

    @classmethod
    def new(cls, cluster_id: bytes, node_id: int, node_epoch: int) -> MetaState:
        """Return the state of a new cluster: one node, and one slot that it owns."""
        nodes, slots = {node_id: NodeRow(node_epoch)}, {0: SlotRow(node_id, node_epoch)}
        return cls(cluster_id, node_id, node_epoch, nodes, slots)

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self.counters[VERSION]

    @property
    def flushed_through(self) -> int:
        """The last frame of this node's journal that is in segments and snapshots."""
        return self.nodes[self.node_id].flushed_through

    def owns(self, slot: int) -> bool:
        """Whether this node is the owner of a slot."""
        return self.slots[slot].node_id == self.node_id

    def slot_of(self, name: str) -> int:
        """Return the slot of a group or a transactional id."""
        return name_slot(name, len(self.slots))

    def partition_range(self, partition_id: int) -> PartitionRange | None:
        """Return the range of a partition that is in segments; None if there is no such one."""
        row = self.partitions.get(partition_id)
        return None if row is None else _range_of(row)

    def copy(self) -> MetaState:
        """Return a second state that moves on its own; the rows themselves are immutable."""
        return MetaState(
            self.cluster_id,
            self.node_id,
            self.node_epoch,
            dict(self.nodes),
            dict(self.slots),
            dict(self.topics),
            dict(self.topic_keys),
            dict(self.partitions),
            dict(self.segments),
            dict(self.settings),
            dict(self.next_ids),
            dict(self.counters),
        )

    def manifest(self) -> Manifest:
        """Return what exists, for the log's start and for readers without a broker."""
        return Manifest(
            self.cluster_id,
            self.version,
            self.flushed_through,
            tuple(
                ManifestTopic(row.tenant, row.namespace, row.name, row.topic_id, row.partitions)
                for row in self.topics.values()
            ),
            {partition_id: _range_of(each) for partition_id, each in self.partitions.items()},
            tuple(self.segments.values()),
        )


def _range_of(state: PartitionState) -> PartitionRange:
    start, end, transactions = state.start_offset, state.flushed_end, state.open_transactions
    stable_end = stable_end_of(transactions, start, end) if transactions else end
    return PartitionRange(start, end, stable_end, open_transactions=transactions)


class StateChange:
    """The effect of one change on a state: the rows it wrote, and how to undo it.

    The rows written are all that a store has to make durable, so a store needs no rules.
    """

    __slots__ = ("_undo", "blocks", "state", "version", "writes")

    def __init__(self, state: MetaState) -> None:
        self.state = state
        self.blocks: list[IdBlock] = []
        self.version = 0
        self.writes: list[Write] = []
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: str, key: object, value: object) -> None:
        """Write one row; REMOVED removes it."""
        rows: dict[Any, Any] = getattr(self.state, table)
        self._undo.append((rows, key, rows.get(key, REMOVED)))
        _set(rows, key, value)
        self.writes.append((table, key, value))

    def pass_on(self, table: str, key: object, value: object) -> None:
        """Write one row of a table that is not kept in memory."""
        self.writes.append((table, key, value))

    def undo(self) -> None:
        """Restore the former state; only for the newest change of a state."""
        while self._undo:
            _set(*self._undo.pop())


def _set(rows: dict[Any, Any], key: object, value: object) -> None:
    if value is REMOVED:
        rows.pop(key, None)
    else:
        rows[key] = value


def apply_writes(state: MetaState, writes: Iterable[Write]) -> None:
    """Apply the writes of a change to a second state."""
    for table, key, value in writes:
        if table != SNAPSHOTS:
            _set(getattr(state, table), key, value)


def apply_change(
    state: MetaState,
    ops: Sequence[operations.Op],
    preconditions: Sequence[operations.Precondition] = (),
    fence: operations.Fence | None = None,
) -> StateChange:
    """Apply all operations to a state, or raise and leave it as it was."""
    if len(ops) > operations.OPS_MAX:
        raise InvalidChange(f"{len(ops)} operations in one change, at most {operations.OPS_MAX}")
    if fence is not None:
        node = state.nodes.get(fence.node_id)
        if node is None or node.epoch != fence.node_epoch:
            raise Fenced(f"{fence} writes, but the node is {node}")
    for precondition in preconditions:
        if not _holds(state, precondition):
            raise PreconditionFailed(repr(precondition))
    made = StateChange(state)
    try:
        for op in ops:
            _apply(made, op)
    except BaseException:
        made.undo()
        raise
    made.version = state.version + 1
    made.put("counters", VERSION, made.version)
    return made


def _apply(made: StateChange, op: operations.Op) -> None:
    rule = RULES.get(type(op))
    if rule is None:
        raise InvalidChange(f"unknown operation {type(op).__name__}")
    try:
        rule(made, op)
    except (TypeError, AttributeError, ValueError) as error:
        raise InvalidChange(f"malformed {type(op).__name__}: {error}") from error


def _holds(state: MetaState, precondition: operations.Precondition) -> bool:
    match precondition:
        case operations.TopicAbsent(tenant, namespace, name):
            return (tenant, namespace, name) not in state.topics
        case operations.TopicIs(tenant, namespace, name, topic_id, epoch):
            row = state.topics.get((tenant, namespace, name))
            return row is not None and row.topic_id == topic_id and row.epoch == epoch
        case operations.PartitionExists(partition_id):
            return partition_id in state.partitions
        case operations.SegmentExists(segment_id):
            return segment_id in state.segments
        case operations.SettingIs(key, value):
            return state.settings.get(key) == value
        case operations.FlushedThroughIs(sequence):
            return state.flushed_through == sequence
        case unknown:  # not assert_never: what is not enforced is refused, also at run time
            raise InvalidChange(f"unknown precondition {type(unknown).__name__}")


# ── the rules, one per operation ──────────────────────────────────────────────────────────────


def _rule(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidChange(message)


def _counts(*numbers: int) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number <= INT_MAX:
            raise InvalidChange(f"{number!r} is not a number from 0 to 2^63 - 1")


def _texts(texts: Iterable[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise InvalidChange(f"{text!r} is not a text") from error


def _put_topic(made: StateChange, op: operations.PutTopic) -> None:
    row, state = op.topic, made.state
    _texts(row.key)
    _texts(row.settings)
    _texts(row.settings.values())
    _counts(row.created_ms, row.epoch, *row.partitions)
    _rule(all(row.key), f"a topic needs a tenant, a namespace and a name: {row.key}")
    _rule(len(row.topic_id) == 16, "a topic id has 16 bytes")
    _rule(len(set(row.partitions)) == len(row.partitions) > 0, "partition ids repeat or are none")
    _rule(row.partitioned or len(row.partitions) == 1, "an unpartitioned topic has one partition")
    used = state.next_ids.get("partition", 1)
    for partition_id in row.partitions:
        _rule(0 < partition_id < used, f"partition id {partition_id} was never allocated")
        there = state.partitions.get(partition_id)
        _rule(
            there is None or there.topic_id == row.topic_id,
            f"partition id {partition_id} belongs to another topic",
        )
    owner = state.topic_keys.get(row.topic_id, row.key)
    _rule(owner == row.key, f"the topic id belongs to {owner}")
    before = state.topics.get(row.key)
    _rule(
        before is None or before.topic_id == row.topic_id,
        f"another topic has the name {row.key}: delete it first",
    )
    for partition_id in before.partitions if before else ():
        if partition_id not in row.partitions:
            made.put("partitions", partition_id, REMOVED)
    for number, partition_id in enumerate(row.partitions):
        if partition_id not in state.partitions:
            slot = partition_slot(row.topic_id, number, len(state.slots))
            made.put("partitions", partition_id, PartitionState(row.topic_id, 0, 0, slot=slot))
    made.put("topics", row.key, row)
    made.put("topic_keys", row.topic_id, row.key)


def _delete_topic(made: StateChange, op: operations.DeleteTopic) -> None:
    key = (op.tenant, op.namespace, op.name)
    row = made.state.topics.get(key)
    if row is None:
        raise InvalidChange(f"there is no topic {key}")
    for partition_id in row.partitions:
        made.put("partitions", partition_id, REMOVED)
    made.put("topic_keys", row.topic_id, REMOVED)
    made.put("topics", key, REMOVED)


def _put_segment(made: StateChange, op: operations.PutSegment) -> None:
    segment, state = op.segment, made.state
    numbers = (segment.level, segment.size, segment.node_id, segment.node_epoch)
    _counts(segment.segment_id, *numbers, segment.created_ms, segment.footer_position)
    _counts(segment.footer_size, segment.first_sequence, segment.last_sequence)
    _texts([segment.name, segment.store])
    _rule(type(segment.partitions) is Extents, "extents are packed")
    _counts(*segment.hidden)
    used = state.next_ids.get("segment", 1)
    _rule(0 < segment.segment_id < used, f"segment id {segment.segment_id} was never allocated")
    before = state.segments.get(segment.segment_id)
    _rule(before is None or _is_less(before, segment), f"segment {segment.segment_id} exists")
    made.put("segments", segment.segment_id, segment)


def _is_less(before: SegmentInfo, after: SegmentInfo) -> bool:
    """Whether a segment counts for no more partitions than before and is the same otherwise."""
    gone = sorted(set(before.partitions) - set(after.partitions))
    expected = without(before, gone)
    return after == replace(expected, store=after.store)


def _delete_segment(made: StateChange, op: operations.DeleteSegment) -> None:
    _rule(op.segment_id in made.state.segments, f"there is no segment {op.segment_id}")
    made.put("segments", op.segment_id, REMOVED)


def _put_partition_state(made: StateChange, op: operations.PutPartitionState) -> None:
    before = made.state.partitions.get(op.partition_id)
    if before is None:
        return
    start = max(before.start_offset, op.start_offset or 0)
    flushed = before.flushed_end if op.flushed_end is None else op.flushed_end
    compacted = before.compacted_end if op.compacted_end is None else op.compacted_end
    transactions = op.open_transactions
    if transactions is None:
        transactions = before.open_transactions
    elif transactions:
        _counts(*chain.from_iterable(transactions))
    _counts(op.start_offset or 0, flushed, compacted)
    if flushed < before.flushed_end or compacted < before.compacted_end:
        raise InvalidChange(f"partition {op.partition_id} would go back from {before}")
    after = PartitionState(before.topic_id, start, flushed, compacted, transactions, before.slot)
    made.put("partitions", op.partition_id, after)


def _put_snapshot(made: StateChange, op: operations.PutSnapshot) -> None:
    _rule(type(op.key) is bytes and type(op.value) is bytes, "snapshots are bytes")
    _rule(len(op.key) + len(op.value) <= operations.VALUE_SIZE_MAX, "the snapshot is too large")
    made.pass_on(SNAPSHOTS, op.key, op.value)


def _delete_snapshot(made: StateChange, op: operations.DeleteSnapshot) -> None:
    _rule(type(op.key) is bytes, "snapshots are bytes")
    made.pass_on(SNAPSHOTS, op.key, REMOVED)


def _set_flushed_through(made: StateChange, op: operations.SetFlushedThrough) -> None:
    _counts(op.sequence)
    state = made.state
    _rule(op.sequence >= state.flushed_through, "flushed_through would go back")
    row = replace(state.nodes[state.node_id], flushed_through=op.sequence)
    made.put("nodes", state.node_id, row)


def _begin_epoch(made: StateChange, op: operations.BeginEpoch) -> None:
    state = made.state
    _counts(op.node_id)
    before = state.nodes.get(op.node_id, NodeRow(0))
    made.put("nodes", op.node_id, replace(before, epoch=before.epoch + 1))
    for slot, row in state.slots.items():
        if row.node_id == op.node_id:
            made.put("slots", slot, replace(row, epoch=row.epoch + 1))


def _set_listeners(made: StateChange, op: operations.SetListeners) -> None:
    _texts(op.listeners)
    _texts(op.listeners.values())
    state = made.state
    row = replace(state.nodes[state.node_id], listeners=op.listeners)
    made.put("nodes", state.node_id, row)


def _assign_slots(made: StateChange, op: operations.AssignSlots) -> None:
    state, count = made.state, len(op.owners)
    _counts(*op.owners)
    _rule(0 < count <= SLOTS_MAX, f"a cluster has 1 to {SLOTS_MAX} slots, not {count}")
    _rule(len(state.slots) in {1, count}, f"there are {len(state.slots)} slots for ever")
    is_new, only = len(state.slots) != count, state.slots[0]
    for slot, node_id in enumerate(op.owners):
        before = only if is_new else state.slots[slot]
        if is_new or before.node_id != node_id:
            made.put("slots", slot, SlotRow(node_id, before.epoch + 1))
    if is_new:
        for row in list(state.topics.values()):
            for number, partition_id in enumerate(row.partitions):
                slot = partition_slot(row.topic_id, number, count)
                state_row = replace(state.partitions[partition_id], slot=slot)
                made.put("partitions", partition_id, state_row)


def _give_slots(made: StateChange, op: operations.GiveSlots) -> None:
    state = made.state
    for slot, node_id in op.owners.items():
        row = state.slots.get(slot)
        _rule(row is not None and row.node_id == state.node_id, f"slot {slot} is not this node's")
        _rule(node_id in state.nodes, f"there is no node {node_id}")
        assert row is not None
        made.put("slots", slot, SlotRow(node_id, row.epoch + 1))


def name_slot(name: str, count: int) -> int:
    """Return the slot of a group or a transactional id."""
    return crc32(name.encode()) % count


def partition_slot(topic_id: bytes, number: int, count: int) -> int:
    """Return the slot of a partition: those of a topic are spread."""
    return (crc32(topic_id) + number) % count


def _allocate_ids(made: StateChange, op: operations.AllocateIds) -> None:
    first = made.state.next_ids.get(op.kind, 1)
    _texts([op.kind])
    _counts(op.count, first + op.count)
    _rule(op.count > 0, "a block of no ids")
    made.put("next_ids", op.kind, first + op.count)
    made.blocks.append(IdBlock(op.kind, first, op.count))


def _put_setting(made: StateChange, op: operations.PutSetting) -> None:
    _texts([op.key, op.value])
    made.put("settings", op.key, op.value)


def _delete_setting(made: StateChange, op: operations.DeleteSetting) -> None:
    _texts([op.key])
    made.put("settings", op.key, REMOVED)


RULES: dict[type, Callable[[StateChange, Any], None]] = {
    operations.PutTopic: _put_topic,
    operations.DeleteTopic: _delete_topic,
    operations.PutSegment: _put_segment,
    operations.DeleteSegment: _delete_segment,
    operations.PutPartitionState: _put_partition_state,
    operations.PutSnapshot: _put_snapshot,
    operations.DeleteSnapshot: _delete_snapshot,
    operations.SetFlushedThrough: _set_flushed_through,
    operations.BeginEpoch: _begin_epoch,
    operations.SetListeners: _set_listeners,
    operations.AssignSlots: _assign_slots,
    operations.GiveSlots: _give_slots,
    operations.AllocateIds: _allocate_ids,
    operations.PutSetting: _put_setting,
    operations.DeleteSetting: _delete_setting,
}
