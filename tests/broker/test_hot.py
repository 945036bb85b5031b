"""The compiled way of a small batch through the broker and its plain twin judge the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.pure import load_pure
from trilogue.broker import hot
from trilogue.broker.errors import BrokerError
from trilogue.entry.entry import Record
from trilogue.entry.kafka_batch import build_batch
from trilogue.log.errors import DiskFull

PURE = load_pure("trilogue.broker.hot")
RECORDS = [Record(0, 1_000, None, b"value")]
PLAIN = build_batch(RECORDS)
SEEDS = [PLAIN, build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)]


def judged(room, batch: bytes, size_max: int = 1_000) -> tuple[int, list[object]]:
    """What `append_plain` says, and what reached the log."""
    reached: list[object] = []

    def append(records, fields):
        reached.append((bytes(records), tuple(fields)))
        return 5

    partition = room.HotPartition()
    partition.log, partition._simple_size_max = SimpleNamespace(append=append), size_max
    return partition.append_plain(memoryview(batch)), reached


@given(
    seed=some.sampled_from(SEEDS),
    at=some.integers(0, len(PLAIN) - 1),
    octet=some.integers(0, 255),
    cut=some.integers(0, 3),
)
def test_twins_judge_damaged_batches_the_same(seed: bytes, at: int, octet: int, cut: int):
    batch = bytearray(seed)
    batch[at] = octet
    batch = batch[: len(batch) - cut]

    assert judged(hot, bytes(batch)) == judged(PURE, bytes(batch))


@pytest.mark.parametrize("room", [hot, PURE], ids=["installed", "pure"])
def test_what_is_not_plain_reaches_no_log(room):
    assert judged(room, PLAIN)[0] == 5
    assert judged(room, PLAIN, size_max=len(PLAIN) - 1) == (-1, [])
    assert judged(room, PLAIN, size_max=-1) == (-1, [])
    assert judged(room, SEEDS[1]) == (-1, [])
    assert judged(room, PLAIN[:50]) == judged(room, b"") == (-1, [])


@pytest.mark.parametrize("room", [hot, PURE], ids=["installed", "pure"])
def test_a_log_that_takes_nothing_is_an_error_of_the_broker(room):
    def full(*_: object) -> int:
        raise DiskFull("no room")

    partition = room.HotPartition()
    partition.log, partition._simple_size_max = SimpleNamespace(append=full), 1_000

    with pytest.raises(BrokerError):
        partition.append_plain(memoryview(PLAIN))
