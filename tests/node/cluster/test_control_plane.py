"""The control plane of a cluster: under faults in simulation (simulation.py), and by itself."""

from __future__ import annotations

import pytest

from tests.node.cluster.simulation import MISTAKES, UNFENCED, Violation, World
from trilogue.meta.leases import RECOVERY_HOME, RELEASED, SPREAD, Lease
from trilogue.node.cluster.control_plane import RARELY_S, ClusterView, ControlPlane

LEASE_S, SPREAD_S = 3.0, 1.0
SEEDS = 5
RARE_SEEDS = 150  # a mistake that few schedules show


def play(seeds: range, mistake: str = "") -> list[tuple[int, str]]:
    """Return the violations, with their seeds."""
    found = []
    for seed in seeds:
        world = World(seed, mistake=mistake)
        try:
            world.play()
        except Violation as violation:
            found.append((seed, str(violation)))
            if mistake:
                break
        else:
            assert len(world.acked) > 100
    return found


def test_slots_have_one_owner_and_nothing_acknowledged_is_lost_under_faults():
    assert play(range(SEEDS)) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thousands_of_schedules_of_faults():
    assert play(range(SEEDS, 3_000)) == []


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(each, marks=pytest.mark.long if each == UNFENCED else ())
     for each in MISTAKES],
)  # fmt: skip
def test_a_planted_mistake_is_found(mistake: str):
    assert play(range(RARE_SEEDS), mistake), "no schedule shows the mistake"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(node_id: int, renewals: int, home: bytes = b"") -> Lease:
    return Lease(node_id, 1, renewals, home)


def view(clock: Clock, *leases: Lease, moves: dict[int, int] | None = None) -> ClusterView:
    owners = {0: 1, 1: 2, 2: 3}
    return ClusterView(clock.now, leases, moves or {}, owners, [1])


def test_one_living_node_spreads_the_slots_of_a_dead_one():
    clock = Clock()
    planes = [ControlPlane(node_id, LEASE_S, SPREAD_S, clock) for node_id in (2, 3)]
    for renewals in range(5):
        dead, living = lease(1, 7), [lease(2, renewals), lease(3, renewals)]
        decisions = [plane.decide(view(clock, dead, *living)) for plane in planes]
        clock.now += 1.0

    assert [each.dead for each in decisions] == [None, None], "its slots wait for their node first"
    decisions = [plane.decide(view(clock, dead, lease(2, 5), lease(3, 5))) for plane in planes]
    assert [each.dead for each in decisions] == [dead, None]
    assert all(each.alive == {2, 3} for each in decisions)


@pytest.mark.parametrize("spread_s", [SPREAD_S, 0.0, None])
def test_the_node_that_spreads_the_next_one_is_prepared(spread_s: float | None):
    clock = Clock()
    planes = [ControlPlane(node_id, LEASE_S, spread_s, clock) for node_id in (1, 2)]
    both = view(clock, lease(1, 1), lease(2, 1))
    spreads = [plane.decide(both).spreads_next for plane in planes]
    assert spreads == [spread_s is not None, False]
    assert not planes[0].decide(view(clock, lease(1, 1))).spreads_next, "nobody to spread"


def test_rows_read_before_a_pause_of_the_process_do_not_count_for_later_leases():
    clock = Clock()
    plane = ControlPlane(2, LEASE_S, SPREAD_S, clock)
    rows = view(clock, lease(1, 7), lease(2, 7))
    plane.decide(rows)
    clock.now += 60.0

    decision = plane.decide(rows)
    assert decision.dead is None
    assert decision.alive == {1, 2}


def test_a_slot_that_a_spread_node_still_got_is_spread_too():
    clock = Clock()
    plane = ControlPlane(2, LEASE_S, SPREAD_S, clock)

    assert plane.decide(view(clock, lease(1, RELEASED), lease(2, 1))).dead is None
    spread = lease(1, SPREAD)
    assert plane.decide(view(clock, spread, lease(2, 1))).dead == spread


def test_clients_of_a_dead_node_go_to_living_nodes_that_are_to_own_its_slots():
    clock = Clock()
    plane = ControlPlane(2, LEASE_S, 0.0, clock)
    leases = lease(1, 1), lease(2, 1), lease(3, 1)
    assert plane.decide(view(clock, *leases, moves={0: 2, 2: 3})).expected == {}, "all are alive"

    clock.now += 2 * LEASE_S  # 1 and 4 do not renew
    renewed = lease(1, 1), lease(2, 2), lease(3, 2)
    decision = plane.decide(view(clock, *renewed, moves={0: 2, 2: 3}))
    assert decision.expected == {0: 2}
    assert plane.decide(view(clock, *renewed, moves={0: 4})).expected == {}


def test_slots_are_given_to_nodes_that_serve_clients():
    clock = Clock()
    plane = ControlPlane(2, LEASE_S, SPREAD_S, clock)
    recovery = lease(3, 1, RECOVERY_HOME + b"12345678")

    decision = plane.decide(view(clock, lease(1, 1), lease(2, 1), recovery, moves={1: 3}))
    assert decision.given == {}
    assert decision.alive == {1, 2}
    decision = plane.decide(view(clock, lease(1, 1), lease(2, 1), recovery, moves={1: 1, 2: 1}))
    assert decision.given == {1: 1}


def test_only_the_first_living_nodes_read_all_leases_often():
    clock = Clock()
    planes = {node_id: ControlPlane(node_id, LEASE_S, SPREAD_S, clock) for node_id in range(1, 6)}
    leases = [lease(node_id, 1) for node_id in planes]

    def often(*, moves: tuple[int, ...] = ()) -> set[int]:
        found = {node_id for node_id, each in planes.items() if each.needs_leases(clock.now, moves)}
        for node_id in found:
            planes[node_id].decide(view(clock, *leases))
        return found

    assert often() == {1, 2, 3, 4, 5}
    clock.now += 0.25
    assert often() == {1, 2, 3}
    assert often(moves=(7,)) == {1, 2, 3, 4, 5}, "who gives slots must know who is alive"
    clock.now += RARELY_S
    assert often() == {1, 2, 3, 4, 5}
    leases[:2] = [lease(1, RELEASED), lease(2, RELEASED)]
    del planes[1], planes[2]
    clock.now += RARELY_S
    often()
    clock.now += 0.25
    assert often() == {3, 4, 5}
