"""What a restart recovers, as Kafka's clients see it.

Producers without sequence numbers lose nothing either, but may duplicate; a batch that is resent
after a kill keeps its offset; files that can be rebuilt from others are rebuilt.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import Trilogue
from tests.conformance.asking import Asker
from tests.conformance.clients.base import Record
from tests.conformance.clients.confluent import Confluent
from tests.crash.ledger import Ledger
from tests.crash.load import AioLoad, ConfluentLoad, Tail, create_topic, full_read, running
from tests.crash.parts import PATIENCE
from tests.waiting import wait_until
from trilogue.entry.entry import Record as Made
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.wire.kafka.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from trilogue.wire.kafka.transactions.init_producer_id import InitProducerIdRequest

TOPIC, PARTITIONS = "ledger", 2
MAY_BE = {"duplicated", "reordered", "wrong_offset"}  # where a batch is sent again without a number
OFTEN = {"journal.file-size": "64KiB", "journal.file-age": "200ms"}

AFTER_RESTART = ["segments/manifest.json", "reserve", "lock"]

Report = Callable[[object], None]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rounds", "acks"), [(2, 1_000), pytest.param(5, 15_000, marks=pytest.mark.long)]
)
def test_producers_without_numbers_lose_nothing(
    trilogue: Trilogue, chance: random.Random, report: Report, rounds: int, acks: int
):
    """Duplicates are allowed here; they are counted and reported."""
    trilogue.start()
    address, ledger = trilogue.address, Ledger(chance.randbytes(8))
    create_topic(address, TOPIC, PARTITIONS)
    loads = [
        ConfluentLoad(address, TOPIC, PARTITIONS, ledger, number=1, seed=1, idempotent=False),
        AioLoad(address, TOPIC, PARTITIONS, ledger, number=2, seed=2, idempotent=False),
        Tail(address, TOPIC, PARTITIONS, ledger),
    ]
    with running(loads):
        for _ in range(rounds):
            ledger.wait_for_acks(acks + chance.randrange(acks), PATIENCE)
            trilogue.kill9()
            trilogue.start()
        ledger.wait_for_acks(acks, PATIENCE)

    verdict = ledger.verdict(full_read(address, TOPIC, PARTITIONS))
    report(f"{rounds} kills: {verdict}")
    assert set(verdict.bad) <= MAY_BE, verdict.examples


@pytest.mark.parametrize("settings", [{}, OFTEN], ids=["journal", "flushed"])
def test_a_batch_that_is_sent_again_after_a_kill_has_its_old_place(
    trilogue: Trilogue, settings: dict[str, object]
):
    """Check 15, from the journal and from what a flush has kept; KIP-98."""
    trilogue.settings.update(settings)
    trilogue.start()
    create_topic(trilogue.address, "t", 1)
    with Asker(trilogue.address) as asker:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        producer_id = asker.request(request, 2).producer_id
        assert producer_id >= 0
    batches = [
        build_batch(
            [Made(0, 1_700_000_000_000, b"k", b"%d" % number)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        for number in range(5)
    ]
    first = [send(trilogue.address, each) for each in batches]
    if settings:
        wait_for_flush(trilogue)
    trilogue.kill9()
    trilogue.start()

    again = [send(trilogue.address, each) for each in batches]
    assert again == first == [(0, number) for number in range(5)]
    values = [value for _, value in full_read(trilogue.address, "t", 1)[0]]
    assert values == [b"%d" % number for number in range(5)]


def send(address: str, batch: bytes) -> tuple[int, int]:
    """Error and offset of one Produce."""
    data = PartitionProduceData(index=0, records=batch)
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    with Asker(address) as asker:
        (topic,) = asker.request(request, 8).responses
    (row,) = topic.partition_responses
    return row.error_code, row.base_offset


def wait_for_flush(server: Trilogue) -> None:
    wait_until(lambda: "flush.done" in server.output, lambda: f"a flush: {server.output}")


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "names",
    [AFTER_RESTART, *(pytest.param([each], marks=pytest.mark.long) for each in AFTER_RESTART)],
)
@pytest.mark.parametrize("damage", [Path.unlink, make_empty])
def test_files_that_can_be_made_again_are(
    trilogue: Trilogue, names: list[str], damage: Callable[[Path], object]
):
    """Check 12. Indexes are parts of segments, positions and topics are in meta: these may not go.

    Refusals of a start without those: tests/log/test_directory.py, tests/log/test_missing_files.py.
    """
    trilogue.settings.update(OFTEN)
    trilogue.start()
    create_topic(trilogue.address, "t", 1)
    Confluent().write(trilogue.address, "t", [Record(b"k", b"%d" % each) for each in range(100)])
    wait_for_flush(trilogue)
    before = full_read(trilogue.address, "t", 1)
    trilogue.kill9()
    for name in names:
        damage(trilogue.data / name)

    trilogue.start()

    assert full_read(trilogue.address, "t", 1) == before
    Confluent().write(trilogue.address, "t", [Record(b"k", b"after")])
    assert trilogue.stop() == 0
    for name in names:
        assert name == "lock" or (trilogue.data / name).stat().st_size > 0
