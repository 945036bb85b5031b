"""Killed at its n-th write or sync, at start-up and at work: every place where it can be caught.

SQLite's way: strace delivers SIGKILL at the n-th such call, then the server starts again without
it and everything acked is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import Trilogue
from tests.crash.faults import injected, killing_wrapper, require_strace
from tests.crash.ledger import Ledger
from tests.crash.load import ConfluentLoad, create_topic, judge, running
from tests.crash.parts import PATIENCE
from tests.server import ServerDiedError

CALLS = "pwritev2,pwrite64,fdatasync,fsync,rename,renameat2,unlink,ftruncate"
NUMBERS = range(1, 21)
SMALL_FILES = {"journal.file-size": "256KiB"}  # so that files are closed and flushed as well

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Trilogue]:
    require_strace()
    made = Trilogue(tmp_path / "data", SMALL_FILES)
    yield made
    made.kill9()


def writing(server: Trilogue, ledger: Ledger) -> ConfluentLoad:
    return ConfluentLoad(server.address, "ledger", 2, ledger, number=1, seed=1)


@pytest.mark.parametrize("number", NUMBERS)
def test_killed_at_a_call_of_its_start_it_starts_the_next_time(
    *,
    server: Trilogue,
    chance: random.Random,
    report: Callable[[object], None],
    tmp_path: Path,
    number: int,
):
    """The first start makes the data directory, the second one recovers: both are interrupted."""
    ledger = Ledger(chance.randbytes(8))
    interrupted = Trilogue(
        server.data, SMALL_FILES, killing_wrapper(tmp_path / "log", CALLS, number)
    )
    died_first = died(interrupted)
    server.start()
    create_topic(server.address, "ledger", 2)
    with running([writing(server, ledger)]):
        ledger.wait_for_acks(300, PATIENCE)
    server.kill9()
    died_recovering = died(interrupted)
    server.start()

    verdict = judge(server.address, "ledger", 2, ledger)
    report(f"{verdict}; died at its first start: {died_first}, recovering: {died_recovering}")
    assert verdict.bad == {}, verdict.examples


def died(server: Trilogue) -> bool:
    """It dies at the chosen call, or it had fewer of them and is killed when it is ready."""
    server.doors = dict.fromkeys(server.doors, "127.0.0.1:0")
    try:
        server.start()
    except ServerDiedError:
        return True
    server.kill9()
    return False


@pytest.mark.parametrize("number", NUMBERS)
def test_killed_at_a_call_of_its_work_it_loses_nothing(
    server: Trilogue,
    chance: random.Random,
    report: Callable[[object], None],
    tmp_path: Path,
    number: int,
):
    ledger = Ledger(chance.randbytes(8))
    server.start()
    create_topic(server.address, "ledger", 2)
    with running([writing(server, ledger)]):
        ledger.wait_for_acks(chance.randrange(1, 600), PATIENCE)
        with injected(server.pid, f"signal=KILL:when={number}", (), tmp_path / "log", calls=CALLS):
            server.running.wait(PATIENCE)
        server.start()
        ledger.wait_for_acks(300, PATIENCE)

    verdict = judge(server.address, "ledger", 2, ledger)
    report(verdict)
    assert verdict.bad == {}, verdict.examples
