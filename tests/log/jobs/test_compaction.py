"""Compaction of one partition against a model that never forgets."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from msgspec.structs import replace

from tests.entry.samples import patched, plain_records, sealed
from tests.log.jobs.compacted import DAY_MS, NEIGHBOUR, PARTITION, SEGMENTS, World, latest
from trilogue.entry.compaction.compaction import delete_horizon
from trilogue.entry.control import Outcome
from trilogue.entry.entry import Format
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.log.errors import CorruptLog
from trilogue.log.jobs.compaction import compact
from trilogue.log.segments.extents import Extents
from trilogue.log.segments.segment import EpochStart
from trilogue.log.segments.segment_info import segment_name

ABORT, COMMIT = Outcome.ABORT, Outcome.COMMIT


def values(world: World) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in world.committed()]


def test_only_the_last_message_of_a_key_stays_where_it_was():
    world = World()
    world.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    world.append((b"b", b"2"), (b"c", b"1"))
    world.append((b"a", b"3"))
    world.flush()

    result = world.compact()

    assert values(world) == [(3, b"b", b"2"), (4, b"c", b"1"), (5, b"a", b"3")]
    assert (result.compacted_end, result.records_dropped) == (6, 3)
    assert (result.entries_read, result.entries_written) == (3, 2)


def test_an_entry_keeps_its_base_and_span_and_is_never_joined_with_another():
    world = World()
    world.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    world.append((b"a", b"2"))
    world.append((b"c", b"2"))
    world.flush()

    world.compact()

    places = [(each.base_offset, each.last_offset, each.record_count) for each in world.headers()]
    assert places == [(0, 2, 1), (3, 3, 1), (4, 4, 1)]


def test_an_entry_that_does_not_change_stays_to_the_byte():
    world = World()
    world.append((b"a", b"1"), (b"b", b"1"), codec=3)
    world.append((b"c", b"1"))
    world.append((b"c", b"2"), codec=1)
    world.flush()

    world.compact()

    assert world.entries() == [world.written[0].entry, world.written[2].entry]


def test_entries_after_the_end_are_not_compacted():
    world = World()
    world.append((b"a", b"1"))
    world.append((b"a", b"2"))
    world.append((b"a", b"3"))
    world.append((b"a", b"4"))
    world.flush()

    world.compact(end=2)

    assert [offset for offset, *_ in values(world)] == [1, 2, 3]
    assert world.entries()[1:] == [each.entry for each in world.written[2:]]


def test_other_partitions_stay_where_they_are():
    world = World()
    for number in range(3):
        world.append((b"a", b"%d" % number))
        world.flush(neighbour=number != 1)

    world.compact()

    assert [info.hidden for info in world.infos.values()] == [(PARTITION,), (PARTITION,), ()]
    assert [sorted(info.partitions) for info in world.infos.values()] == [
        [NEIGHBOUR],
        [NEIGHBOUR],
        [PARTITION],
    ]
    assert not world.fs.exists(SEGMENTS / segment_name(2)), "nothing else was in there"


def test_where_nothing_has_to_go_nothing_is_written():
    world = World()
    world.append((b"a", b"1"), (b"b", b"1"))
    world.flush()
    before = world.fs.listdir(SEGMENTS)

    result = world.compact()

    assert (result.added, result.replaced, result.compacted_end) == ((), (), 2)
    assert world.fs.listdir(SEGMENTS) == before


def test_messages_without_a_key_go():
    world = World()
    world.append((None, b"1"), (b"a", b"1"))
    world.append((None, b"2"))
    world.append((b"b", b"2"))
    world.flush()

    world.compact()

    assert values(world) == [(1, b"a", b"1"), (3, b"b", b"2")]


# ── tombstones ────────────────────────────────────────────────────────────────────────────────


def test_a_tombstone_stays_for_the_delete_retention_after_it_was_first_compacted():
    world = World(now_ms=DAY_MS)
    world.append((b"a", b"1"))
    world.append((b"a", None), (b"b", b"1"))
    world.flush()

    world.compact()
    assert values(world) == [(1, b"a", None), (2, b"b", b"1")]
    assert [delete_horizon(header) for header in world.headers()] == [2 * DAY_MS]

    world.now_ms = 2 * DAY_MS - 1
    world.compact()
    assert values(world) == [(1, b"a", None), (2, b"b", b"1")]

    world.append((b"z", b"1"))
    world.flush()
    world.now_ms = 2 * DAY_MS
    world.compact()
    assert values(world) == [(2, b"b", b"1"), (3, b"z", b"1")]


def test_a_tombstone_that_is_not_the_last_of_its_key_goes_at_once():
    world = World()
    world.append((b"a", None))
    world.append((b"a", b"2"))
    world.flush()

    world.compact()

    assert values(world) == [(1, b"a", b"2")]


def test_tombstones_stay_behind_entries_that_cannot_be_decoded():
    """What cannot be read may hold an older value, which must not come back."""
    world = World(delete_retention_ms=0)
    world.append_entry(patched(build_batch(plain_records(1)), attributes=Format.PULSAR << 8))
    world.append((b"a", None))
    world.append((b"b", b"1"))
    world.flush()

    world.compact_and_once_more_a_day_later((b"c", b"1"))

    assert values(world) == [(1, b"a", None), (2, b"b", b"1"), (3, b"c", b"1")]
    assert world.entries()[0] == world.written[0].entry


# ── transactions ──────────────────────────────────────────────────────────────────────────────


def test_aborted_records_are_removed_and_replace_no_committed_ones():
    world = World()
    world.append((b"a", b"old"))
    world.append((b"a", b"aborted"), producer=5, transactional=True)
    world.mark(5, ABORT)
    world.append((b"b", b"committed"), producer=5, transactional=True)
    world.mark(5, COMMIT)
    world.append((b"z", b"1"))
    world.flush()

    world.compact()

    assert values(world) == [(0, b"a", b"old"), (3, b"b", b"committed"), (5, b"z", b"1")]
    assert world.rows() == [], "nobody has to pass over what is not there"


def test_a_committed_message_counts_where_it_stands_not_where_its_marker_does():
    world = World()
    world.append((b"a", b"1"), producer=5, transactional=True)
    world.append((b"a", b"2"))
    world.mark(5, COMMIT)
    world.append((b"z", b"1"))
    world.flush()

    world.compact()

    assert values(world) == [(1, b"a", b"2"), (3, b"z", b"1")]


def test_markers_go_when_nothing_of_their_transaction_is_left_and_a_while_has_passed():
    world = World(now_ms=DAY_MS)
    world.append((b"a", b"1"), producer=5, transactional=True)
    world.mark(5, COMMIT)
    world.append((b"a", b"2"), producer=5, transactional=True)
    world.mark(5, ABORT)
    world.append((b"a", b"3"), producer=5)

    def again() -> list[int]:
        world.append((b"z", b"%d" % world.end))
        world.flush()
        world.compact()
        return [header.base_offset for header in world.headers() if header.is_control]

    assert again() == [1, 3], "data was there just before"
    assert again() == [1, 3]
    horizons = [delete_horizon(header) for header in world.headers() if header.is_control]
    assert horizons == [2 * DAY_MS, 2 * DAY_MS]
    world.now_ms = 2 * DAY_MS
    assert again() == []


def test_a_marker_stays_as_long_as_data_of_its_transaction():
    world = World(delete_retention_ms=0)
    world.append((b"a", b"1"), producer=5, transactional=True)
    world.mark(5, COMMIT)
    for number in range(4):
        world.append((b"z", b"%d" % number))
        world.flush()
        world.now_ms += DAY_MS
        world.compact()

    assert [header.base_offset for header in world.headers() if header.is_control] == [1]


def test_compaction_ends_at_the_first_open_transaction():
    world = World()
    world.append((b"a", b"1"))
    world.append((b"a", b"2"))
    world.append((b"a", b"3"), producer=5, transactional=True)
    world.append((b"b", b"1"))
    world.append((b"b", b"2"))
    world.flush()

    result = world.compact(end=5)

    assert result.compacted_end == 2
    assert [record.offset for each in world.retained() for record in each[1]] == [1, 2, 3, 4]


def test_the_end_of_a_transaction_may_lie_behind_the_end():
    world = World()
    world.append((b"a", b"old"))
    world.append((b"a", b"aborted"), producer=5, transactional=True)
    world.append((b"b", b"committed"), producer=6, transactional=True)
    world.append((b"z", b"1"))
    world.flush()
    world.append((b"y", b"1"))
    world.append((b"b", b"later"), producer=6, transactional=True)
    world.mark(5, ABORT)
    world.mark(6, COMMIT)
    world.flush()
    world.producers.clear()

    result = world.compact(end=4)

    assert result.compacted_end == 4
    assert [offset for offset, *_ in values(world)] == [0, 2, 3, 4, 5]
    assert [header.base_offset for header in world.headers()] == [0, 2, 3, 4, 5, 6, 7]
    assert (5, 1, 6) in [row[:3] for row in world.rows()], "its marker is still to come"


# ── producers ─────────────────────────────────────────────────────────────────────────────────


def test_the_last_entry_of_a_producer_stays_as_a_header():
    world = World()
    world.append((b"a", b"1"), (b"b", b"1"), producer=5, sequence=11)
    world.append((b"a", b"2"), producer=6)
    world.append((b"a", b"3"), (b"b", b"3"))
    world.flush()
    del world.producers[6]  # expired

    world.compact()

    first, last = world.headers()
    assert (first.producer_id, first.base_sequence, first.last_offset_delta) == (5, 11, 1)
    assert (first.base_offset, first.record_count, last.base_offset) == (0, 0, 3)


def test_the_last_entry_before_the_end_stays_as_a_header():
    world = World()
    world.append((b"a", b"1"))
    world.append((None, b"nobody's"), (None, b"nobody's"))
    world.flush()

    world.compact()

    assert [(each.base_offset, each.record_count) for each in world.headers()] == [(0, 1), (1, 0)]
    (info,) = world.inputs()
    assert info.partitions[PARTITION].end_offset == 3
    assert info.partitions[PARTITION].max_event_ms == 1000, "not what the header still says"


# ── bounds ────────────────────────────────────────────────────────────────────────────────────


def test_where_memory_for_keys_is_full_it_ends_earlier_and_goes_on_the_next_time():
    world = World(map_bytes=1)
    for number in range(40):
        world.append(*((b"%d" % key, b"%d" % number) for key in range(number * 50, 2000, 2)))
    world.flush()
    before = latest(world.committed())
    ends = []

    while world.compacted_end < world.end:
        ends.append(world.compact().compacted_end)
        assert latest(world.committed()) == before

    assert len(ends) > 3
    assert ends == sorted(set(ends))


def test_outputs_are_cut_where_they_are_large_enough():
    world = World(target_bytes=400_000, entries_per_block=1)
    for number in range(10):
        world.append((b"%d" % number, bytes(200_000)), (b"x", b"%d" % number))
    world.flush()

    result = world.compact()

    assert len(result.added) == 5
    assert [info.partitions[PARTITION].entry_count for info in result.added] == [2] * 5
    assert len(values(world)) == 11


def test_small_blocks_become_larger_ones_and_large_ones_are_copied():
    world = World(entries_per_block=1)
    world.append((b"big", bytes(140_000)))
    for number in range(50):
        world.append((b"k%d" % (number % 10), b"v"))
    world.append((b"big2", bytes(140_000)))
    world.flush()

    (added,) = world.compact().added

    with_blocks = world.fs.open(SEGMENTS / added.name).map()
    assert added.partitions[PARTITION].entry_count == 12
    assert int.from_bytes(with_blocks[-52:-48], "big") == 3, "blocks, as the trailer counts them"


@pytest.mark.parametrize("often", [True, False])
def test_owner_epochs_are_passed_on(often: bool):
    world = World(target_bytes=150_000, entries_per_block=1)
    for epoch in (3, 3, 3, 5, 5, 9):
        world.epoch = epoch
        world.append((b"%d" % world.end, bytes(100_000)), (b"x", b"%d" % epoch))
        if often:
            world.flush()
    world.flush()

    world.compact()

    assert world.epochs() == [
        [EpochStart(3, 0)],
        [EpochStart(3, 4), EpochStart(5, 6)],
        [EpochStart(5, 8), EpochStart(9, 10)],
    ]


def test_entries_below_the_start_offset_are_removed():
    world = World()
    world.append((b"a", b"1"), (b"b", b"1"))
    world.append((b"c", b"1"), (b"d", b"1"))
    world.append((b"e", b"1"))
    world.flush()
    world.start = 3

    world.compact()

    assert values(world) == [(2, b"c", b"1"), (3, b"d", b"1"), (4, b"e", b"1")]


# ── damage and failure ────────────────────────────────────────────────────────────────────────


def damaged_world() -> World:
    world = World()
    world.append((b"a", b"1"))
    world.append((b"a", b"2"))
    world.flush()
    return world


@pytest.mark.parametrize("part", ["header", "entries", "index", "directory", "trailer"])
def test_damage_is_an_error_and_leaves_everything_as_it_was(part: str):
    world = damaged_world()
    (info,) = world.infos.values()
    path = SEGMENTS / info.name
    places = {
        "header": 20,
        "entries": info.partitions[PARTITION].position + 70,
        "index": info.footer_position + 10,
        "directory": info.footer_position + info.footer_size - 2 * 120 + 30,
        "trailer": info.size - 50,
    }
    world.fs.flip(path, places[part], 3)
    before = world.fs.listdir(SEGMENTS)

    with pytest.raises(CorruptLog) as caught:
        compact(world.job(), world.fs)

    assert caught.value.path == path
    assert world.fs.listdir(SEGMENTS) == before


def test_damage_to_another_partition_is_not_ours():
    world = damaged_world()
    (info,) = world.infos.values()
    world.fs.flip(SEGMENTS / info.name, info.partitions[NEIGHBOUR].position + 70, 3)

    assert world.compact().records_dropped == 1


@pytest.mark.parametrize("operation", ["write", "sync", "create", "sync_directory"])
def test_a_disk_that_fails_leaves_nothing_behind(operation: str):
    world = damaged_world()
    before = world.fs.listdir(SEGMENTS)
    job = world.job()
    world.fs.fail(operation)

    with pytest.raises(OSError, match=r"Errno|error"):
        compact(job, world.fs)

    assert world.fs.listdir(SEGMENTS) == before


def test_outputs_are_durable_before_the_result_is_returned():
    world = damaged_world()
    world.fs.sync_directory(SEGMENTS)
    job = world.job()
    result = compact(job, world.fs)
    (info,) = result.added
    written = world.fs.read(SEGMENTS / info.name)

    world.fs.power_cut(Random(1))

    assert world.fs.read(SEGMENTS / info.name) == written


def test_records_that_are_not_in_order_are_their_readers_affair():
    world = World()
    world.append((b"a", b"1"))
    world.append_entry(sealed(b"\x99" * 20), is_readable=False)
    world.append((b"a", b"2"))
    world.flush()

    world.compact()

    assert world.entries() == [each.entry for each in world.written[1:]]


def test_a_horizon_beyond_the_end_of_time_is_never():
    world = World(delete_retention_ms=2**63 - 1)
    world.append((b"a", None), (b"b", b"1"))
    world.flush()

    world.compact()

    assert [delete_horizon(header) for header in world.headers()] == [2**63 - 1]
    assert values(world) == [(0, b"a", None), (1, b"b", b"1")]


def test_of_other_partitions_a_job_need_know_nothing():
    world = damaged_world()
    slim = [
        replace(each, partitions=Extents.of([each.partitions[PARTITION]]))
        for each in world.inputs()
    ]

    assert world.compact(inputs=tuple(slim)).records_dropped == 1
    assert [sorted(info.partitions) for info in world.infos.values()] == [[NEIGHBOUR], [PARTITION]]


def test_job_and_result_travel():
    world = damaged_world()
    job = world.job()
    result = compact(job, world.fs)

    assert pickle.loads(pickle.dumps(job)) == job
    assert pickle.loads(pickle.dumps(result)) == result
