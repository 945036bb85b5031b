"""Killed at its n-th write, sync, rename or unlink while it flushes, merges and removes files.

The first twenty in each process, and some later ones: the server, and the helper that merges, which
is killed alone and must cost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers import Trilogue
from tests.conformance.clients.base import Deadline
from tests.crash.faults import injected, require_strace
from tests.crash.ledger import Ledger
from tests.crash.load import ConfluentLoad, create_topic, judge, running
from tests.crash.parts import PATIENCE
from tests.waiting import wait_until

CALLS = "pwritev2,pwrite64,fdatasync,fsync,rename,renameat2,unlink,ftruncate"
NUMBERS = [*range(1, 21), *range(40, 201, 32)]
HELPER_NUMBERS = [1, 2, 3, 5, 8]
BUSY = {
    "journal.file-size": "64KiB",
    "segments.grace": "0",
    "retention.check-every": "1s",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Trilogue]:
    require_strace()
    made = Trilogue(tmp_path / "data", BUSY)
    made.start()
    create_topic(made.address, "ledger", 4)
    yield made
    made.kill9()


def loads(server: Trilogue, ledger: Ledger) -> list[ConfluentLoad]:
    return [ConfluentLoad(server.address, "ledger", 4, ledger, number=1, seed=1)]


def wait_for_merges(server: Trilogue, count: int) -> int:
    """Wait until the log has so many merges."""

    def count_merges() -> int:
        return server.output.count("merge.done")

    wait_until(
        lambda: count_merges() >= count,
        lambda: f"{count} merges: {server.output[-2000:]}",
        PATIENCE,
    )
    return count_merges()


def helpers(pid: int) -> list[int]:
    """The helper processes of a server."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children]


@pytest.mark.parametrize("number", NUMBERS)
def test_killed_while_it_merges_it_loses_nothing(
    server: Trilogue,
    chance: random.Random,
    report: Callable[[object], None],
    tmp_path: Path,
    number: int,
):
    ledger = Ledger(chance.randbytes(8))
    with running(loads(server, ledger)):
        merges = wait_for_merges(server, 1)
        with injected(server.pid, f"signal=KILL:when={number}", (), tmp_path / "log", calls=CALLS):
            server.running.wait(PATIENCE)
        server.start()
        ledger.wait_for_acks(300, PATIENCE)

    verdict = judge(server.address, "ledger", 4, ledger)
    report(f"{verdict}; {merges} merges before")
    assert verdict.bad == {}, verdict.examples
    known_files_are_there(server)


@pytest.mark.parametrize("number", HELPER_NUMBERS)
def test_a_helper_that_is_killed_costs_nothing(
    server: Trilogue,
    chance: random.Random,
    report: Callable[[object], None],
    tmp_path: Path,
    number: int,
):
    """Its half-written file stays unknown, and is removed with the next start at the latest."""
    ledger = Ledger(chance.randbytes(8))
    with running(loads(server, ledger)):
        merges = wait_for_merges(server, 1)
        with ExitStack() as stack:
            for pid in helpers(server.pid):
                log = tmp_path / f"log {pid}"
                fault = f"signal=KILL:when={number}"
                stack.enter_context(injected(pid, fault, (), log, calls=CALLS))
            deadline = Deadline("a helper that dies", PATIENCE)
            while "helper process ended" not in server.output:
                deadline.check(server.output[-2000:])
        again = wait_for_merges(server, merges + 1)
        assert server.running.alive
    server.kill9()
    server.start()

    verdict = judge(server.address, "ledger", 4, ledger)
    report(f"{verdict}; {again} merges")
    assert verdict.bad == {}, verdict.examples
    known_files_are_there(server)


def known_files_are_there(server: Trilogue) -> None:
    """After an orderly end and the next start's cleaning: what meta names, and nothing else."""
    assert server.stop() == 0
    server.start()
    deadline = Deadline("orphans that go", PATIENCE)
    while server.output.count("segment.orphan") > server.output.count("segment.removed"):
        deadline.check(server.output[-2000:])
    assert server.stop() == 0
