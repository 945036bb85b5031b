"""How many journal files a flush takes: as bytes and entries allow, fewer after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from trilogue.log.errors import StorageUnavailable
from trilogue.log.journal.files import SealedFile
from trilogue.log.segments.segment_info import FlushJob, FlushResult
from trilogue.node.background import flush
from trilogue.node.background.flush import JOB_BYTES, JOB_ENTRIES, Flusher
from trilogue.node.storage import Storage

MIB = 1 << 20


def sealed(number: int, size: int, entry_count: int) -> SealedFile:
    return SealedFile(Path(f"{number}.journal"), number, 1, number, number, size, entry_count, 0)


class Node:
    """What a flusher needs of a node; the helper process fails as often as it is set to."""

    pid = 1

    def __init__(self, files: Sequence[SealedFile], failures: int = 0) -> None:
        self.jobs: list[int] = []  # files of each
        self.failures = failures
        self.storage = SimpleNamespace(
            log=SimpleNamespace(
                sealed=files,
                tail_bytes=0,
                tail_limit=MIB,
                direct=False,
                apply_flush=lambda _result: None,
                flush_stuck=lambda: None,
            ),
            broker=SimpleNamespace(snapshot=list),
            meta=self,
            shared=None,
            fence=None,
            fs=SimpleNamespace(unlink=lambda _path: None),
            directory=SimpleNamespace(segments=Path()),
        )
        self.state = SimpleNamespace(
            partitions={}, flushed_through=0, cluster_id=bytes(16), node_id=1, node_epoch=1
        )

    async def reserve(self, _kind: str, _count: int) -> None: ...

    def allocate(self, _kind: str) -> int:
        return len(self.jobs) + 1

    async def write(self, *_change: object) -> None: ...

    async def run(self, _function: object, job: FlushJob) -> FlushResult:
        self.jobs.append(len(job.journal_paths))
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("the store does not answer")
        return FlushResult(None, {}, job.last_sequence, 0, 0, 0)

    def changed(self) -> None: ...

    def hurry(self) -> None: ...


def jobs_of(files: Sequence[SealedFile], failures: int = 0) -> list[int]:
    """The numbers of files of all jobs until everything is flushed."""
    node = Node(files, failures)

    async def run() -> None:
        flusher = Flusher(
            cast("Storage", node.storage),
            node,  # type: ignore[arg-type]
            node,  # type: ignore[arg-type]
            now_ms=lambda: 0,
            bytes_per_second=0,
        )
        running = asyncio.create_task(flusher.run())
        while flusher.waiting:
            await asyncio.sleep(0)
            assert not running.done(), running.exception()
        running.cancel()

    asyncio.run(run())
    return node.jobs


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "RETRY_S", (0.0,))


def test_many_small_files_are_one_job():
    assert jobs_of([sealed(each, MIB, 1_000) for each in range(1, 167)]) == [166]


@pytest.mark.parametrize(
    ("size", "entries"), [(JOB_BYTES // 4, 1), (MIB, JOB_ENTRIES // 4)], ids=["bytes", "entries"]
)
def test_a_job_is_bounded(size: int, entries: int):
    assert jobs_of([sealed(each, size, entries) for each in range(1, 10)]) == [4, 4, 1]


def test_a_file_above_the_bounds_is_a_job():
    files = [sealed(each, JOB_BYTES + 1, JOB_ENTRIES + 1) for each in range(1, 3)]

    assert jobs_of(files) == [1, 1]


def test_after_failures_jobs_are_small_and_grow_again():
    """A nearly full disk, or a store that takes few bytes in time, has room for one file."""
    files = [sealed(each, MIB, 1) for each in range(1, 17)]

    assert jobs_of(files, failures=4) == [16, 16, 4, 1, 1, 2, 4, 8, 1]
