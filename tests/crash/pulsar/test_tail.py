"""The journal of Pulsar's messages after a kill, torn, followed by garbage, or chopped.

A test of its own beside tests/crash/test_journal_tail.py because what is found
there comes back by other ways: sequence ids from the stamps of entries, acks from facts.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import TrilogueForPulsar
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash import journal
from tests.crash.ledger import Ledger
from tests.crash.load import running
from tests.crash.parts import PATIENCE
from tests.crash.pulsar.pulsar_load import client, closing, full_read, pulsar_load, verdict_of

PARTITIONS = 2
ONE_FILE = {"journal.file-age": "1h"}  # holds all, however long that takes

Killed = tuple[Path, Ledger]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """The data of a server that was killed when all that it had been sent had its receipt."""
    server = TrilogueForPulsar(tmp_path_factory.mktemp("killed") / "data", ONE_FILE).start()
    ledger = Ledger(random.Random(7).randbytes(8))
    admin = Admin(server.http)
    admin.deduplicate("public/default")
    admin.make_partitioned("ledger", PARTITIONS)
    with running(pulsar_load(server.address, "ledger", PARTITIONS, ledger, seed=3)[:-1]):
        ledger.wait_for_acks(2_000, PATIENCE)
    server.kill9()
    assert ledger.failures == []
    return server.data, ledger


@pytest.fixture
def copy(killed: Killed, tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    """A server, not started, on a copy of that data."""
    made = TrilogueForPulsar(tmp_path / "data")
    shutil.copytree(killed[0], made.data)
    yield made
    made.kill9()


@pytest.mark.parametrize("damage", [journal.append_garbage, journal.append_torn_frame])
def test_bytes_after_the_last_acknowledged_frame_are_dropped(
    killed: Killed,
    copy: TrilogueForPulsar,
    damage: Callable[[journal.JournalFile], None],
):
    damage(journal.newest(copy.data))
    copy.start()

    reads = full_read(copy.address, "ledger", PARTITIONS)
    assert verdict_of(killed[1], reads, repeats=False)[0].bad == {}


def test_a_chopped_tail_costs_what_was_in_it_and_producers_go_on(
    killed: Killed, copy: TrilogueForPulsar
):
    ledger = killed[1]
    file = journal.newest(copy.data)
    journal.chop(file, len(file.frames) // 2)
    copy.start()

    reads = full_read(copy.address, "ledger", PARTITIONS)
    verdict, _ = verdict_of(ledger, reads, repeats=False)
    assert set(verdict.bad) == {"lost"}, verdict.examples
    for got in reads.values():
        assert [offset for offset, _ in got] == list(range(len(got)))
    with closing(client(copy.address)) as writing:  # what was cut may come again, and goes on
        topic = "ledger-partition-0"
        producer = writing.create_producer(topic, producer_name="load-3")
        last = producer.last_sequence_id()
        again = producer.send(b"again", sequence_id=last)
        assert again.entry_id() == -1
        assert producer.send(b"on", sequence_id=last + 1).entry_id() == len(reads[0])
