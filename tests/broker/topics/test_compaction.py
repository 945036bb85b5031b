"""What a compacted topic accepts, and when compaction of a partition is due, up to where."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.broker.fakes import FakeLog
from tests.entry.samples import CODECS, sealed
from trilogue.broker.errors import InvalidRecord
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.compaction import CompactionTask, plan_compaction, plan_partition
from trilogue.broker.topics.partition import Partition
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.log.segments.extents import Extent
from trilogue.meta.operations import PartitionState

NOW = 1_000_000
COMPACTED = TopicSettings(retention_ms=-1, compacts=True)
ID = bytes(16)


def partition(settings: TopicSettings = COMPACTED) -> tuple[Partition, FakeLog]:
    log = FakeLog()
    made = Partition(log.create_partition(7, 1), Producers().partition(7), settings)
    return made, log


def batch(*keys: bytes | None, codec: int = 0) -> memoryview:
    records = [Record(at, NOW, key, b"v") for at, key in enumerate(keys)]
    return memoryview(build_batch(records, codec=codec))


# ── what is accepted ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_without_a_key_is_refused_and_named(codec: int):
    made, log = partition()

    with pytest.raises(InvalidRecord, match="message 2 has no key"):
        made.append(batch(b"a", b"", None, codec=codec), now_ms=NOW)
    made.append(batch(b"a", b"", codec=codec), now_ms=NOW)

    assert len(log.partitions[7].entries) == 1


def test_undecodable_batch_is_refused():
    made, _ = partition()

    with pytest.raises(InvalidRecord, match="looked at"):
        made.append(memoryview(sealed(b"\x99" * 20)), now_ms=NOW)


def test_other_topics_take_messages_without_keys_and_do_not_look():
    made, _ = partition(TopicSettings())

    made.append(batch(None), now_ms=NOW)
    made.append(memoryview(sealed(b"\x99" * 20)), now_ms=NOW)


# ── what is due ───────────────────────────────────────────────────────────────────────────────


def run(base: int, end: int, size: int, append_ms: int = 0) -> Extent:
    return Extent(7, base, end, 0, size, 1, 1, 0, 0, append_ms, append_ms + 10)


def state(end: int = 100, **fields: object) -> PartitionState:
    return PartitionState(ID, 0, end, **fields)  # type: ignore[arg-type]


def due_end(
    runs: Sequence[Extent], found: PartitionState, settings: TopicSettings = COMPACTED
) -> int | None:
    due = plan_partition(runs, found, settings, NOW)
    return None if due is None else due.end_offset


def test_uncompacted_partition_is_due():
    settings = replace(COMPACTED, delete_retention_ms=5)

    due = plan_partition([run(0, 50, 10), run(50, 100, 10)], state(), settings, NOW)

    assert due == CompactionTask(0, 0, 100, 5, False, 1.0)


def test_a_partition_with_nothing_in_segments_is_not_due():
    assert due_end([], state(end=0)) is None


RATIOS = [
    # bytes compacted, bytes since then, ratio wanted, is it due
    (50, 50, 0.5, False),
    (50, 51, 0.5, True),
    (100, 0, 0.0, False),
    (100, 1, 0.0, True),
    (0, 100, 0.99, True),
    (0, 100, 1.0, False),
]


@pytest.mark.parametrize(("clean", "dirty", "ratio", "is_due"), RATIOS)
def test_it_is_due_when_enough_is_new(clean: int, dirty: int, ratio: float, is_due: bool):
    runs = [each for each in (run(0, 50, clean), run(50, 100, dirty)) if each.size]
    found = state(compacted_end=50 if clean else 0)

    assert (due_end(runs, found, replace(COMPACTED, dirty_ratio_min=ratio)) is not None) == is_due


def test_of_a_run_on_both_sides_each_side_gets_its_share():
    runs = [run(0, 100, 1000)]

    assert due_end(runs, state(compacted_end=50)) is None
    assert due_end(runs, state(compacted_end=49)) == 100


def test_the_largest_lag_makes_it_due_whatever_the_ratio():
    runs = [run(0, 50, 1000, NOW - 900), run(50, 100, 1, NOW - 500)]
    found = state(compacted_end=50)

    for lag_ms, is_due in ((499, True), (500, False)):
        settings = replace(COMPACTED, compaction_lag_max_ms=lag_ms)
        due = plan_partition(runs, found, settings, NOW)
        assert (due is not None) == is_due
        assert due is None or due.is_forced


def test_messages_younger_than_min_compaction_lag_are_not_compacted():
    runs = [run(0, 50, 10, NOW - 900), run(50, 100, 10, NOW - 500)]

    ends = {
        lag: due_end(runs, state(), replace(COMPACTED, compaction_lag_min_ms=lag))
        for lag in (0, 490, 491, 890, 891)
    }

    assert ends == {0: 100, 490: 100, 491: 50, 890: 50, 891: None}


def test_without_a_least_lag_a_clock_that_was_set_back_keeps_nothing_waiting():
    assert due_end([run(0, 100, 10, NOW + 9_000)], state()) == 100


def test_it_ends_where_a_transaction_is_open():
    runs = [run(0, 50, 10), run(50, 100, 10)]

    assert due_end(runs, state(open_transactions=((4, 70), (5, 90)))) == 70
    assert due_end(runs, state(open_transactions=((4, 50),))) == 50
    assert due_end(runs, state(open_transactions=((4, 0),))) is None


def test_deleted_messages_do_not_count_for_the_dirty_ratio():
    found = PartitionState(ID, 60, 100, compacted_end=20)

    due = plan_partition([run(50, 100, 10)], found, COMPACTED, NOW)

    assert due is not None
    assert (due.start_offset, due.compacted_end, due.end_offset) == (60, 20, 100)


def test_only_topics_that_are_compacted_are_looked_at():
    compacted, log = partition()
    log.partitions[7]._extents = [run(0, 100, 10)]
    other, other_log = partition(TopicSettings())
    other_log.partitions[7].on_extents = lambda _: pytest.fail("it was looked up")
    gone, _ = partition()
    gone.deleted = True
    topics = [
        SimpleNamespace(partitions=(each,), local_partitions=(each,))
        for each in (other, compacted, gone)
    ]

    def planned(states: dict[int, PartitionState]) -> list[int]:
        return [due for some in plan_compaction(topics, states, NOW) for due in some]  # type: ignore[arg-type]

    assert planned({7: state()}) == [7]
    assert planned({}) == []
    log.partitions[7].on_extents = lambda _: pytest.fail("it was looked up")
    assert planned({7: state(compacted_end=100)}) == []


def test_producer_state_has_offsets_of_last_entries():
    made, _ = partition()
    for sequence, key in enumerate((b"a", b"b")):
        records = [Record(0, NOW, key, b"v")]
        entry = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=sequence)
        made.append(memoryview(entry), now_ms=NOW)

    assert made.producers.last_entries() == {5: 1}
