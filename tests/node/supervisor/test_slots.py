"""Owners of slots: evenly spread, and few of them move."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.log.directory import DataDirectory
from trilogue.log.errors import AlreadyLocked
from trilogue.log.files import OsFileSystem
from trilogue.node.supervisor.slots import assign_slots, plan_slots, spread_slots


def test_neighbours_of_a_new_cluster_belong_to_different_nodes():
    assert spread_slots([1] * 8, [1, 2]) == (1, 2, 1, 2, 1, 2, 1, 2)


def test_owners_that_are_spread_stay():
    owners = (2, 1, 3, 3, 1, 2, 1)

    assert spread_slots(owners, [1, 2, 3]) == owners


@given(st.lists(st.integers(1, 9), min_size=1, max_size=64), st.sets(st.integers(1, 9), min_size=1))
def test_slots_are_spread_evenly_and_only_surplus_moves(owners: list[int], nodes: set[int]):
    node_ids = sorted(nodes)
    after = spread_slots(owners, node_ids)

    counts = Counter(after)
    sizes = [counts[node_id] for node_id in node_ids]
    assert sum(sizes) == len(owners)
    assert max(sizes) - min(sizes) <= 1
    before = Counter(owners)
    least, more = divmod(len(owners), len(node_ids))
    largest = sorted((before[node_id] for node_id in node_ids), reverse=True)
    kept = sum(min(size, least + (rank < more)) for rank, size in enumerate(largest))
    moved = sum(one != other for one, other in zip(owners, after, strict=True))
    assert moved == len(owners) - kept


def test_a_directory_gets_its_slots_once(tmp_path: Path):
    lock = DataDirectory.open(OsFileSystem(), tmp_path)
    try:
        first = plan_slots(tmp_path, 2, 8)
        assert first.owners == (1, 2) * 4
        assert first.former_owners == (1,)
        assign_slots(tmp_path, first.owners)

        again = plan_slots(tmp_path, 2, 99)
        assert (again.owners, again.former_owners) == (first.owners, ())

        alone = plan_slots(tmp_path, 1, 99)
        assert (alone.owners, alone.former_owners) == ((1,) * 8, (2,))
    finally:
        lock.close()


def test_a_node_has_its_part_of_the_directory_once(tmp_path: Path):
    fs = OsFileSystem()
    whole = DataDirectory.open(fs, tmp_path)
    second = DataDirectory.open_shared(fs, tmp_path, 2)
    try:
        with pytest.raises(AlreadyLocked):
            DataDirectory.open_shared(fs, tmp_path, 2)
        assert second.journal == tmp_path / "nodes" / "2" / "journal"
        assert second.segments == whole.segments
    finally:
        second.close()
        whole.close()
