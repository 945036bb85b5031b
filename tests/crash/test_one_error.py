"""One failed system call of a real server at each kind of file, and a second owner of its data.

A failed write or sync of the journal or of meta ends the server with an exit code other than 0, and
no message is acked after it. A failure in a file that no other state refers to is retried.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Trilogue
from tests.conformance.clients.base import Deadline
from tests.crash.faults import first_error_at, injected, require_strace
from tests.crash.ledger import Ledger
from tests.crash.load import ConfluentLoad, create_topic, judge, running
from tests.crash.parts import PATIENCE
from tests.crash.test_kill_with_merges import BUSY, helpers, loads, wait_for_merges
from tests.server import ServerDiedError, launch_server

CALLS = "pwritev2,pwrite64,fdatasync,fsync"
ENDS_WITHIN = 60.0
ON_ITS_WAY = 30.0  # an ack may sit in a socket until its client runs
DELAY_US = 300_000
SLOW_S = 10.0
RSS_GROWTH_MAX = 200 << 20

Report = Callable[[object], None]
pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Trilogue]:
    require_strace()
    made = Trilogue(tmp_path / "data", BUSY)
    made.start()
    create_topic(made.address, "ledger", 4)
    yield made
    made.kill9()


def meta_files(server: Trilogue) -> list[Path]:
    return [path for path in server.data.glob("meta.sqlite*") if path.suffix != ".sqlite-shm"]


def journal_files(server: Trilogue) -> list[Path]:
    """Those that are there, and those that come: names are never used again."""
    there = [int(path.stem) for path in (server.data / "journal").glob("*.journal")]
    numbers = range(min(there), max(there) + 400)
    return [server.data / "journal" / f"{number:016d}.journal" for number in numbers]


@pytest.mark.parametrize("files", [journal_files, meta_files])
def test_error_in_a_durability_call_ends_the_server(
    server: Trilogue,
    chance: random.Random,
    report: Report,
    tmp_path: Path,
    files: Callable[[Trilogue], list[Path]],
):
    ledger = Ledger(chance.randbytes(8))
    log = tmp_path / "strace"
    with running(loads(server, ledger)):
        ledger.wait_for_acks(1000, PATIENCE)
        with injected(server.pid, "error=EIO:when=1", files(server), log, calls=CALLS):
            code = server.running.wait(ENDS_WITHIN)
        last_ack = time.time() - (time.monotonic() - ledger.last_ack)
        server.start()
        ledger.wait_for_acks(300, PATIENCE)

    failed_at = first_error_at(log)
    assert failed_at is not None, "no call was failed"
    assert code > 0
    if files is journal_files:
        assert last_ack <= failed_at + ON_ITS_WAY
    verdict = judge(server.address, "ledger", 4, ledger)
    report(f"{verdict}; exit code {code}")
    assert verdict.bad == {}, verdict.examples


def test_an_error_while_a_segment_is_written_loses_nothing(
    server: Trilogue, chance: random.Random, report: Report, tmp_path: Path
):
    """A flush's ends the server (the journal has it all); a merge's is done again."""
    ledger = Ledger(chance.randbytes(8))
    ended = 0
    with running(loads(server, ledger)):
        wait_for_merges(server, 1)
        for number, helper in enumerate(helpers(server.pid)):
            log = tmp_path / f"strace {number}"
            with injected(helper, "error=EIO:when=1", (), log, calls=CALLS):
                deadline = Deadline("a failed call", PATIENCE)
                while not (log.exists() and first_error_at(log)):
                    deadline.check(server.output[-1000:])
                if "maintenance.failed" not in server.output:
                    assert server.running.wait(ENDS_WITHIN) > 0
                    ended += 1
                    break
        if not server.running.alive:
            server.start()
        ledger.wait_for_acks(300, PATIENCE)

    verdict = judge(server.address, "ledger", 4, ledger)
    report(f"{verdict}; the server ended {ended} times")
    assert verdict.bad == {}, verdict.examples


def test_an_error_of_the_manifest_is_mended(
    server: Trilogue, chance: random.Random, report: Report, tmp_path: Path
):
    ledger = Ledger(chance.randbytes(8))
    draft = server.data / "segments" / "manifest.json.tmp"
    with running(loads(server, ledger)):
        wait_for_merges(server, 1)
        with injected(server.pid, "error=EIO:when=1", [draft], tmp_path / "log", calls=CALLS):
            deadline = Deadline("a manifest that failed", PATIENCE)
            while "manifest.failed" not in server.output:
                deadline.check(server.output[-1000:])
        ledger.wait_for_acks(300, PATIENCE)
        assert server.running.alive
    assert server.stop() == 0
    server.start()

    verdict = judge(server.address, "ledger", 4, ledger)
    report(verdict)
    assert verdict.bad == {}, verdict.examples


def test_a_slow_disk_makes_acks_late_and_nothing_else(
    server: Trilogue, chance: random.Random, report: Report, tmp_path: Path
):
    """Each write of the journal takes 300 ms more."""
    ledger = Ledger(chance.randbytes(8))
    with running(loads(server, ledger)):
        ledger.wait_for_acks(500, PATIENCE)
        before = rss(server.pid)
        fault = f"delay_enter={DELAY_US}"
        log = tmp_path / "log"
        with injected(server.pid, fault, journal_files(server), log, calls=CALLS):
            ends = time.monotonic() + SLOW_S
            while time.monotonic() < ends:
                ledger.wait_for_acks(1, PATIENCE)
        growth = rss(server.pid) - before
        ledger.wait_for_acks(300, PATIENCE)

    verdict = judge(server.address, "ledger", 4, ledger)
    report(f"{verdict}; memory grew by {growth >> 20} MiB")
    assert verdict.bad == {}, verdict.examples
    assert growth <= RSS_GROWTH_MAX
    assert log.read_text().count("DELAYED") >= SLOW_S


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


# ── two owners ────────────────────────────────────────────────────────────────────────────────


def test_a_second_process_is_refused_and_does_no_harm(server: Trilogue, chance: random.Random):
    ledger = Ledger(chance.randbytes(8))
    with running(loads(server, ledger)):
        ledger.wait_for_acks(100, PATIENCE)
        for _ in range(3):
            second = launch_server(server.data, settings=BUSY)
            with pytest.raises(ServerDiedError, match="in use by another process"):
                second.wait_ready()
        ledger.wait_for_acks(100, PATIENCE)

    assert judge(server.address, "ledger", 4, ledger).bad == {}


def test_an_owner_that_slept_is_fenced(server: Trilogue, chance: random.Random, report: Report):
    """Its lock file was removed, so another owner could start: its own writes are refused."""
    ledger = Ledger(chance.randbytes(8))
    with running(loads(server, ledger)):
        ledger.wait_for_acks(300, PATIENCE)
    old = server.running
    old.signal(signal.SIGSTOP)
    (server.data / "lock").unlink()
    heir = Trilogue(server.data, BUSY)
    heir.start()
    try:
        second = ConfluentLoad(heir.address, "ledger", 4, ledger, number=2, seed=2)
        with running([second]):
            ledger.wait_for_acks(300, PATIENCE)
            old.signal(signal.SIGCONT)
            admin = AdminClient({"bootstrap.servers": old.kafka, "log_level": 0})
            admin.create_topics([NewTopic("too-late", 1, 1)])
            code = old.wait(PATIENCE)
            ledger.wait_for_acks(300, PATIENCE)
        heir.kill9()
        heir.start()
        verdict = judge(heir.address, "ledger", 4, ledger)
        topics = AdminClient({"bootstrap.servers": heir.address}).list_topics(timeout=PATIENCE)
    finally:
        heir.kill9()
    report(f"{verdict}; the old owner's exit code {code}")
    assert code > 0
    assert "too-late" not in topics.topics
    assert verdict.bad == {}, verdict.examples
