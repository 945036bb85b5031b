"""The journal after a kill, damaged further: torn, followed by garbage, truncated, bits flipped.

What was never acked may be lost, and what was acked stays. What a disk lost after it had reported
it durable is missing at the end of its partitions and nowhere else, and no other bytes are served
in its place.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import Trilogue
from tests.conformance.clients import IN_PROCESS, Record
from tests.crash import journal
from tests.crash.ledger import Ledger, Verdict
from tests.crash.load import ConfluentLoad, create_topic, full_read, running
from tests.crash.parts import PATIENCE
from tests.server import ServerDiedError

PARTITIONS = 3

Killed = tuple[Path, Ledger]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """The data of a server that was killed when all that it had been sent was acked."""
    server = Trilogue(tmp_path_factory.mktemp("killed") / "data", {"journal.file-age": "1h"})
    server.start()
    ledger = Ledger(random.Random(7).randbytes(8))
    create_topic(server.address, "ledger", PARTITIONS)
    loads = [
        ConfluentLoad(server.address, "ledger", PARTITIONS, ledger, number=number, seed=number)
        for number in (1, 2)
    ]
    with running(loads):
        ledger.wait_for_acks(3000, PATIENCE)
    server.kill9()
    assert ledger.failures == []
    return server.data, ledger


@pytest.fixture
def copy(killed: Killed, tmp_path: Path) -> Iterator[Trilogue]:
    """A server, not started, on a copy of that data."""
    made = Trilogue(tmp_path / "data")
    shutil.copytree(killed[0], made.data)
    yield made
    made.kill9()


def verdict_of(server: Trilogue, ledger: Ledger) -> Verdict:
    return ledger.verdict(full_read(server.address, "ledger", PARTITIONS))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _: None, id="nothing"),
        journal.append_garbage,
        journal.append_torn_frame,
        journal.append_old_frame,
    ],
)
def test_bytes_after_the_last_acknowledged_frame_are_dropped(
    killed: Killed, copy: Trilogue, damage: Callable[[journal.JournalFile], None]
):
    damage(journal.newest(copy.data))

    copy.start()

    assert verdict_of(copy, killed[1]).bad == {}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda file: journal.chop(file, 1), id="last-frame"),
        pytest.param(lambda file: journal.chop(file, len(file.frames) // 2), id="half-of-it"),
        journal.cut_in_half,
    ],
)
def test_a_chopped_tail_costs_what_was_in_it_and_nothing_else(
    killed: Killed, copy: Trilogue, damage: Callable[[journal.JournalFile], None]
):
    ledger = killed[1]
    damage(journal.newest(copy.data))

    copy.start()

    reads = full_read(copy.address, "ledger", PARTITIONS)
    verdict = ledger.verdict(reads)
    assert set(verdict.bad) == {"lost"}, verdict.examples
    ends = {partition: len(got) for partition, got in reads.items()}
    assert {number: [offset for offset, _ in got] for number, got in reads.items()} == {
        number: list(range(end)) for number, end in ends.items()
    }
    kept = sum(ends.values())
    assert kept + verdict.lost == len(ledger.acked)


def test_producers_go_on_after_a_chopped_tail(killed: Killed, copy: Trilogue):
    journal.chop(journal.newest(copy.data), 5)
    copy.start()

    before = sum(len(got) for got in full_read(copy.address, "ledger", PARTITIONS).values())
    for client in IN_PROCESS:
        client.write(copy.address, "ledger", [Record(b"k", b"on")] * 10, idempotent=True)
    copy.kill9()
    copy.start()

    after = sum(len(got) for got in full_read(copy.address, "ledger", PARTITIONS).values())
    assert after == before + 10 * len(IN_PROCESS)


def test_a_flipped_bit_before_the_durable_end_is_not_passed_over(copy: Trilogue):
    """Later frames prove that this one was durable: the server names it and does not start."""
    journal.flip_in_the_middle(journal.newest(copy.data))

    with pytest.raises(ServerDiedError, match=r"exit code [1-9](.|\n)*(corrupt|journal)"):
        copy.start()
