"""Kill, stop or freeze the broker under Pulsar's own client.

On a topic with deduplication, what a named producer resends is stored once: no message is lost,
duplicated, moved or changed. Without deduplication a kill may leave duplicates, as on a real
broker, but no message is lost.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests import brokers
from tests.brokers import TrilogueForPulsar
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.faults import kill, stop
from tests.crash.ledger import Ledger
from tests.crash.load import ACKS_WITHIN, end_under_load, running
from tests.crash.pulsar.pulsar_load import client, closing, judge, pulsar_load
from tests.waiting import wait_until

PARTITIONS = 4
ON_DISK = {"journal.file-age": "1s"}  # many flushes, so that kills meet them

Report = Callable[[object], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    made = brokers.TrilogueForPulsar(tmp_path / "data", ON_DISK)
    made.start()
    yield made
    made.kill9()


def run(
    server: TrilogueForPulsar,
    end: Callable[[TrilogueForPulsar], None],
    chance: random.Random,
    *,
    rounds: int,
    acks_a_round: int,
    deduplicates: bool,
) -> tuple[Ledger, list[float]]:
    """End the server `rounds` times under load; the ledger and the times to the first receipt."""
    ledger = Ledger(chance.randbytes(8))
    admin = Admin(server.http)
    admin.deduplicate("public/default", on=deduplicates)
    admin.make_partitioned("ledger", PARTITIONS)
    seed = chance.randrange(10**6)
    with running(pulsar_load(server.address, "ledger", PARTITIONS, ledger, seed=seed)):
        first_acks_s = end_under_load(server, end, ledger, chance, rounds=rounds, acks=acks_a_round)
    return ledger, first_acks_s


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "rounds", "acks"),
    [
        pytest.param(kill, 3, 2_000, id="kill9"),
        pytest.param(stop, 2, 2_000, id="sigterm"),
        pytest.param(kill, 12, 20_000, id="kill9-long", marks=pytest.mark.long),
        pytest.param(stop, 6, 20_000, id="sigterm-long", marks=pytest.mark.long),
    ],
)
def test_nothing_pulsar_clients_sent_is_lost_repeated_or_moved(
    *,
    server: TrilogueForPulsar,
    chance: random.Random,
    report: Report,
    end: Callable[[TrilogueForPulsar], None],
    rounds: int,
    acks: int,
):
    ledger, first_acks_s = run(
        server, end, chance, rounds=rounds, acks_a_round=acks, deduplicates=True
    )

    verdict, _ = judge(server.address, "ledger", PARTITIONS, ledger)
    report(f"{verdict}; first receipt after {', '.join(f'{each:.2f}' for each in first_acks_s)} s")
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rounds", "acks"),
    [
        pytest.param(2, 2_000, id="quick"),
        pytest.param(12, 20_000, id="long", marks=pytest.mark.long),
    ],
)
def test_without_deduplication_nothing_is_lost_either(
    server: TrilogueForPulsar, chance: random.Random, report: Report, rounds: int, acks: int
):
    ledger, _ = run(server, kill, chance, rounds=rounds, acks_a_round=acks, deduplicates=False)

    verdict, again = judge(server.address, "ledger", PARTITIONS, ledger, repeats=True)
    report(f"{verdict}; {again} came twice")
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks


@pytest.mark.parametrize("flushed", [False, True], ids=["in the journal", "in a segment"])
def test_resent_sequence_ids_are_stored_once_across_a_kill(tmp_path: Path, flushed: bool):
    """A resent sequence id gets a receipt without a message id, and is not stored again."""
    age = "200ms" if flushed else "60s"
    server = TrilogueForPulsar(tmp_path / "data", {"journal.file-age": age}).start()
    Admin(server.http).deduplicate("public/default")
    with closing(client(server.address)) as writing:
        producer = writing.create_producer("orders", producer_name="writer")
        ids = [producer.send(b"%d" % each, sequence_id=each * 10 + 10) for each in range(5)]
        assert [each.entry_id() for each in ids] == [0, 1, 2, 3, 4]
        if flushed:
            wait_for_flush(server)
    server.kill9()
    server.start()

    with closing(client(server.address)) as writing:
        producer = writing.create_producer("orders", producer_name="writer")
        assert producer.last_sequence_id() == 50
        again = [producer.send(b"again", sequence_id=each) for each in (50, 10, 45)]
        new = producer.send(b"5", sequence_id=51)
        assert [(each.ledger_id(), each.entry_id()) for each in again] == [(-1, -1)] * 3
        assert new.entry_id() == 5
        other = writing.create_producer("orders", producer_name="other")
        assert other.last_sequence_id() == -1
        assert other.send(b"6", sequence_id=1).entry_id() == 6
        reader = writing.create_reader("orders", pulsar.MessageId.earliest)
        found = [reader.read_next(60_000).data() for _ in range(7)]
        assert found == [b"%d" % each for each in range(7)]
        assert not reader.has_message_available()
    assert server.stop() == 0


def wait_for_flush(server: TrilogueForPulsar) -> None:
    wait_until(lambda: "flush.done" in server.output, lambda: f"a flush: {server.output}")


@pytest.mark.parametrize("seconds", [3, pytest.param(15, marks=pytest.mark.long)])
def test_a_server_that_was_frozen_goes_on_as_if_nothing_had_been(
    server: TrilogueForPulsar, chance: random.Random, report: Report, seconds: int
):
    ledger = Ledger(chance.randbytes(8))
    Admin(server.http).make_partitioned("ledger", PARTITIONS)
    with running(pulsar_load(server.address, "ledger", PARTITIONS, ledger, seed=1)):
        ledger.wait_for_acks(1_000, ACKS_WITHIN)
        server.running.signal(signal.SIGSTOP)
        threading.Event().wait(seconds)
        server.running.signal(signal.SIGCONT)
        ledger.wait_for_acks(1_000, ACKS_WITHIN)

    verdict, _ = judge(server.address, "ledger", PARTITIONS, ledger)
    report(verdict)
    assert verdict.bad == {}, verdict.examples


def test_a_fenced_producer_stays_out_also_over_a_kill(server: TrilogueForPulsar):
    """A fenced producer never writes again, whichever producers come and go."""
    fencing = pulsar.ProducerAccessMode.ExclusiveWithFencing
    with closing(client(server.address)) as one, closing(client(server.address)) as other:
        old = one.create_producer("orders", access_mode=fencing, send_timeout_millis=10_000)
        old.send(b"0")
        new = other.create_producer("orders", access_mode=fencing)
        new.send(b"1")
        with pytest.raises(pulsar.PulsarException):
            old.send(b"from a zombie")
        server.kill9()
        server.start()
        new.send(b"2")
        with pytest.raises(pulsar.PulsarException):
            old.send(b"from a zombie")
        reader = other.create_reader("orders", pulsar.MessageId.earliest)
        found = [reader.read_next(60_000).data() for _ in range(3)]
        assert found == [b"0", b"1", b"2"]
        assert not reader.has_message_available()
