"""The commit thread has a short time slice, where the system lets a thread request one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from trilogue.log.journal import commit
from trilogue.log.journal.time_slice import SLICE_NS, read_time_slice, shorten_time_slice
from trilogue.log.ports import Committer, Scheduler

OTHER_SLICE_NS = 700_000
NO_THREAD = 1 << 30  # above every limit of process ids
KINDS: list[Callable[[Scheduler], Committer]] = [commit.PythonCommitter]
if commit.is_compiled():
    KINDS.append(commit.NativeCommitter)


@pytest.fixture
def thread_id() -> Iterator[int]:
    """A thread that waits until the test is over."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert thread.native_id is not None
    yield thread.native_id
    over.set()
    thread.join()


def expected_slice(thread_id: int, wanted_ns: int) -> int:
    """Return the slice that a request leads to: 0 on an old kernel, and in some sandboxes."""
    shorten_time_slice(thread_id, wanted_ns)
    found = read_time_slice(thread_id)
    assert found in {wanted_ns, 0}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_commit_thread_has_a_short_slice(
    kind: Callable[[Scheduler], Committer], thread_id: int
) -> None:
    async def find_slice() -> int:
        committer = kind(asyncio.get_running_loop())
        before = {each.native_id for each in threading.enumerate()}
        committer.start(lambda _: None)
        try:
            (new,) = {each.native_id for each in threading.enumerate()} - before
            assert new is not None
            return read_time_slice(new)
        finally:
            committer.close()

    assert asyncio.run(find_slice()) == expected_slice(thread_id, SLICE_NS)


def test_other_threads_keep_theirs(thread_id: int) -> None:
    before = read_time_slice(threading.get_native_id())
    expected_slice(thread_id, OTHER_SLICE_NS)
    assert read_time_slice(threading.get_native_id()) == before


def test_a_thread_that_is_not_there_is_passed_over() -> None:
    assert not shorten_time_slice(NO_THREAD)
    assert read_time_slice(NO_THREAD) == 0


def test_another_processor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not shorten_time_slice(threading.get_native_id())
    assert read_time_slice(threading.get_native_id()) == 0
