"""Which lease is over, as one watcher sees it by its own clock."""

from __future__ import annotations

import pytest

pytest.importorskip("asyncpg")

from trilogue.meta.leases import RELEASED, Lease, LeaseWatch

LEASE_S = 3.0
HOME = b"own"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> LeaseWatch:
    return LeaseWatch(LEASE_S, clock)


def lease(renewals: int, *, epoch: int = 1, home: bytes = b"other") -> Lease:
    return Lease(7, epoch, renewals, home)


def test_a_lease_is_over_when_a_whole_one_has_passed_without_renewal(
    watch: LeaseWatch, clock: Clock
):
    assert watch.over([lease(5)], HOME) == []
    clock.now_s += LEASE_S - 0.1
    assert watch.over([lease(5)], HOME) == []
    clock.now_s += 0.2
    assert watch.over([lease(5)], HOME) == [lease(5)]


@pytest.mark.parametrize("after", [lease(6), lease(5, epoch=2)], ids=["renewed", "next epoch"])
def test_a_renewal_begins_the_time_again(watch: LeaseWatch, clock: Clock, after: Lease):
    watch.over([lease(5)], HOME)
    clock.now_s += LEASE_S - 0.1
    watch.over([after], HOME)
    clock.now_s += LEASE_S - 0.1
    assert watch.over([after], HOME) == []
    clock.now_s += 0.2
    assert watch.over([after], HOME) == [after]


def test_after_an_outage_nodes_have_a_whole_lease(watch: LeaseWatch, clock: Clock):
    watch.over([lease(5)], HOME)
    clock.now_s += 60.0
    watch.reset()
    assert watch.over([lease(5)], HOME) == []
    clock.now_s += LEASE_S + 0.1
    assert watch.over([lease(5)], HOME) == [lease(5)]


@pytest.mark.parametrize(
    "found", [lease(RELEASED), lease(5, home=HOME)], ids=["released", "of this directory"]
)
def test_some_leases_are_over_at_once(watch: LeaseWatch, found: Lease):
    assert watch.over([found], HOME) == [found]
