"""The port of meta: slow small facts that survive, plain data in and plain data out.

Topics, segments, how far flushes came, snapshots of fast facts, settings and blocks of ids live
here. A change is a *commit*: a list of operations that happen all or not at all, only if every
precondition holds and the fence lets the writer through. What was decided is read from memory
(`Meta.state`), which moves only when a commit is durable, in the order of the commits.

```
 decide (broker) ──► commit(ops, preconditions, fence) ──► durable ──► state moves ──► reply
                          │ PreconditionFailed, InvalidCommit: this commit only; nothing happened
                          │ Fenced, StorageFailed: this meta is finished, the process must stop
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from trilogue.log.manifest import ManifestStore
from trilogue.log.segment_info import SegmentInfo

if TYPE_CHECKING:
    from trilogue.meta.state import MetaState

FORMAT_VERSION = 3
OPS_MAX = 250_000  # in one commit: a flush may move the end of every partition there is
VALUE_SIZE_MAX = 16 << 20  # of one snapshot
INT_MAX = (1 << 63) - 1  # of every number

# Kinds of ids and how many a block holds: what is left of a block at a restart is never used.
ID_BLOCKS = {"partition": 10_000, "segment": 100, "producer": 1_000}

TopicKey: TypeAlias = tuple[str, str, str]  # tenant, namespace, name
OpenTransactions: TypeAlias = tuple[tuple[int, int], ...]  # producer id, first offset


# ── rows ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic. The position of a partition id in `partitions` is the partition's number."""

    tenant: str
    namespace: str
    name: str
    topic_id: bytes  # 16 bytes; another one when a topic is deleted and made again
    partitions: tuple[int, ...]  # partition ids, never reused
    partitioned: bool  # False: one partition, reached by the bare name
    settings: dict[str, str]
    created_ms: int
    epoch: int  # of the row: +1 with every change

    @property
    def key(self) -> TopicKey:
        """What a topic is found by."""
        return (self.tenant, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """How far one partition came in durable storage; made and dropped with its topic's row."""

    topic_id: bytes
    start_offset: int  # first offset that may be read
    flushed_end: int  # everything below is in segments (or was let go)
    compacted_end: int = 0  # below it only the newest message of each key is left
    open_transactions: OpenTransactions = ()  # as of flushed_end


@dataclass(frozen=True, slots=True)
class IdBlock:
    """Ids first .. first + count - 1, nobody else's for ever."""

    kind: str
    first: int
    count: int


# ── operations ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Make a topic or replace its row; its partitions' states come and go with it."""

    topic: TopicRow


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Forget a topic and its partitions' states."""

    tenant: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PutSegment:
    """A segment exists: its file and its folder are durable. Ids come from `allocate`.

    One that exists already may be put again only with fewer partitions, the others hidden, or with
    another `store`: the bytes that its name stands for never change.
    """

    segment: SegmentInfo


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """A segment is retired; its file may go after the grace period."""

    segment_id: int


@dataclass(frozen=True, slots=True)
class PutPartitionState:
    """Move a partition's start or one of its ends, never back; None leaves it where it is.

    A partition that was deleted meanwhile is passed over: a flush that was under way must not fail.
    A start that is further already stays: retention and deletions are decided side by side.
    """

    partition_id: int
    start_offset: int | None = None
    flushed_end: int | None = None
    compacted_end: int | None = None
    open_transactions: OpenTransactions | None = None


@dataclass(frozen=True, slots=True)
class PutSnapshot:
    """Keep what fast facts amount to at a flush cut; the key is the broker's affair."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Forget a snapshot; one that is not there is no error."""

    key: bytes


@dataclass(frozen=True, slots=True)
class SetFlushedThrough:
    """All journal frames up to this sequence are in segments and snapshots."""

    sequence: int


@dataclass(frozen=True, slots=True)
class AllocateIds:
    """Take the next `count` ids of a kind; they stand in the result, in the order asked."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class PutSetting:
    """Set a setting of the whole broker."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class DeleteSetting:
    """Forget a setting; one that is not there is no error."""

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
    | AllocateIds
    | PutSetting
    | DeleteSetting
)


# ── preconditions, fence, result ──────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TopicAbsent:
    """No topic has this name."""

    tenant: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TopicIs:
    """The topic of this name is still the one that was seen, in the row's same epoch."""

    tenant: str
    namespace: str
    name: str
    topic_id: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionExists:
    """The partition was not deleted."""

    partition_id: int


@dataclass(frozen=True, slots=True)
class SegmentExists:
    """The segment was not retired."""

    segment_id: int


@dataclass(frozen=True, slots=True)
class SettingIs:
    """A setting still has this value (None: it is not set)."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class FlushedThroughIs:
    """No other flush was recorded in between."""

    sequence: int


Precondition: TypeAlias = (
    TopicAbsent | TopicIs | PartitionExists | SegmentExists | SettingIs | FlushedThroughIs
)


@dataclass(frozen=True, slots=True)
class Fence:
    """Who commits; refused when the node has been started again since."""

    node_id: int
    node_epoch: int


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A durable commit. `version` counts commits over the life of the data, without holes."""

    version: int
    blocks: tuple[IdBlock, ...] = ()


class Meta(ManifestStore, Protocol):
    """What the rooms above see; memory, SQLite and later PostgreSQL are behind it."""

    @property
    def state(self) -> MetaState:
        """What is durable, to be read and never changed by the caller."""

    @property
    def failed(self) -> Exception | None:
        """Why nothing can be committed any more; None while all is well."""

    async def commit(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> CommitResult:
        """Make all of it durable, move the state, return; or raise, and nothing happened.

        Commits take effect in the order of the calls. A caller that is cancelled while it waits
        learns nothing: the commit goes on.
        """

    def allocate(self, kind: str) -> int:
        """Give one id of a block that is durable already; the next block is fetched in time."""

    async def reserve(self, kind: str, count: int) -> None:
        """Return when `allocate` can give `count` ids without waiting."""

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots as they are durable now; they are not kept in memory."""

    def close(self) -> None:
        """Finish what was asked for and let go of the store."""
