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
from trilogue.node.supervisor.slot_plans import (
    plan_rebalance,
    spread_over,
    spread_slots,
    weigh_slots,
)
from trilogue.node.supervisor.slots import assign_slots, plan_slots


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


def loads_of(owners: list[int], weights: list[float], node_ids: list[int]) -> list[float]:
    pairs = list(zip(owners, weights, strict=True))
    return [sum(weight for owner, weight in pairs if owner == node) for node in node_ids]


def test_a_new_node_gets_its_share_by_few_moves():
    owners = [1, 2, 3] * 4

    moves = plan_rebalance(owners, [1, 2, 3, 4], [1.0] * 12)
    assert sorted(moves.values()) == [4, 4, 4]
    assert sorted(owners[slot] for slot in moves) == [1, 2, 3]
    assert plan_rebalance(owners, [1, 2, 3], [1.0] * 12) == {}


def test_slots_move_by_load():
    owners = [1, 1, 1, 2, 2, 2]
    weights = weigh_slots({0: 600_000, 1: 300_000, 2: 0, 3: 100_000, 4: 0, 5: 0}, [1] * 6)

    moves = plan_rebalance(owners, [1, 2], weights)
    assert moves == {1: 2}, "the slot with most of the load stays: it would be as much elsewhere"
    assert weigh_slots({}, [0, 3]) == pytest.approx([0.005, 0.105])
    assert weigh_slots({0: 5.0}, [0, 0]) == [0.005, 0.005], "too little to go by"


@given(
    st.lists(st.tuples(st.integers(1, 6), st.floats(0.001, 100)), min_size=1, max_size=64),
    st.sets(st.integers(1, 6), min_size=1),
)
def test_a_rebalance_ends_and_makes_no_node_worse_than_the_worst(
    slots: list[tuple[int, float]], nodes: set[int]
):
    node_ids = sorted(nodes)
    owners, weights = [owner for owner, _ in slots], [weight for _, weight in slots]
    moves = plan_rebalance(owners, node_ids, weights)

    assert all(owners[slot] in nodes and to in nodes for slot, to in moves.items())
    assert all(owners[slot] != to for slot, to in moves.items())
    after = [moves.get(slot, owner) for slot, owner in enumerate(owners)]
    before_loads = loads_of(owners, weights, node_ids)
    after_loads = loads_of(after, weights, node_ids)
    assert max(after_loads) <= max(before_loads) + 1e-9
    assert min(after_loads) >= min(before_loads) - 1e-9
    if max(weights) < sum(after_loads) / len(node_ids) * 0.2:  # no slot is large
        share = sum(after_loads) / len(node_ids)
        assert max(after_loads) <= share * 1.2 + 1e-9 or max(after_loads) - min(after_loads) < 1e-6


def test_slots_of_a_node_are_spread_by_load():
    weights = [5.0, 1.0, 1.0, 1.0, 4.0, 0.0]

    moves = spread_over([1, 1, 1, 1, 2, 3], 1, [2, 3], weights)
    assert moves == {0: 3, 1: 2, 2: 2, 3: 3}
    assert spread_over([1, 1, 2], 1, [2, 3]) == {0: 3, 1: 2}
