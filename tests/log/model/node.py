"""A node without listeners, threads and clocks: real log, meta and background work on a fake disk.

The code under test is the product's: `Flusher`, `Maintenance`, `RetiredFiles`, `ManifestWriter` of
trilogue.node run as they are, their coroutines driven to the end on the spot. Only the environment
is fake: the disk, the loop, the helper process (it runs in place, and may die), and a broker that
knows nothing but facts. Faults are arranged beforehand (`Trouble`) and occur so many steps later,
in whatever operation runs then: a write, a sync, a rename, a commit to meta.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.fakes import FakeFile, FakeFileSystem, FakeLoop, PowerCut
from tests.log.model.loop import InstantLoop
from tests.log.rig import CLUSTER, DATA, SMALL
from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors
from trilogue.broker.facts import SnapshotRow
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.policies import DEFAULT_POLICIES
from trilogue.log.directory import DataDirectory
from trilogue.log.errors import DiskFull, StorageFailed
from trilogue.log.jobs import compaction, merge
from trilogue.log.jobs import flush as jobs
from trilogue.log.jobs.merge_plan import Plan
from trilogue.log.journal.commit import InlineCommitter
from trilogue.log.log import Log, LogEnvironment
from trilogue.log.partition_log import PartitionLog
from trilogue.log.segments.segment_info import MergeJob, MergeResult, SegmentInfo, segment_name
from trilogue.meta.ids import IdPool
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import (
    BeginEpoch,
    DeleteTopic,
    Fence,
    PutPartitionState,
    PutTopic,
    TopicRow,
)
from trilogue.meta.state import MetaState, apply_change
from trilogue.node.background.compaction import CompactionPlanner
from trilogue.node.background.flush import Flusher
from trilogue.node.background.helper import HelperDiedError
from trilogue.node.background.maintenance import Job, Maintenance
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.background.merge import MergePlanner
from trilogue.node.background.retention import Retention
from trilogue.node.background.retired import RetiredFiles
from trilogue.node.storage import ALONE

GRACE_S = 100_000.0  # more than the other rules let pass
FACT_KIND = 7
COMPACTED = TopicSettings(
    retention_ms=-1, compacts=True, dirty_ratio_min=0, delete_retention_ms=100
)


@dataclass(frozen=True)
class Trouble:
    """What happens in the middle of the operation after so many more."""

    kind: str = "none"
    after: int = 0


CALM = Trouble()
ENDINGS = ("power", "kill")  # of the machine, of the process
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "meta": errno.ENOSPC}  # or: in meta only


class HelperKilled(BaseException):
    """Only the helper process ended."""


class Disk(FakeFileSystem):
    """A disk to which trouble comes."""

    trouble = CALM
    in_helper = False
    steps_left = 0

    def arrange(self, trouble: Trouble) -> None:
        self.trouble, self.steps_left = trouble, trouble.after

    def step(self, operation: str, file: FakeFile | None = None) -> None:
        super().step(operation, file)
        trouble = self.trouble
        if operation == "read" or trouble.kind == "none":
            return
        if trouble.kind == "helper" and not self.in_helper:
            return
        if trouble.kind == "meta" and operation != "meta":
            return
        self.steps_left -= 1
        if self.steps_left >= 0:
            return
        self.trouble = CALM
        if trouble.kind in ENDINGS:
            raise PowerCut
        if trouble.kind == "helper":
            raise HelperKilled
        if file is not None:
            file.inode.forget_pending()
        raise OSError(ERRORS[trouble.kind], os.strerror(ERRORS[trouble.kind]))

    def kill(self) -> None:
        super().kill()
        self.arrange(CALM)


class Meta(MemoryMeta):
    """What it committed is durable. Trouble comes before a commit or after it, never inside."""

    def __init__(self, disk: Disk, before: Meta | None = None) -> None:
        self.disk = disk
        self.given: set[int] = set()  # ids of segments, in this life
        if before is None:
            super().__init__(CLUSTER)
            return
        self.state, self.failed = before.state, None
        self._snapshots = before._snapshots
        self._ids = IdPool()  # what was left of the blocks is nobody's
        apply_change(self.state, [BeginEpoch(self.state.node_id)])
        self.state.node_epoch = self.state.nodes[self.state.node_id].epoch

    def write_now(self, ops, preconditions=(), fence=None):  # type: ignore[no-untyped-def]
        self._step(after=False)
        result = super().write_now(ops, preconditions, fence)
        self._step(after=True)
        return result

    def allocate(self, kind: str) -> int:
        given = super().allocate(kind)
        if kind == "segment":
            self.given.add(given)
        return given

    def _step(self, *, after: bool) -> None:
        try:
            self.disk.step("meta")
        except OSError as error:
            if error.errno == errno.ENOSPC:
                if after:
                    return  # there was room
                raise DiskFull("meta") from error
            self.failed = error
            raise StorageFailed("meta") from error


class Facts:
    """The facts of a broker: their state, and which are new since a cut.

    A fact is its own number and some bytes, so a repeated fact changes nothing.
    """

    def __init__(
        self, rows: Iterator[tuple[bytes, bytes]], compacted: set[int], state: MetaState
    ) -> None:
        self.cluster = Topics(compacted, state)
        self.subscriptions = SubscriptionCursors(lambda _: False, lambda _: None, lambda: 0)
        self.writers = ()
        self.known = dict(rows)
        self.changed: set[bytes] = set()

    def apply(self, _kind: int, payload: bytes) -> None:
        self.known[payload[:4]] = payload
        self.changed.add(payload[:4])

    def snapshot(self) -> list[SnapshotRow]:
        changed, self.changed = self.changed, set()
        return [SnapshotRow(key, self.known[key]) for key in sorted(changed)]

    @property
    def in_order(self) -> list[bytes]:
        return [self.known[key] for key in sorted(self.known)]


class InPlaceHelper:
    """The helper process: arguments and results are pickled; when it dies its files stay.

    With `holds` the result of a job, and its caller, wait until the coroutine is resumed.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.holds = False

    async def run(self, function: Callable[..., object], *arguments: object) -> object:
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        self.disk.in_helper = True
        try:
            result = IN_PLACE[function](arguments[0], self.disk)
            self.disk.step("answer")
        except HelperKilled:
            raise HelperDiedError("killed") from None
        finally:
            self.disk.in_helper = False
        if self.holds:
            await _Held()
        return pickle.loads(pickle.dumps(result))

    def hurry(self) -> None:
        """It does all at once anyway."""


class _Held:
    def __await__(self) -> Iterator[str]:
        yield HELD


HELD = "a job's answer is held"
IN_PLACE: dict[Callable[..., object], Callable[..., object]] = {
    jobs.run: jobs.flush,
    merge.run: merge.merge,
    compaction.run: compaction.compact,
}


class Topics:
    """A broker's cluster, as far as retention and compaction use it: settings of all partitions."""

    def __init__(self, compacted: set[int], state: MetaState) -> None:
        self.ownership = Ownership(state)
        self.settings = TopicSettings()
        self.known: dict[int, SimpleNamespace] = {}
        self.compacted = compacted

    def add(self, partition_id: int, log: PartitionLog) -> None:
        self.known[partition_id] = SimpleNamespace(
            partition_id=partition_id,
            log=log,
            deleted=False,
            producers=SimpleNamespace(last_entries=dict),
            policies=DEFAULT_POLICIES,
            settings=COMPACTED if partition_id in self.compacted else self.settings,
        )

    def set(self, settings: TopicSettings) -> None:
        self.settings = settings
        for each in self.known.values():
            if each.partition_id not in self.compacted:
                each.settings = settings

    def __iter__(self) -> Iterator[Any]:
        for each in self.known.values():
            yield SimpleNamespace(partitions=(each,), local_partitions=(each,), settings={})

    def find_partition(self, partition_id: int) -> Any:
        return self.known.get(partition_id)


class Node:
    """The state that survives, and the state that is rebuilt in each life."""

    place = ALONE
    shared = None

    def __init__(self) -> None:
        self.fs = Disk()
        self.meta: Meta | None = None
        self.time_ms = 1_700_000_000_000
        self.seconds = 1_000.0
        self.random_bytes = _counting_bytes()
        self.loop = FakeLoop()
        self.next_topic = 0
        self.job: Coroutine[Any, Any, Any] | None = None  # of maintenance, held
        self.dead: list[object] = []  # jobs of processes that ended: they clean up nothing
        self.compacted: set[int] = set()  # partitions of compacted topics

    def open(self) -> Log:
        """Start a process: as node/storage.py and node/node.py do, in their order."""
        loop, fs = FakeLoop(), self.fs
        loop.time_ms, loop.seconds = self.loop.time_ms, self.loop.seconds
        self.loop = loop
        self.failures: list[Exception] = []
        self.directory = DataDirectory.open(fs, DATA)
        self.meta = Meta(fs, self.meta)
        self.broker = Facts(self.meta.snapshots(), self.compacted, self.meta.state)
        self.log = Log.open(
            self.directory,
            self.meta.manifest(),
            LogEnvironment(
                fs=fs,
                scheduler=loop,
                background=loop.background,
                committer=InlineCommitter(loop),
                now_ms=loop.now_ms,
                monotonic=loop.monotonic,
                random_bytes=self.random_bytes,
            ),
            node_id=1,
            node_epoch=self.meta.state.node_epoch,
            on_fact=self.broker.apply,
            limits=SMALL,
        )
        self.log.on_failed = self.failures.append
        self.background = loop.background
        for each in self.state.partitions:
            self.broker.cluster.add(each, self.log.partition(each))
        self._start_background(loop)
        return self.log

    def _start_background(self, loop: FakeLoop) -> None:
        storage: Any = self
        helper: Any = InPlaceHelper(self.fs)
        slow_helper: Any = InPlaceHelper(self.fs)
        self.slow_helper = slow_helper
        if self.job is not None:
            self.dead.append(self.job)
        self.job = None
        clocks: Any = {"now_ms": loop.now_ms, "bytes_per_second": 0}
        self.manifests = ManifestWriter(storage, executor=None)  # type: ignore[arg-type]
        self.retired = RetiredFiles(storage, monotonic=loop.monotonic, grace_s=GRACE_S)
        self.maintenance = Maintenance(
            storage, self.retired, self.manifests, monotonic=loop.monotonic
        )
        self.merging = MergePlanner(
            storage,
            self.maintenance,
            slow_helper,
            monotonic=loop.monotonic,
            rewrite_every_s=0,
            **clocks,
        )
        self.compacting = CompactionPlanner(
            storage,
            self.maintenance,
            slow_helper,
            monotonic=loop.monotonic,
            every_s=0,
            map_bytes=1,
            **clocks,
        )
        self.maintenance.planners += [self.merging, self.compacting]
        self.maintenance.wake()  # its task looks once at the start
        self.retention = Retention(
            storage,
            self.manifests,
            self.retired,
            now_ms=loop.now_ms,
            every_s=0,
            at_work=lambda: self.maintenance.at_work,
            on_moved=self.maintenance.wake,
        )
        self.flusher = Flusher(
            storage,
            helper,
            self.manifests,
            room=self.merging.room_for_flush,
            on_flushed=self.maintenance.wake,
            **clocks,
        )

    @property
    def state(self):  # type: ignore[no-untyped-def]
        assert self.meta is not None
        return self.meta.state

    @property
    def fence(self) -> Fence:
        return Fence(self.state.node_id, self.state.node_epoch)

    def give_up_reserve(self) -> None:
        """There is none."""

    restore_reserve = give_up_reserve

    reach = None  # of object storage

    def shut(self) -> None:
        self.log.close()
        self.directory.close()

    # -- operations of a broker ------------------------------------------------------------

    def orphans(self) -> set[str]:
        """Names of segments that a job in this life may have written in vain."""
        return {segment_name(each) for each in self.meta.given}

    def create(self, partition_ids: tuple[int, ...]) -> None:
        self.next_topic += 1
        name = f"t{self.next_topic}"
        topic_id = self.next_topic.to_bytes(16, "big")
        row = TopicRow("public", "default", name, topic_id, partition_ids, True, {}, 0, 1)
        self.meta.write_now([PutTopic(row)], (), self.fence)
        for each in partition_ids:
            self.broker.cluster.add(each, self.log.create_partition(each, self.state.node_epoch))
        self.manifests.changed()

    def drop(self, partition_id: int) -> None:
        key = self.state.topic_keys[self.state.partitions[partition_id].topic_id]
        gone = self.state.topics[key].partitions
        self.meta.write_now([DeleteTopic(*key)], (), self.fence)
        for each in gone:
            del self.broker.cluster.known[each]
            self.log.drop_partition(each)
        self.manifests.changed()

    # -- background work -------------------------------------------------------------------

    def delete_records(self, starts: dict[int, int]) -> None:
        """Move starts, in meta first, as broker/topics/delete_records.py does."""
        ops = [PutPartitionState(each, start_offset=start) for each, start in starts.items()]
        self.meta.write_now(ops, (), self.fence)
        for each, start in starts.items():
            self.log.partition(each).retain_from(start)
        self.manifests.changed()

    def retain(self, settings: TopicSettings) -> None:
        self.broker.cluster.set(settings)
        self.drive(self.retention.apply_retention())

    def flush(self) -> None:
        """Flush what is sealed, as one turn of `Flusher.run` does."""
        while self.merging._is_full and self.maintenance.is_hopeful:
            self.maintain()
        self.drive(self.flusher._flush_with_retries())

    async def _do(self, job: Job) -> None:
        await self.maintenance._note_end(done=await self.maintenance._do(job))

    def maintain(
        self, plan: Plan | None = None, *, compact: bool = False, hold: bool = False
    ) -> bool:
        """End the job that is held, or do what is due (or `plan`, or compact); was there any?"""
        work, self.job = self.job, None
        if work is None:
            self.drive(self.compacting.look_around())
            due = self.compacting.plan() if compact else self.maintenance._next()
            job = self.drive(due) if plan is None else self.job_of(plan)
            if plan is not None:
                due.close()
            if job is None:
                self.maintenance._is_idle = True
                return False
            self.slow_helper.holds = hold
            work = self._do(job)
        if self.drive(work, may_hold=True) == HELD:
            self.job = work
        return True

    def job_of(self, plan: Plan) -> Job:
        return Job(
            plan.kind,
            frozenset(each.segment_id for each in plan.inputs),
            plan.size,
            partial(self.merging._run, plan),
        )

    def merge(self, inputs: tuple[SegmentInfo, ...]) -> tuple[MergeJob, MergeResult]:
        """Write segments that could replace these, without recording them in meta."""
        self.slow_helper.holds = False
        plan = Plan("merge", inputs, 1, 500, 2_000)
        ids = tuple(self.meta.allocate("segment") for _ in range(plan.outputs_max))
        job = self.drive(self.merging._job(plan, ids))
        return job, self.drive(self.slow_helper.run(merge.run, job))

    def write_manifest(self) -> None:
        self.drive(self.manifests.write())

    def remove_retired(self) -> None:
        self.drive(self.retired.remove_due())

    def drive(self, work: Coroutine[Any, Any, Any], *, may_hold: bool = False) -> Any:
        """Run a coroutine to its end: whatever it waits for has happened already."""
        asyncio._set_running_loop(InstantLoop(self.loop))  # type: ignore[arg-type]
        ended = True
        try:
            while True:
                waits_for = work.send(None)
                if may_hold and waits_for == HELD:
                    ended = False
                    return HELD
                assert waits_for is None, "it waits for something that never comes"
        except StopIteration as done:
            return done.value
        finally:
            asyncio._set_running_loop(None)
            if ended:
                work.close()


def _counting_bytes() -> Callable[[int], bytes]:
    """Chance without chance: never the same bytes twice."""
    count = 0

    def random_bytes(size: int) -> bytes:
        nonlocal count
        count += 1
        return (count * 0x9E3779B97F4A7C15 % (1 << 8 * size)).to_bytes(size, "big")

    return random_bytes
