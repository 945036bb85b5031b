"""Which segments hold what of a partition, through additions, swaps and removals."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.meta.samples import segment
from trilogue.log.errors import CorruptLog
from trilogue.log.segments.catalog import Catalog, Runs
from trilogue.log.segments.extents import Extent, Extents
from trilogue.log.segments.segment_info import SegmentInfo, Swap, without


def holding(segment_id: int, **ranges: tuple[int, int]) -> SegmentInfo:
    """Build a segment; `p7=(0, 5)` means offsets 0 to 4 of partition 7."""
    extents = [
        Extent(int(name[1:]), base, end, 64, 9, 1, 1, -1, 7, 3, 4)
        for name, (base, end) in ranges.items()
    ]
    return segment(segment_id, partitions=Extents.of(extents))


def places(runs: Runs, offset: int = 0) -> list[tuple[int, int, int]]:
    return [
        (extent.base_offset, extent.end_offset, holder.segment_id)
        for extent, holder in runs.since(offset)
    ]


def test_a_partition_finds_its_runs_by_offset_also_those_added_later() -> None:
    catalog = Catalog()
    runs = Runs(catalog, 7)
    assert places(runs) == []
    catalog.add(holding(1, p7=(0, 5), p8=(0, 1)))
    catalog.add(holding(2, p8=(1, 2)))
    assert places(runs) == [(0, 5, 1)]
    catalog.add(holding(3, p7=(8, 9)))

    assert places(runs) == [(0, 5, 1), (8, 9, 3)]
    assert places(runs, 4) == [(0, 5, 1), (8, 9, 3)]
    assert places(runs, 5) == places(runs, 8) == [(8, 9, 3)]
    assert places(runs, 9) == []
    assert list(runs) == list(runs.since(0))


@pytest.mark.parametrize("offset", [0, 4, 5, 9])
@pytest.mark.parametrize("end", [0, 5, 8, 9, 10])
def test_size_is_that_of_the_extents(offset: int, end: int) -> None:
    catalog = Catalog()
    runs = Runs(catalog, 7)
    for number, (first, last) in enumerate([(0, 5), (5, 8), (8, 9)], 1):
        extents = [
            Extent(each, first, last, 64, 10**number * each, 1, 1, -1, 7, 3, 4) for each in (6, 7)
        ]
        catalog.add(segment(number, partitions=Extents.of(extents)))

    kept = [extent.size for extent, _ in runs.since(offset) if extent.base_offset < end]

    assert runs.size_bytes(offset, end) == sum(kept)


def test_swap_is_visible_to_existing_runs() -> None:
    catalog = Catalog()
    runs, others = Runs(catalog, 7), Runs(catalog, 8)
    for each in (holding(1, p7=(0, 5), p8=(0, 1)), holding(2, p7=(5, 9)), holding(3, p7=(9, 10))):
        catalog.add(each)
    assert len(places(runs)) == 3
    first = without(catalog.segments[1], [7])

    catalog.swap(Swap((2,), (first,), (holding(4, p7=(0, 9)),)))

    assert places(runs) == [(0, 9, 4), (9, 10, 3)]
    assert places(others) == [(0, 1, 1)]
    assert first.hidden == (7,)
    assert sorted(catalog.segments) == [1, 3, 4]
    catalog.add(holding(5, p7=(10, 11)))
    assert places(runs) == [(0, 9, 4), (9, 10, 3), (10, 11, 5)]
    catalog.remove(4)
    assert places(runs) == [(9, 10, 3), (10, 11, 5)]
    assert catalog.remove(4) is None


def test_two_segments_with_one_offset_are_damage() -> None:
    catalog = Catalog()
    catalog.add(holding(1, p7=(0, 5)))
    catalog.add(holding(2, p7=(4, 6)))

    with pytest.raises(CorruptLog, match="segments 1 and 2 both have offset 4 of partition 7"):
        places(Runs(catalog, 7))


def test_a_segment_is_dead_when_no_partition_has_anything_in_it() -> None:
    catalog = Catalog()
    starts: dict[int, int | None] = {7: 0, 8: 0}
    catalog.add(holding(1, p7=(0, 5), p8=(0, 1)))
    catalog.add(holding(2, p8=(1, 2)))
    catalog.add(holding(3))

    assert catalog.dead(starts.get) == [3]
    starts[7] = 5
    assert catalog.dead(starts.get) == [3]
    starts[8] = 1
    assert catalog.dead(starts.get) == [1, 3]
    starts[8] = None  # deleted
    assert catalog.dead(starts.get) == [1, 2, 3]
    catalog.swap(Swap((1, 3)))
    assert catalog.dead(starts.get) == [2]


def test_segments_without_a_file_or_an_object_are_missing() -> None:
    catalog = Catalog()
    local, stored, moved = (holding(number, p7=(number, number + 1)) for number in (1, 2, 3))
    stored, moved = replace(stored, store="store"), replace(moved, store="store")
    for each in (local, stored, moved):
        catalog.add(each)

    assert catalog.find_missing({local.name, moved.name}) == []
    assert catalog.find_missing({moved.name}) == [local]
    assert catalog.find_missing({moved.name}, {stored.name, moved.name}) == [stored]
    assert set(catalog.missing) == {1, 2}
    assert catalog.find_missing(set()) == [], "known objects stay missing until a new listing"
    assert catalog.find_missing({local.name}, set()) == []
    assert catalog.missing == {}
