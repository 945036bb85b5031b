"""A disk that fails and a disk that is full: what is refused, what stays, what comes back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import Trilogue
from tests.conformance.clients.base import Deadline
from tests.conformance.raw import batch_of, produce
from tests.crash.faults import first_error_at, injected, require_strace, small_disk
from tests.crash.ledger import Ledger
from tests.crash.load import (
    PATIENCE,
    ConfluentLoad,
    create_topic,
    full_read,
    judge,
    mixed_load,
    running,
)  # fmt: skip

PARTITIONS = 3
ENDS_WITHIN = 60.0
KAFKA_STORAGE_ERROR = 56
RETRIED = {"failed", "duplicated", "reordered"}  # what a producer without numbers does by itself
ON_ITS_WAY = 30.0  # an ack may sit in a socket while the next write fails, until its client runs

Report = Callable[[object], None]


@pytest.mark.timeout(180)
def test_a_failed_write_ends_the_server_before_another_ack(
    trilogue: Trilogue, chance: random.Random, report: Report, tmp_path: Path
):
    """No ack and no retry after it: the server exits non-zero, and the next start recovers."""
    require_strace()
    trilogue.start()
    ledger = Ledger(chance.randbytes(8))
    create_topic(trilogue.address, "ledger", PARTITIONS)
    log = tmp_path / "strace.log"
    loads = mixed_load(trilogue.address, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))

    with running(loads):
        ledger.wait_for_acks(1000, PATIENCE)
        files = sorted((trilogue.data / "journal").iterdir())
        with injected(trilogue.pid, "error=EIO:when=1", files, log):
            code = trilogue.running.wait(ENDS_WITHIN)
        last_ack = time.time() - (time.monotonic() - ledger.last_ack)
        trilogue.start()
        ledger.wait_for_acks(1000, PATIENCE)

    failed_at = first_error_at(log)
    assert failed_at is not None, "no write was failed"
    assert code > 0
    assert last_ack <= failed_at + ON_ITS_WAY
    verdict = judge(trilogue.address, "ledger", PARTITIONS, ledger)
    report(f"{verdict}; exit code {code}")
    assert verdict.bad == {}, verdict.examples


def test_a_write_of_unknown_outcome_is_not_answered(trilogue: Trilogue, tmp_path: Path):
    """It may come back: librdkafka would send it again under other numbers after error 56."""
    require_strace()
    trilogue.start()
    create_topic(trilogue.address, "ledger", 1)
    batch = batch_of(b"a")
    assert produce(trilogue.address, "ledger", 0, batch) == 0
    files = sorted((trilogue.data / "journal").iterdir())

    with (
        injected(trilogue.pid, "error=EIO:when=1", files, tmp_path / "log"),
        pytest.raises((EOFError, ConnectionError)),
    ):
        produce(trilogue.address, "ledger", 0, batch)

    assert trilogue.running.wait(ENDS_WITHIN) > 0


@pytest.mark.timeout(240)
def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    chance: random.Random, report: Report, tmp_path: Path
):
    """Fill a disk of 768 MiB with a third of it in a file that is removed later."""
    with small_disk(tmp_path / "disk", 768) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(256 << 20))
        server = Trilogue(disk / "data")
        server.start()
        ledger = Ledger(chance.randbytes(8))
        create_topic(server.address, "ledger", 1)
        create_topic(server.address, "other", 1)
        try:
            fill(server, ledger)
            stuck = len(ledger.acked)
            assert server.running.alive, server.output
            wait_for_refusal(server)
            refused = ledger.verdict(full_read(server.address, "ledger", 1))
            ballast.unlink()
            again = Writer(server, ledger, number=2)
            with running([again]):
                ledger.wait_for_acks(200, PATIENCE)
            server.kill9()
            server.start()
            verdict = judge(server.address, "ledger", 1, ledger)
        finally:
            server.kill9()

    report(f"{stuck} acked until full, {verdict.acked} in all: {verdict}")
    assert set(refused.bad) <= RETRIED, refused.examples
    assert set(verdict.bad) <= RETRIED, verdict.examples


def wait_for_refusal(server: Trilogue) -> None:
    """A producer may be kept waiting while there is hope, not for ever."""
    deadline = Deadline("KAFKA_STORAGE_ERROR", PATIENCE)
    while True:
        deadline.check(server.output[-2000:])
        try:
            error = produce(server.address, "other", 0, batch_of(bytes(200_000)))
        except TimeoutError:
            continue
        if error == KAFKA_STORAGE_ERROR:
            return


class Writer(ConfluentLoad):
    """Values of 100 kB that are given up after a while, as an application would."""

    def __init__(self, server: Trilogue, ledger: Ledger, *, number: int) -> None:
        super().__init__(
            server.address,
            "ledger",
            1,
            ledger,
            number=number,
            seed=number,
            idempotent=False,
            more={"message.timeout.ms": 5000, "queue.buffering.max.kbytes": 4096},
        )

    def size(self) -> int:
        return 100_000


def fill(server: Trilogue, ledger: Ledger) -> None:
    """Write until records are given up because the server takes no more."""
    writer = Writer(server, ledger, number=1)
    deadline = Deadline("a full disk", PATIENCE)
    with running([writer]):
        while not ledger.failures:
            deadline.check(len(ledger.acked))
            writer.stopping.wait(0.1)
