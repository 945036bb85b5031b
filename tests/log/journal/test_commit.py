"""One suite for all committers: compiled, uncompiled, inline."""

from __future__ import annotations

import asyncio
import errno
import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import FakeFileSystem, FakeLoop
from tests.pure import load_pure
from tests.waiting import run_ready_tasks
from trilogue.log.files import BLOCK, File, OsFileSystem
from trilogue.log.journal import commit
from trilogue.log.ports import Committer, Scheduler

PURE = load_pure("trilogue.log.journal.commit")
KINDS: dict[str, Callable[[Scheduler], Committer]] = {
    "python": commit.PythonCommitter,
    "inline": commit.InlineCommitter,
    "python uncompiled": PURE.PythonCommitter,
    "inline uncompiled": PURE.InlineCommitter,
}
if commit.is_compiled():
    KINDS["native"] = commit.NativeCommitter


@pytest.fixture(params=list(KINDS))
def make(request: pytest.FixtureRequest) -> Callable[[Scheduler], Committer]:
    return KINDS[request.param]


@pytest.fixture
def file(tmp_path: Path) -> File:
    fs = OsFileSystem()
    return fs.open(tmp_path / "file", create=True, direct=fs.takes_direct(tmp_path))


def block(text: bytes, count: int = 1) -> memoryview:
    data = memoryview(mmap.mmap(-1, count * BLOCK))
    data[: len(text)] = text
    return data


class ResultCollector:
    """Collects results and signals when there are enough."""

    def __init__(self) -> None:
        self.results: list[int] = []
        self.more = asyncio.Event()

    def __call__(self, result: int) -> None:
        self.results.append(result)
        self.more.set()

    async def until(self, count: int) -> None:
        while len(self.results) < count:
            self.more.clear()
            await self.more.wait()


def run(
    make: Callable[[Scheduler], Committer], use: Callable[[Committer, ResultCollector], object]
) -> ResultCollector:
    """Start a committer on a real loop and use it."""

    async def main() -> ResultCollector:
        collector = ResultCollector()
        committer = make(asyncio.get_running_loop())
        committer.start(collector)
        try:
            await asyncio.wait_for(use(committer, collector), 30)  # type: ignore[arg-type]
        finally:
            committer.close()
        return collector

    return asyncio.run(main())


def test_a_window_is_on_disk_when_its_commit_is_reported(
    make: Callable[[Scheduler], Committer], file: File
) -> None:
    async def use(committer: Committer, collector: ResultCollector) -> None:
        for at in range(20):
            committer.submit(file, block(b"window %d" % at, 2), at * BLOCK)
            assert len(collector.results) == at, "reported before it was submitted"
            await collector.until(at + 1)
            assert file.pread(20, at * BLOCK).rstrip(b"\0") == b"window %d" % at

    assert run(make, use).results == [0] * 20


def test_a_failed_write_is_reported_by_its_errno(
    make: Callable[[Scheduler], Committer], file: File
) -> None:
    async def use(committer: Committer, collector: ResultCollector) -> None:
        file.close()
        committer.submit(file, block(b"x"), 0)
        await collector.until(1)

    assert run(make, use).results == [errno.EBADF]


def test_only_one_write_at_a_time(make: Callable[[Scheduler], Committer], file: File) -> None:
    async def use(committer: Committer, collector: ResultCollector) -> None:
        committer.submit(file, block(b"x"), 0)
        with pytest.raises(RuntimeError):
            committer.submit(file, block(b"y"), 0)
        await collector.until(1)

    assert run(make, use).results == [0]


def test_close_waits_for_the_pending_write_and_returns_its_result(
    make: Callable[[Scheduler], Committer], file: File
) -> None:
    async def main() -> None:
        collector = ResultCollector()
        committer = make(asyncio.get_running_loop())
        committer.start(collector)
        committer.submit(file, block(b"last", 2048), 0)

        assert committer.close() == 0
        assert file.pread(4, 0) == b"last"
        assert file.size() == 2048 * BLOCK
        await run_ready_tasks()
        await run_ready_tasks()
        assert collector.results == [], "collector although close said it"

    asyncio.run(main())


def test_close_without_a_write_returns_none_and_is_idempotent(
    make: Callable[[Scheduler], Committer], file: File
) -> None:
    async def use(committer: Committer, collector: ResultCollector) -> None:
        committer.submit(file, block(b"x"), 0)
        await collector.until(1)
        assert committer.close() is None
        assert committer.close() is None

    run(make, use)


def test_a_committer_that_never_started_can_be_closed(
    make: Callable[[Scheduler], Committer],
) -> None:
    assert make(FakeLoop()).close() is None


def test_anything_unexpected_counts_as_an_error() -> None:
    class Odd:
        path = Path("odd")

        def pwrite_durable(self, data: object, offset: int) -> None:
            raise ValueError

    for module in (commit, PURE):
        assert module.commit_now(Odd(), block(b"x"), 0) == errno.EIO


def test_an_error_of_the_fake_disk_is_not_retried() -> None:
    fs, path = FakeFileSystem(), Path("/home/a")
    fs.make_directory(path.parent)
    file = fs.open(path, create=True)
    fs.fail("sync", errno.EIO)

    assert commit.commit_now(file, block(b"x"), 0) == errno.EIO
    assert fs.counts["sync"] == 1


def test_the_best_committer_is_the_compiled_one_where_there_is_one() -> None:
    assert type(PURE.thread_committer(FakeLoop())) is PURE.PythonCommitter
    assert not PURE.is_compiled()
    best = commit.thread_committer(FakeLoop())
    kind = commit.NativeCommitter if commit.is_compiled() else commit.PythonCommitter
    assert type(best) is kind
