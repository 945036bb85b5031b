"""The journal of TubeMQ's messages after a kill: torn, followed by garbage, or chopped.

The end of the journal holds messages and confirmed offsets.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import TrilogueForTubeMQ
from tests.crash import journal
from tests.crash.ledger import Ledger
from tests.crash.load import running
from tests.crash.parts import PATIENCE
from tests.crash.tubemq.tubemq_load import PLACES, full_read, make_topics, tube_load
from tests.crash.tubemq.tubemq_reader import reading

LAST = 3
ONE_FILE = {"journal.file-age": "1h"}  # holds all, however long that takes
GROUP = {"group": "keeps", "topic": PLACES[LAST][0], "partition": PLACES[LAST][1]}

Killed = tuple[Path, Ledger, int]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Its data; what was answered; where a group is that confirmed last of all."""
    server = TrilogueForTubeMQ(tmp_path_factory.mktemp("killed") / "data", ONE_FILE).start()
    make_topics(server)
    ledger = Ledger(random.Random(7).randbytes(8))
    with running(tube_load(server, ledger, seed=3)[:-1]):
        ledger.wait_for_acks(1_000, PATIENCE)
    with reading(server.doors["tubemq-broker"], "k-1", **GROUP) as reader:
        reader.register()
        assert reader.get(consumed=False)
        position = reader.commit(consumed=True)
    server.kill9()
    assert position > 0
    return server.data, ledger, position


@pytest.fixture
def copy(killed: Killed, tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    """A server, not started, on a copy of that data."""
    made = TrilogueForTubeMQ(tmp_path / "data", {"tubemq.hold": "0"})
    shutil.copytree(killed[0], made.data)
    yield made
    made.kill9()


@pytest.mark.parametrize("damage", [journal.append_garbage, journal.append_torn_frame])
def test_bytes_after_the_last_acknowledged_frame_are_dropped(
    killed: Killed,
    copy: TrilogueForTubeMQ,
    damage: Callable[[journal.JournalFile], None],
):
    _, ledger, position = killed
    damage(journal.newest(copy.data))
    copy.start()

    assert ledger.verdict(full_read(copy)).bad == {}
    with reading(copy.doors["tubemq-broker"], "k-2", **GROUP) as reader:
        assert reader.register() == position


def test_a_chopped_tail_costs_what_was_in_it_and_producers_go_on(
    killed: Killed, copy: TrilogueForTubeMQ
):
    ledger = killed[1]
    file = journal.newest(copy.data)
    journal.chop(file, len(file.frames) // 2)
    copy.start()

    reads = full_read(copy)
    verdict = ledger.verdict(reads)
    assert set(verdict.bad) == {"lost"}, verdict.examples
    for got in reads.values():
        assert [offset for offset, _ in got] == list(range(len(got)))
    with reading(copy.doors["tubemq-broker"], "k-2", **GROUP) as reader:
        reader.send(b"on")
    assert full_read(copy)[LAST] == [*reads[LAST], (len(reads[LAST]), b"on")]
