"""A node without doors, threads and clocks: the real log, meta and background work on a fake disk.

What decides here is the product's: `Flusher`, `Maintenance`, `RetiredFiles`, `Manifests` of
trilogue.node run as they are, their coroutines driven to the end on the spot. Only the world is
fake: the disk, the loop, the helper process (it runs in place, and may die), and a broker that
knows nothing but facts. Trouble is arranged beforehand (`Trouble`) and comes so many steps later,
whatever is under way then: a write, a sync, a rename, a commit to meta.
"""

from __future__ import annotations

import errno
import os
import pickle
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from tests.fakes import FakeFile, FakeFileSystem, FakeLoop, PowerCut
from tests.log.rig import CLUSTER, DATA, SMALL
from trilogue.broker.facts import SnapshotRow
from trilogue.log import jobs
from trilogue.log.commit import InlineCommitter
from trilogue.log.directory import DataDirectory
from trilogue.log.errors import DiskFull, StorageFailed
from trilogue.log.log import Log, Surroundings
from trilogue.log.segment_info import segment_name
from trilogue.meta.ids import Ids
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.port import (
    DeleteSegment,
    DeleteTopic,
    Fence,
    PutPartitionState,
    PutTopic,
    TopicRow,
)
from trilogue.node.flush import Flusher
from trilogue.node.jobs import HelperDiedError
from trilogue.node.maintenance import Maintenance
from trilogue.node.manifests import Manifests
from trilogue.node.retired import RetiredFiles

GRACE_S = 60.0
FACT_KIND = 7


@dataclass(frozen=True)
class Trouble:
    """What happens in the middle of the operation after so many more."""

    kind: str = "none"
    after: int = 0


CALM = Trouble()
ENDINGS = ("power", "kill")  # of the machine, of the process
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}


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
        self._ids = Ids()  # what was left of the blocks is nobody's
        self.state.node_epoch += 1

    def commit_now(self, ops, preconditions=(), fence=None):  # type: ignore[no-untyped-def]
        self._step(after=False)
        result = super().commit_now(ops, preconditions, fence)
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
    """A broker of which only this is left: what its facts amount to, and what is new since a cut.

    A fact is its own number and some bytes, so telling it again changes nothing.
    """

    def __init__(self, rows: Iterator[tuple[bytes, bytes]]) -> None:
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
    """The helper process: what goes in and out is pickled; when it dies its files stay."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.results: list[object] = []

    async def run(self, function: Callable[..., object], *arguments: object) -> object:
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        self.disk.in_helper = True
        try:
            result = IN_PLACE[function](*arguments, self.disk)
            self.disk.step("answer")
        except HelperKilled:
            raise HelperDiedError("killed") from None
        finally:
            self.disk.in_helper = False
        return pickle.loads(pickle.dumps(result))


IN_PLACE: dict[Callable[..., object], Callable[..., object]] = {jobs.run: jobs.flush}


class Node:
    """What survives, and what is built anew in each life."""

    def __init__(self) -> None:
        self.fs = Disk()
        self.meta: Meta | None = None
        self.time_ms = 1_700_000_000_000
        self.seconds = 1_000.0
        self.random_bytes = _counting_bytes()
        self.loop = FakeLoop()
        self.next_topic = 0

    def open(self) -> Log:
        """Start a process: as node/storage.py and node/node.py do, in their order."""
        loop, fs = FakeLoop(), self.fs
        loop.time_ms, loop.seconds = self.loop.time_ms, self.loop.seconds
        self.loop = loop
        self.failures: list[Exception] = []
        self.directory = DataDirectory.open(fs, DATA)
        self.meta = Meta(fs, self.meta)
        self.broker = Facts(self.meta.snapshots())
        self.log = Log.open(
            self.directory,
            self.meta.manifest(),
            Surroundings(
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
        storage: Any = self
        helper: Any = InPlaceHelper(fs)
        self.manifests = Manifests(storage, executor=None)  # type: ignore[arg-type]
        self.retired = RetiredFiles(storage, monotonic=loop.monotonic, grace_s=GRACE_S)
        self.flusher = Flusher(
            storage, helper, self.manifests, now_ms=loop.now_ms, bytes_per_second=0
        )
        self.maintenance = Maintenance(
            storage, self.retired, self.manifests, monotonic=loop.monotonic
        )
        return self.log

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

    def shut(self) -> None:
        self.log.close()
        self.directory.close()

    # -- what a broker asks of it ----------------------------------------------------------

    def orphans(self) -> set[str]:
        """Names of segments that a job in this life may have written in vain."""
        return {segment_name(each) for each in self.meta.given}

    def create(self, partition_ids: tuple[int, ...]) -> None:
        self.next_topic += 1
        name = f"t{self.next_topic}"
        topic_id = self.next_topic.to_bytes(16, "big")
        row = TopicRow("public", "default", name, topic_id, partition_ids, True, {}, 0, 1)
        self.meta.commit_now([PutTopic(row)], (), self.fence)
        for each in partition_ids:
            self.log.create_partition(each, self.state.node_epoch)

    def drop(self, partition_id: int) -> None:
        key = self.state.topic_keys[self.state.partitions[partition_id].topic_id]
        gone = self.state.topics[key].partitions
        self.meta.commit_now([DeleteTopic(*key)], (), self.fence)
        for each in gone:
            self.log.drop_partition(each)

    def retain(self, starts: dict[int, int]) -> None:
        """Move starts, in meta first; then let go of segments that hold nothing any more."""
        ops = [PutPartitionState(each, start_offset=start) for each, start in starts.items()]
        self.meta.commit_now(ops, (), self.fence)
        dead = self.log.apply_retention(starts)
        self.meta.commit_now([DeleteSegment(each) for each in dead], (), self.fence)
        for each in dead:
            segment = self.log.forget_segment(each)
            assert segment is not None
            self.retired.leave(segment)
        self.manifests.changed()

    def flush(self) -> None:
        """Flush what is sealed, as one turn of `Flusher.run` does."""
        self.drive(self.flusher._flush_with_retries())

    def write_manifest(self) -> None:
        self.drive(self.manifests.write())

    def remove_retired(self) -> None:
        self.drive(self.retired.remove_due())

    def drive(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end: whatever it waits for has happened already."""
        from asyncio import _set_running_loop

        _set_running_loop(_InstantLoop(self.loop))  # type: ignore[arg-type]
        try:
            while True:
                assert work.send(None) is None, "it waits for something that never comes"
        except StopIteration as done:
            return done.value
        finally:
            _set_running_loop(None)
            work.close()


class _InstantLoop:
    """As much of an event loop as coroutines need that never have to wait."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop

    def create_future(self) -> Future[Any]:
        return Future(loop=self)  # type: ignore[arg-type]

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Any:
        self.loop.pass_time(delay)
        callback(*arguments)
        return _Handle()

    def run_in_executor(self, _: object, work: Callable[..., object], *arguments: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except OSError as error:
            done.set_exception(error)
        return done

    def get_debug(self) -> bool:
        return False

    def call_soon(self, *_: Any, **__: Any) -> None:
        """Nobody waits."""


class _Handle:
    def cancel(self) -> None:
        """It was called already."""


def _counting_bytes() -> Callable[[int], bytes]:
    """Chance without chance: never the same bytes twice."""
    count = 0

    def random_bytes(size: int) -> bytes:
        nonlocal count
        count += 1
        return (count * 0x9E3779B97F4A7C15 % (1 << 8 * size)).to_bytes(size, "big")

    return random_bytes
