"""A whole node on a fake disk, in a time of its own: every run of it is the same, step by step.

    world = World()
    world.live(script)                       # start, script, orderly end
    world.live(script, stop_at=17)           # ... or the 17th step on the disk is its last
    world.crash(Random(3))                   # a kill, or what a power cut leaves
    world.live(script)                       # and the next life finds it

The node is the real one: flush, merge, retention, manifests, recovery and their order. Its disk
(`FakeFileSystem`), its meta (in memory, durable with a commit), its helper process, threads and
clocks are stand-ins that are handed in where the node takes the real ones, and nothing waits: when
every task sleeps, time goes on to the next one's hour. A *step* is a write, sync, rename, unlink or
sync of a folder, or the moment before and after a commit of meta. After the last step of a life the
disk does nothing any more for it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import selectors
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Protocol
from unittest.mock import patch

from msgspec.structs import replace

from tests.fakes import FakeFile, FakeFileSystem, PowerCut
from tests.waiting import VirtualClock, pass_time
from trilogue.log.journal.commit import InlineCommitter
from trilogue.log.log import LogLimits
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import BeginEpoch, ChangeResult, Fence, Op, Precondition
from trilogue.meta.state import apply_change
from trilogue.node import node as node_module
from trilogue.node import storage as storage_module
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import Settings
from trilogue.node.storage import log_limits

DATA = Path("/data")
CLUSTER = b"a cluster's id 1"
START_S = 1_700_000_000.0
JOB_S = 0.05  # what a job of the helper process takes
DRAIN_S = 20.0
LIFE_S = 3600.0
SETTINGS = {
    "data": str(DATA),
    "listen.kafka": "127.0.0.1:0",  # planned and never opened
    "listen.pulsar": "off",
    "listen.tubemq-master": "off",
    "listen.tubemq-broker": "off",
    "listen.http": "off",
    "disk.reserve": "0",
    "disk.min-free": "0",
    "flush.rate": "0",
    "journal.file-size": "64KiB",
    "journal.file-age": "3s",
    "retention.check-every": "4s",
    "segments.grace": "6s",
    "compaction.check-every": "4s",
    "merge.rate": "0",
}

SMALL_MERGES = {  # so that a life of a minute has merges of all kinds; in the same proportions
    "FIRST_LEVEL_MIN": 2,
    "FIRST_LEVEL_DUE": 3,
    "FIRST_LEVEL_MAX": 5,
    "FIRST_LEVEL_BYTES": 256 << 10,
    "LARGE_BYTES": 48 << 10,
    "LARGE_EXTENT": 12 << 10,
    "REST_MS": 4_000,
    "SMALL_BYTES": 16 << 10,
    "SMALL_MIN": 3,
    "OWN_BYTES": 32 << 10,
    "OWN_FROM_BYTES": 96 << 10,
    "TARGET_BYTES": 128 << 10,
}

Script = Callable[[Node], Awaitable[None]]


class LyingFile(FakeFile):
    """A file whose sync does nothing and reports success."""

    def sync(self) -> None:
        self._enter("sync")

    def pwrite_durable(self, data: bytes, offset: int) -> None:
        self.pwrite(data, offset)
        self.sync()


class StepFileSystem(FakeFileSystem):
    """Counts the changes made through it, and does nothing more after step `stop_at`.

    `lies`: suffixes of files whose syncs do nothing, "/" for those of folders. With a lie the tests
    that use this must fail.
    """

    def __init__(self, *, direct: bool = False, lies: Sequence[str] = ()) -> None:
        super().__init__(direct=direct)
        self.lies = tuple(lies)
        self.trouble: tuple[str, str, int] | None = None  # operation, suffix of a name, errno
        self.steps: list[str] = []
        self.stop_at: int | None = None
        self.dead = False
        self.on_dead: Callable[[], None] = lambda: None

    def check_alive(self) -> None:
        if self.dead:
            raise PowerCut

    def step(self, operation: str, file: FakeFile | None = None) -> None:
        self.check_alive()
        if operation != "read":
            self.steps.append(operation if file is None else f"{operation} {file.path.name}")
            if self.stop_at is not None and len(self.steps) >= self.stop_at:
                self.dead = True
                self.on_dead()
                raise PowerCut
        if self.trouble is not None and file is not None:
            wanted, suffix, number = self.trouble
            if operation == wanted and file.path.name.endswith(suffix):
                self.trouble = None
                file.inode.forget_pending()  # as the kernel does: what was not synced is called so
                raise OSError(number, os.strerror(number), str(file.path))
        super().step(operation, file)

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> FakeFile:
        file = super().open(path, create=create, direct=direct)
        if path.suffix in self.lies:
            return LyingFile(self, path, file.inode, direct=file.direct)
        return file

    def sync_directory(self, path: Path) -> None:
        if "/" in self.lies:
            self.step("sync_directory")
        else:
            super().sync_directory(path)

    def kill(self) -> None:
        super().kill()
        self.dead = False
        self.stop_at = None


class StepMeta(MemoryMeta):
    """Meta whose commits are steps too: it may end before one is durable, and right after it."""

    def __init__(self, fs: StepFileSystem, before: StepMeta | None) -> None:
        self.fs = fs
        super().__init__(CLUSTER)
        if before is not None:
            self.state = before.state.copy()
            apply_change(self.state, [BeginEpoch(self.state.node_id)])
            self.state.node_epoch += 1
            self._snapshots = dict(before._snapshots)
            self._ids = type(self._ids)()
            for kind in ("partition", "segment", "producer"):
                self.allocate(kind)

    def write_now(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        self.fs.step("meta before")
        result = super().write_now(ops, preconditions, fence)
        self.fs.step("meta after")
        return result

    async def write(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        await pass_time(0.001)
        return self.write_now(ops, preconditions, fence)


class InlineExecutor:
    """Threads that do their work at once, and are never there at another time."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, work: Callable[..., object], *arguments: object) -> Future[object]:
        future: Future[object] = Future()
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None: ...


class InlineHelper:
    """The helper process: jobs travel as they would, and write to the fake disk."""

    def __init__(self, *_: object, **__: object) -> None:
        self.pid = None
        self.starts = self.jobs_done = 0

    async def run(self, function: Callable[..., object], *arguments: object) -> object:
        await pass_time(JOB_S)
        return pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(arguments)))))

    def hurry(self) -> None:
        """It takes no time that could be shortened."""

    async def close(self) -> None: ...


class VirtualLoop(VirtualClock, asyncio.SelectorEventLoop):
    """A loop whose clock moves on only when there is nothing else to do."""

    def __init__(self) -> None:
        self.now, self.ends = 0.0, LIFE_S
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(
        self, executor: object, work: Callable[..., object], *arguments: object
    ) -> asyncio.Future[object]:
        """No thread of any kind is there at another time."""
        return asyncio.wrap_future(InlineExecutor().submit(work, *arguments), loop=self)


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits, and no timer is set"
        self._loop.now += max(0.0, timeout)  # small numbers: a float must hold them exactly enough
        assert self._loop.now < self._loop.ends, "it does not come to an end"
        return super().select(0)


class World:
    """What outlives a process: the disk, meta, and the clients (in the script)."""

    def __init__(self, *, direct: bool = False, lies: Sequence[str] = (), **settings: str) -> None:
        self.fs = StepFileSystem(direct=direct, lies=lies)
        self.meta: StepMeta | None = None
        self.node: Node | None = None  # of the last life
        self.random = Random(1)
        self.lives = 0
        self.now = 0.0  # seconds since the world began
        named = {key.replace("__", ".").replace("_", "-"): each for key, each in settings.items()}
        self.settings = {**SETTINGS, **named}

    def live(self, script: Script, *, stop_at: int | None = None, drain: bool = True) -> bool:
        """One life of the node; whether it came to the end of the script."""
        self.lives += 1
        self.fs.steps.clear()
        self.fs.stop_at = stop_at
        loop = VirtualLoop()
        loop.now, loop.ends = self.now, self.now + LIFE_S
        with _world_of(self, loop):
            try:
                return loop.run_until_complete(self._live(script, drain=drain))
            finally:
                self.now = loop.now + 1.0
                _clear(loop)

    async def _live(self, script: Script, *, drain: bool) -> bool:
        loop = asyncio.get_running_loop()
        dead = loop.create_future()
        self.fs.on_dead = lambda: dead.done() or dead.set_result(None)
        loop.set_exception_handler(_note)
        life = asyncio.create_task(self._whole_life(script, drain=drain))
        await asyncio.wait([life, dead], return_when=asyncio.FIRST_COMPLETED)
        if self.fs.dead:
            return False
        life.result()
        return True

    async def _whole_life(self, script: Script, *, drain: bool) -> None:
        assignments = [f"{key}={value}" for key, value in self.settings.items()]
        self.node = node = SilentNode(load_settings(environment={}, assignments=assignments))
        await node.start()
        await script(node)
        assert node.failure is None, node.failure
        if drain:
            await node.drain(asyncio.Event(), DRAIN_S)
            assert node.failure is None, node.failure
        await node.close()

    def crash(self, chance: Random | None) -> None:
        """After a life that was cut short: a kill, or with `chance` a power cut."""
        if chance is None:
            self.fs.kill()
        else:
            self.fs.power_cut(chance)

    def open_meta(
        self, path: Path, *, create: bool, node_id: int, shared: bool, on_failed: object
    ) -> StepMeta:
        """Stand where SQLite's is opened."""
        assert create or self.meta is not None, "the data is there, and meta is not"
        assert not shared, "the world has one node"
        self.meta = StepMeta(self.fs, self.meta)
        return self.meta


class SilentNode(Node):
    """A node without listeners."""

    async def _open_gateways(self, plans: object) -> None:
        await super()._open_gateways({})


@contextmanager
def _world_of(world: World, loop: VirtualLoop) -> Iterator[None]:
    """Hand the stand-ins in where the node takes what it lives in."""
    clock = SimpleNamespace(monotonic=loop.time, time_ns=lambda: int((START_S + loop.now) * 1e9))

    def wall_clock_ms() -> int:
        return clock.time_ns() // 1_000_000

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("trilogue.node.") and hasattr(module, "time"):
                stack.enter_context(patch.object(module, "time", clock))
            if name.startswith(("trilogue.", "tests.")) and hasattr(module, "wall_clock_ms"):
                stack.enter_context(patch.object(module, "wall_clock_ms", wall_clock_ms))
            for defaults in _defaults_of(module) if name.startswith("trilogue.node.") else ():
                if defaults.get("monotonic") is time.monotonic:
                    stack.enter_context(patch.dict(defaults, monotonic=clock.monotonic))
            if name.startswith("trilogue.log.") and hasattr(module, "OsFileSystem"):
                stack.enter_context(patch.object(module, "OsFileSystem", lambda: world.fs))
            for limit, value in SMALL_MERGES.items():
                if name.startswith("trilogue.") and hasattr(module, limit):
                    stack.enter_context(patch.object(module, limit, value))
        stack.enter_context(
            patch.multiple(
                storage_module,
                OsFileSystem=lambda: world.fs,
                SqliteMeta=SimpleNamespace(open=world.open_meta),
                thread_committer=InlineCommitter,
                log_limits=_small_limits,
                os=SimpleNamespace(urandom=world.random.randbytes),
            )
        )
        stack.enter_context(
            patch.multiple(node_module, Helper=InlineHelper, ThreadPoolExecutor=InlineExecutor)
        )
        yield


def _defaults_of(module: ModuleType) -> Iterator[dict[str, object]]:
    """The defaults of what the classes of a module are made with."""
    for each in vars(module).values():
        if isinstance(each, type) and each.__module__ == module.__name__:
            yield getattr(each.__init__, "__kwdefaults__", None) or {}


class Workload(Protocol):
    """What clients do in one life of the node, and what must hold of what they did before."""

    async def script(self, node: Node) -> None:
        """Check the node, then continue the work of the clients to its end."""

    def check_coverage(self, events: Counter[str]) -> None:
        """Check that one whole life has done everything; `events` counts the log events."""


def stop_and_go_on(
    make: Callable[[], Workload], stop_at: int, how: str, lies: Sequence[str] = ()
) -> None:
    """Stop the first life at a step, and check that the second and third life recover everything.

    `how` is "kill" or "power". At odd steps the files are opened with O_DIRECT, past the page
    cache, where all is written in whole blocks.
    """
    world, workload = World(direct=bool(stop_at % 2), lies=lies), make()
    assert not world.live(workload.script, stop_at=stop_at)
    world.crash(Random(stop_at) if how == "power" else None)
    assert world.live(workload.script)
    world.crash(Random(stop_at) if how == "power" else None)
    assert world.live(workload.script)


def _small_limits(settings: Settings) -> LogLimits:
    limits = log_limits(settings)
    return replace(limits, journal=replace(limits.journal, first_file_bytes=32 << 10))


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Print what went wrong in a callback: the end of the disk is no error, all else is seen."""
    if not isinstance(context.get("exception"), PowerCut):
        loop.default_exception_handler(context)


def _clear(loop: asyncio.AbstractEventLoop) -> None:
    """End what a dead process left on its loop."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()
