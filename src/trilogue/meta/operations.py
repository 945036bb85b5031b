"""What meta stores and what changes it: rows, operations, preconditions. Plain data.

Topics, segments, nodes, slots, how far flushes came, snapshots of fast facts, settings and blocks
of ids are stored. A change is a list of operations that happen all or not at all, only if every
precondition holds and the fence lets the writer through.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from trilogue.log.segments.segment_info import SegmentInfo

FORMAT_VERSION = 4
OPS_MAX = 250_000  # in one change: a flush may move the end of every partition there is
VALUE_SIZE_MAX = 16 << 20  # of one snapshot
INT_MAX = (1 << 63) - 1  # of every number

# Kinds of ids and how many a block holds: what is left of a block at a restart is never used.
ID_BLOCKS = {"partition": 10_000, "segment": 100, "producer": 1_000}

TopicKey: TypeAlias = tuple[str, str, str]  # tenant, namespace, name
OpenTransactions: TypeAlias = tuple[tuple[int, int], ...]  # producer id, first offset


# ── rows ──────────────────────────────────────────────────────────────────────────────────────


class TopicRow(msgspec.Struct, frozen=True):
    """A topic. The position of a partition id in `partitions` is the partition's number."""

    tenant: str
    namespace: str
    name: str
    topic_id: bytes  # 16 bytes; another one when a topic is deleted and created again
    partitions: tuple[int, ...]  # partition ids, never reused
    partitioned: bool  # False: one partition, reached by the bare name
    settings: dict[str, str]
    created_ms: int
    epoch: int  # of the row: +1 with every change

    @property
    def key(self) -> TopicKey:
        """The key of the row."""
        return (self.tenant, self.namespace, self.name)


class PartitionState(msgspec.Struct, frozen=True):
    """The durable state of a partition; created and removed with its topic's row."""

    topic_id: bytes
    start_offset: int  # first offset that may be read
    flushed_end: int  # everything below is in segments, or was removed
    compacted_end: int = 0  # below it only the newest message of each key is left
    open_transactions: OpenTransactions = ()  # as of flushed_end
    slot: int = 0  # the owner of this slot is the owner of the partition


class NodeRow(msgspec.Struct, frozen=True):
    """A node: a process with a journal of its own."""

    epoch: int  # of its latest start; an older process of this node writes nothing more
    flushed_through: int = 0  # all frames of its journal up to here are in segments and snapshots
    listeners: dict[str, str] = {}  # listener -> the address for clients, as of its latest start


class SlotRow(msgspec.Struct, frozen=True):
    """A slot: the partitions, groups and transactional ids that hash to it have one owner."""

    node_id: int
    epoch: int  # +1 with each start of the owner and each new owner: Kafka's leader epoch


class IdBlock(msgspec.Struct, frozen=True):
    """The ids first .. first + count - 1, which are never allocated again."""

    kind: str
    first: int
    count: int


# ── operations ────────────────────────────────────────────────────────────────────────────────


class PutTopic(msgspec.Struct, frozen=True):
    """Create a topic or replace its row; its partitions' states come and go with it."""

    topic: TopicRow


class DeleteTopic(msgspec.Struct, frozen=True):
    """Remove a topic and its partitions' states."""

    tenant: str
    namespace: str
    name: str


class PutSegment(msgspec.Struct, frozen=True):
    """A segment exists: its file and its folder are durable. Ids come from `allocate`.

    One that exists already may be put again only with fewer partitions, the others hidden, or with
    another `store`: the bytes that its name stands for never change.
    """

    segment: SegmentInfo


class DeleteSegment(msgspec.Struct, frozen=True):
    """A segment is retired; its file may go after the grace period."""

    segment_id: int


class PutPartitionState(msgspec.Struct, frozen=True):
    """Move a partition's start or one of its ends, never back; None leaves it where it is.

    A partition that was deleted meanwhile is passed over: a flush that was under way must not fail.
    A start that is further already stays: retention and deletions are decided side by side.
    """

    partition_id: int
    start_offset: int | None = None
    flushed_end: int | None = None
    compacted_end: int | None = None
    open_transactions: OpenTransactions | None = None


class PutSnapshot(msgspec.Struct, frozen=True):
    """Store what fast facts amount to at a flush cut; the broker chooses the key."""

    key: bytes
    value: bytes


class DeleteSnapshot(msgspec.Struct, frozen=True):
    """Remove a snapshot; a missing one is no error."""

    key: bytes


class SetFlushedThrough(msgspec.Struct, frozen=True):
    """All frames of this node's journal up to this sequence are in segments and snapshots."""

    sequence: int


class BeginEpoch(msgspec.Struct, frozen=True):
    """A node starts: its former process is fenced, the epochs of its slots move."""

    node_id: int


class SetListeners(msgspec.Struct, frozen=True):
    """Record at which addresses clients reach this node."""

    listeners: dict[str, str]


class AssignSlots(msgspec.Struct, frozen=True):
    """Make these nodes the owners of the slots 0, 1, 2 ...

    Only while neither the former nor the next owner of a slot that moves serves. The number of
    slots changes once, from 1, and then never again.
    """

    owners: tuple[int, ...]


class GiveSlots(msgspec.Struct, frozen=True):
    """Make other nodes the owners of slots of the node that writes this.

    Only when nothing of these slots is left in its journal, and nothing more will be written.
    """

    owners: dict[int, int]  # by slot


class AllocateIds(msgspec.Struct, frozen=True):
    """Take the next `count` ids of a kind; the result has them in operation order."""

    kind: str
    count: int


class PutSetting(msgspec.Struct, frozen=True):
    """Set a setting of the whole broker."""

    key: str
    value: str


class DeleteSetting(msgspec.Struct, frozen=True):
    """Remove a setting; a missing one is no error."""

    key: str


Op: TypeAlias = (
    PutTopic
    | DeleteTopic
    | PutSegment
    | DeleteSegment
    | PutPartitionState
    | PutSnapshot
    | DeleteSnapshot
    | SetFlushedThrough
    | BeginEpoch
    | SetListeners
    | AssignSlots
    | GiveSlots
    | AllocateIds
    | PutSetting
    | DeleteSetting
)


# ── preconditions, fence, result ──────────────────────────────────────────────────────────────


class TopicAbsent(msgspec.Struct, frozen=True):
    """No topic has this name."""

    tenant: str
    namespace: str
    name: str


class TopicIs(msgspec.Struct, frozen=True):
    """The topic of this name is still the one that was seen, in the row's same epoch."""

    tenant: str
    namespace: str
    name: str
    topic_id: bytes
    epoch: int


class PartitionExists(msgspec.Struct, frozen=True):
    """The partition was not deleted."""

    partition_id: int


class SegmentExists(msgspec.Struct, frozen=True):
    """The segment was not retired."""

    segment_id: int


class SettingIs(msgspec.Struct, frozen=True):
    """A setting still has this value (None: it is not set)."""

    key: str
    value: str | None


class FlushedThroughIs(msgspec.Struct, frozen=True):
    """No other flush was recorded in between."""

    sequence: int


Precondition: TypeAlias = (
    TopicAbsent | TopicIs | PartitionExists | SegmentExists | SettingIs | FlushedThroughIs
)


class Fence(msgspec.Struct, frozen=True):
    """The writer of a change; refused when its node has been started again since."""

    node_id: int
    node_epoch: int


class ChangeResult(msgspec.Struct, frozen=True):
    """A durable change. `version` counts changes over the life of the data, without gaps."""

    version: int
    blocks: tuple[IdBlock, ...] = ()
