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


class TestPresence:
    """A process holds a connection with its home; a part of a lease is enough without it."""

    GONE_S = 1.5

    @pytest.fixture
    def watch(self, clock: Clock) -> LeaseWatch:
        return LeaseWatch(LEASE_S, clock, self.GONE_S)

    def test_a_node_that_is_connected_no_more_is_over_sooner(self, watch: LeaseWatch, clock: Clock):
        assert watch.over([lease(5)], HOME, present={b"other"}) == []
        clock.now_s += self.GONE_S - 0.1
        assert watch.over([lease(5)], HOME) == []
        clock.now_s += 0.2
        assert watch.over([lease(5)], HOME) == [lease(5)]

    def test_a_node_that_is_connected_has_its_whole_lease(self, watch: LeaseWatch, clock: Clock):
        watch.over([lease(5)], HOME, present={b"other"})
        clock.now_s += LEASE_S - 0.1
        assert watch.over([lease(5)], HOME, present={b"other"}) == []
        clock.now_s += 0.2
        assert watch.over([lease(5)], HOME, present={b"other"}) == [lease(5)]

    def test_a_node_that_renews_without_it_is_alive(self, watch: LeaseWatch, clock: Clock):
        watch.over([lease(5)], HOME, present={b"other"})
        for renewals in range(6, 12):
            clock.now_s += self.GONE_S - 0.1
            assert watch.over([lease(renewals)], HOME) == []

    @pytest.mark.parametrize("never", ["in this epoch", "since an outage"])
    def test_a_connection_that_was_not_seen_is_not_lost(
        self, watch: LeaseWatch, clock: Clock, never: str
    ):
        watch.over([lease(5)], HOME, present={b"other"})
        if never == "since an outage":
            watch.reset()
        after = lease(5, epoch=2)
        watch.over([after], HOME)
        clock.now_s += LEASE_S - 0.1
        assert watch.over([after], HOME) == []
