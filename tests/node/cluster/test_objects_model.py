"""Objects of a node that is taken over: every order of its steps and those of the next process.

Object storage knows no fence. The real flush and the real search for orphans of two processes of
one node run over one store in memory; a schedule says which of them takes its next step, so that
the former process may stand still at any step and wake at any other. Each mistake that could be
made is planted, and some schedule must show it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import pytest

from tests.s3 import CLUSTER, MemoryObjects
from trilogue.log.journal.files import SealedFile
from trilogue.log.objects.objects import Objects, ObjectsEnvironment
from trilogue.log.objects.uploads import UploadJob, UploadResult
from trilogue.log.segments.extents import EMPTY
from trilogue.log.segments.segment import HEADER
from trilogue.log.segments.segment_info import FlushJob, FlushResult, SegmentInfo, segment_name
from trilogue.meta.errors import Fenced, MetaError
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import BeginEpoch, ChangeResult, Op, Precondition
from trilogue.node.background.flush import Cut, Flusher
from trilogue.node.background.objects import ObjectMover

NODE: Final = 1
SIZE: Final = 256
LATE_PUT: Final = "a late put takes the place of an object"
LATE_RECORD: Final = "a late put is recorded"
WOKEN_DELETE: Final = "a delete by a woken node"
STEPS: Final = {"flush": 2, "sweep": 3, "next": 3}

Gate = Callable[[], Coroutine[Any, Any, None]]
Result = TypeVar("Result")


class OverwritingObjects(MemoryObjects):
    """A store that does not look whether there is an object."""

    def put(self, key: str, data: memoryview | bytes) -> None:
        self.objects[key] = bytes(data)


class ProcessMeta:
    """What one process knows of the metadata of all; each change has its fence, as PostgreSQL's."""

    def __init__(self, shared: MemoryMeta, gate: Gate, mistake: str) -> None:
        self._shared, self._gate, self._mistake = shared, gate, mistake
        self.epoch = 0
        self.begin()

    def begin(self) -> None:
        """Begin the next epoch of the node."""
        self._shared.write_now([BeginEpoch(NODE)])
        self.state = self._shared.state.copy()
        self.epoch = self.state.nodes[NODE].epoch

    def _check(self, mistake: str) -> None:
        if self._mistake != mistake and self._shared.state.nodes[NODE].epoch != self.epoch:
            raise Fenced(f"epoch {self.epoch} is over")

    async def write(
        self, ops: Sequence[Op], preconditions: Sequence[Precondition] = (), _fence: object = None
    ) -> ChangeResult:
        await self._gate()
        self._check(LATE_RECORD)
        result = self._shared.write_now(ops, preconditions)
        self.state = self._shared.state.copy()
        return result

    async def catch_up(self) -> None:
        await self._gate()
        self._check(WOKEN_DELETE)
        self.state = self._shared.state.copy()

    async def reserve(self, _kind: str, _count: int) -> None: ...

    def allocate(self, kind: str) -> int:
        if self._mistake == LATE_PUT:
            return max(self.state.segments, default=0) + 1
        return self._shared.allocate(kind)


class Mover(ObjectMover):
    """Each request to the store is a step."""

    gate: Gate

    async def _call_store(self, call: Callable[[], Result]) -> Result:
        await self.gate()
        return call()


class Process:
    """A process of the node: its flush of windows, and its search for orphans."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self._world = name, world
        self.meta = ProcessMeta(world.meta, world.gate, world.mistake)
        around = ObjectsEnvironment(lambda: 0.0, lambda _s: None, Random(1))
        self._objects = Objects(world.store, CLUSTER, around, NODE)
        self._storage: Any = SimpleNamespace(
            meta=self.meta,
            fence=None,
            shared=SimpleNamespace(flushed=lambda _sequence: None),
            fs=SimpleNamespace(unlink=lambda _path: None, exists=lambda _path: False),
            directory=SimpleNamespace(segments=Path()),
            broker=SimpleNamespace(
                cluster=SimpleNamespace(ownership=SimpleNamespace(owns_segment=lambda _one: True))
            ),
            log=SimpleNamespace(
                sealed=[],
                tail_bytes=0,
                tail_limit=1,
                direct=False,
                segments={},
                apply_flush=lambda _result: None,
                check_segments=world.missing.update,
            ),
        )
        self.mover = Mover(
            self._storage,
            None,  # type: ignore[arg-type]
            reach=None,  # type: ignore[arg-type]
            cache=SimpleNamespace(objects=self._objects, forget=lambda _n: None),  # type: ignore[arg-type]
            helper=self,  # type: ignore[arg-type]
            executor=None,  # type: ignore[arg-type]
            now_ms=lambda: 0,
            monotonic=lambda: 0.0,
            grace_s=0.0,
            keep_local_s=None,
            move_after_s=0.0,
        )
        self.mover.gate = world.gate

    async def run(self, _function: object, job: FlushJob | UploadJob) -> object:
        """Stand where the helper process is: sort windows, or put an object."""
        if isinstance(job, UploadJob):
            await self._world.gate()
            self._objects.put(job.segment, memoryview(self._data()))
            return UploadResult(was_there=False, retries=0)
        segment = SegmentInfo(
            segment_id=job.segment_id,
            level=0,
            name=segment_name(job.segment_id),
            size=SIZE,
            node_id=NODE,
            node_epoch=self.meta.epoch,
            created_ms=0,
            first_sequence=job.flushed_through + 1,
            last_sequence=job.last_sequence,
            footer_position=HEADER.size,
            footer_size=SIZE - HEADER.size,
            partitions=EMPTY,
        )
        return FlushResult(segment, {}, job.last_sequence, 1, 0, SIZE)

    def _data(self) -> bytes:
        return self.name.encode().ljust(SIZE)

    async def flush(self, through: int) -> None:
        """Bring the windows after flushed-through into a segment, and record it."""
        first = self.meta.state.flushed_through + 1
        file = SealedFile(Path("1.journal"), 1, 1, first, through, 1, 1, 0)
        flusher = Flusher(
            self._storage,
            self,  # type: ignore[arg-type]
            SimpleNamespace(changed=lambda: None),  # type: ignore[arg-type]
            now_ms=lambda: 0,
            bytes_per_second=0,
            store=self.mover.store,
        )
        await flusher._flush([Cut(file, [])])
        self._world.recorded.update(
            {
                each.name: self._data()
                for each in self.meta.state.segments.values()
                if each.node_epoch == self.meta.epoch
            }
        )

    async def sweep(self) -> None:
        """Find objects that meta does not know, and remove them."""
        await self.mover._find_orphans()
        await self.mover._remove_objects()


class World:
    """One store and one database; the former process, and the one that takes the node over."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake
        self.store = OverwritingObjects() if mistake == LATE_PUT else MemoryObjects()
        self.meta = MemoryMeta(CLUSTER)
        self.recorded: dict[str, bytes] = {}  # by name of a segment that meta has
        self.missing: set[str] = set()
        self.failures: dict[str, BaseException] = {}
        self._turns: dict[str, asyncio.Event] = {}
        self._waiting: dict[str, asyncio.Event] = {}
        self.former = Process("former", self)

    async def gate(self) -> None:
        """Wait until the schedule lets this actor take its next step."""
        task = asyncio.current_task()
        assert task is not None
        name = task.get_name()
        turn = self._turns[name] = asyncio.Event()
        self._waiting[name].set()
        await turn.wait()

    async def take_over(self) -> None:
        await self.gate()
        successor = Process("next", self)
        await successor.flush(2)

    async def play(self, schedule: Sequence[str]) -> None:
        actors = {
            "flush": self.former.flush(1),
            "sweep": self.former.sweep(),
            "next": self.take_over(),
        }
        self._waiting = {name: asyncio.Event() for name in actors}
        tasks = {name: asyncio.create_task(each, name=name) for name, each in actors.items()}
        rest = itertools.chain.from_iterable([name] * 9 for name in tasks)
        for name in itertools.chain(schedule, rest):
            await self._step(name, tasks[name])
        found = await asyncio.gather(*tasks.values(), return_exceptions=True)
        self.failures = {
            name: each for name, each in zip(tasks, found, strict=True) if each is not None
        }

    async def _step(self, name: str, task: asyncio.Task[None]) -> None:
        """Let an actor go from a step to the next one, or to its end."""
        waiting = asyncio.create_task(self._waiting[name].wait())
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            return
        self._waiting[name].clear()
        self._turns[name].set()
        waiting = asyncio.create_task(self._waiting[name].wait())
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    @property
    def wrong(self) -> list[object]:
        """What must not be, in the end."""
        found: list[object] = [self.failures["next"]] if "next" in self.failures else []
        found += [
            each
            for name, each in self.failures.items()
            if name != "next" and not isinstance(each, MetaError)
        ]
        windows: Counter[int] = Counter()
        for segment in self.meta.state.segments.values():
            windows.update(range(segment.first_sequence, segment.last_sequence + 1))
            key = self.former.mover.cache.objects.key(segment.name, NODE)
            if self.store.objects.get(key) != self.recorded.get(segment.name):
                found.append(("object", segment.name, self.store.objects.get(key)))
        if windows != Counter((1, 2)):
            found.append(("windows", windows))
        return found + sorted(self.missing)


def orders(counts: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Every order of the steps of the actors."""
    if not any(counts.values()):
        yield ()
    for name, count in counts.items():
        if count:
            for order in orders({**counts, name: count - 1}):
                yield (name, *order)


def play_all(mistake: str = "") -> tuple[int, list[object]]:
    """Return how many schedules were played, and the first bad one."""

    async def run() -> tuple[int, list[object]]:
        played = 0
        for schedule in orders(STEPS):
            world = World(mistake)
            await world.play(schedule)
            played += 1
            if world.wrong:
                return played, [schedule, *world.wrong]
        return played, []

    return asyncio.run(run())


def test_no_order_loses_an_object_or_has_a_window_twice():
    played, wrong = play_all()

    assert wrong == []
    assert played == 560


@pytest.mark.parametrize("mistake", [LATE_PUT, LATE_RECORD, WOKEN_DELETE])
def test_a_planted_mistake_with_objects_is_found(mistake: str):
    _, wrong = play_all(mistake)

    assert wrong, "the schedules do not show the mistake"
