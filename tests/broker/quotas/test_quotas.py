"""Quotas: for whom they are, which one holds, whose meter counts, and that they are kept."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from trilogue.broker.errors import ConcurrentChange, InUse, InvalidRequest
from trilogue.broker.quotas import quotas as module
from trilogue.broker.quotas.quotas import (
    DEFAULT,
    NO_BUCKETS,
    QuotaEntity,
    QuotaKind,
    Quotas,
    check_entity,
    check_rate,
)
from trilogue.log.errors import CorruptLog
from trilogue.meta.errors import PreconditionFailed
from trilogue.meta.memory import MemoryMeta

ORDER = (  # KIP-257, the strongest first: the user's part and the client id's
    ("u", "c"), ("u", DEFAULT), ("u", None), (DEFAULT, "c"), (DEFAULT, DEFAULT), (DEFAULT, None),
    (None, "c"), (None, DEFAULT),
)  # fmt: skip


def quotas(*limits: tuple[QuotaEntity, QuotaKind, float], burst_s: float = 1.0) -> Quotas:
    made = Quotas({}, burst_s=burst_s)
    for entity, bound, rate in limits:
        made.plan_alter([(entity, {bound: rate})]).apply()
    return made


def test_without_any_quota_nothing_counts():
    made = Quotas({})

    assert not made.active
    assert made.buckets("u", "c") is NO_BUCKETS
    assert made.connection_wait_s("1.2.3.4", 0.0) == 0


def test_first_matching_quota_in_order_applies():
    for there in itertools.product([False, True], repeat=len(ORDER)):
        limits = [place for place, is_there in zip(ORDER, there, strict=True) if is_there]
        made = quotas(
            *(
                (QuotaEntity(*place), QuotaKind.PRODUCED, 10.0 + ORDER.index(place))
                for place in limits
            ),
            (QuotaEntity("other", "c"), QuotaKind.PRODUCED, 1.0),
            (QuotaEntity("u", "other"), QuotaKind.PRODUCED, 2.0),
        )

        meter = made.buckets("u", "c").produced

        assert (meter and meter.rate - 10.0) == (ORDER.index(limits[0]) if limits else None)


def test_each_thing_has_a_quota_of_its_own():
    made = quotas(
        (QuotaEntity("u", "c"), QuotaKind.FETCHED, 1.0),
        (QuotaEntity(None, "c"), QuotaKind.PRODUCED, 2.0),
        (QuotaEntity(None, DEFAULT), QuotaKind.WORK, 50.0),
    )

    produced, fetched, work, changes = made.buckets("u", "c")

    assert (produced.rate, fetched.rate, changes) == (2.0, 1.0, None)
    assert work.rate == 0.5  # of a second, a second


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        (QuotaEntity("u"), [("u", "c"), ("u", "d")]),
        (QuotaEntity(DEFAULT), [("u", "c"), ("u", "d")]),
        (QuotaEntity(None, "c"), [("u", "c"), ("v", "c")]),
        (QuotaEntity(None, DEFAULT), [("u", "c"), ("v", "c")]),
        (QuotaEntity("u", "c"), [("u", "c")]),
        (QuotaEntity("u", DEFAULT), [("u", "c")]),
        (QuotaEntity(DEFAULT, "c"), [("u", "c")]),
        (QuotaEntity(DEFAULT, DEFAULT), [("u", "c")]),
    ],
)
def test_a_quota_is_shared_by_those_that_it_names_and_no_others(entity, shared):
    made = quotas((entity, QuotaKind.PRODUCED, 100.0))
    meters = {
        pair: made.buckets(*pair).produced
        for pair in itertools.product(["u", "v"], ["c", "d"])
        if made.buckets(*pair).produced is not None
    }

    mine = meters["u", "c"]

    assert [pair for pair, meter in meters.items() if meter is mine] == shared


def test_quotas_survive_a_restart():
    meta = MemoryMeta(b"0" * 16, node_id=1, node_epoch=1)
    made = Quotas(meta.state.settings)
    odd = QuotaEntity(None, 'a/b "c" ä\0')
    for entity, change in (
        (odd, {QuotaKind.PRODUCED: 5.0, QuotaKind.WORK: 0.5}),
        (QuotaEntity("u", DEFAULT), {QuotaKind.FETCHED: 7.0}),
        (QuotaEntity(address="::1"), {QuotaKind.CONNECTIONS: 9.0}),
        (odd, {QuotaKind.WORK: None, QuotaKind.CHANGES: 3.0}),
        (QuotaEntity("u", DEFAULT), {QuotaKind.FETCHED: None}),
        (QuotaEntity("nobody"), {QuotaKind.FETCHED: None}),
    ):
        commit = made.plan_alter([(entity, change)])
        meta.write_now(commit.ops(), commit.preconditions)
        commit.apply()

    again = Quotas(meta.state.settings)

    assert dict(again) == dict(made) == {
        odd: {QuotaKind.PRODUCED: 5.0, QuotaKind.CHANGES: 3.0},
        QuotaEntity(address="::1"): {QuotaKind.CONNECTIONS: 9.0},
    }  # fmt: skip
    assert len(again) == 2
    assert again.active


def test_two_changes_of_one_quota_at_once_are_not_both_recorded():
    meta = MemoryMeta(b"0" * 16, node_id=1, node_epoch=1)
    made = Quotas(meta.state.settings)
    first, second = (
        made.plan_alter([(QuotaEntity("u"), {QuotaKind.PRODUCED: rate})]) for rate in (1.0, 2.0)
    )
    meta.write_now(first.ops(), first.preconditions)
    first.apply()

    with pytest.raises(PreconditionFailed) as problem:
        meta.write_now(second.ops(), second.preconditions)

    assert isinstance(second.abandon(problem.value), ConcurrentChange)
    assert dict(made) == {QuotaEntity("u"): {QuotaKind.PRODUCED: 1.0}}


def test_a_change_holds_at_once_and_one_that_changes_nothing_keeps_the_debt():
    made = quotas((QuotaEntity(None, "c"), QuotaKind.PRODUCED, 10.0))
    before = made.generation
    made.buckets("u", "c").produced.take_tokens(1_000, 0.0)

    made.plan_alter([(QuotaEntity(None, "d"), {QuotaKind.PRODUCED: 10.0})]).apply()
    assert made.generation > before
    assert made.buckets("u", "c").produced.wait_s(0.0) > 50

    made.plan_alter([(QuotaEntity(None, "c"), {QuotaKind.PRODUCED: 20.0})]).apply()
    assert made.buckets("u", "c").produced.wait_s(0.0) == 0
    made.plan_alter([(QuotaEntity(None, "c"), {QuotaKind.PRODUCED: None})]).apply()
    assert made.buckets("u", "c").produced is None


def test_connections_are_counted_by_address():
    made = quotas(
        (QuotaEntity(address=DEFAULT), QuotaKind.CONNECTIONS, 2.0),
        (QuotaEntity(address="9.9.9.9"), QuotaKind.CONNECTIONS, 10.0),
    )

    waits = [made.connection_wait_s("1.1.1.1", 5.0) for _ in range(5)]

    assert waits == [0, 0, 0, 0.5, 0.5]  # those that are turned away do not count
    assert made.connection_wait_s("2.2.2.2", 5.0) == 0
    assert made.connection_wait_s("::ffff:1.1.1.1", 5.0) == 0.5
    assert [made.connection_wait_s("9.9.9.9", 5.0) for _ in range(12)][-2:] == [0, 0.1]
    assert made.connection_wait_s("1.1.1.1", 5.5) == 0


def test_buckets_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "BUCKETS_MAX", 100)
    made = quotas((QuotaEntity(None, DEFAULT), QuotaKind.PRODUCED, 10.0))
    random = Random(1)

    for _ in range(1_000):
        assert made.buckets("u", f"c{random.randrange(500)}").produced.rate == 10.0

    assert len(made._known) <= 100
    assert len(made._buckets) <= 100


def test_there_may_be_so_many_quotas(monkeypatch):
    monkeypatch.setattr(module, "QUOTAS_MAX", 2)
    made = quotas(
        (QuotaEntity("a"), QuotaKind.PRODUCED, 1.0), (QuotaEntity("b"), QuotaKind.PRODUCED, 1.0)
    )

    with pytest.raises(InUse):
        made.plan_alter([(QuotaEntity("c"), {QuotaKind.PRODUCED: 1.0})])
    made.plan_alter([(QuotaEntity("a"), {QuotaKind.PRODUCED: 5.0})]).apply()
    made.plan_alter([(QuotaEntity("c"), {QuotaKind.PRODUCED: None})]).apply()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("kafka/quotas/nonsense", "{}"),
        ('kafka/quotas/["u",null]', "{}"),
        ('kafka/quotas/["u",null,null]', '{"strange": 1}'),
        ('kafka/quotas/["u",null,null]', "["),
    ],
)
def test_invalid_quota_in_meta_raises_corrupt_log(key, text):
    with pytest.raises(CorruptLog):
        Quotas({key: text})


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity(),
        QuotaEntity("u", None, "1.2.3.4"),
        QuotaEntity(None, "c", DEFAULT),
        QuotaEntity(address="localhost"),
        QuotaEntity(address="1.2.3"),
        QuotaEntity("x" * 1_025),
        QuotaEntity(None, "x" * 1_025),
    ],
)
def test_no_other_can_have_a_quota(entity):
    with pytest.raises(InvalidRequest):
        check_entity(entity)


def test_an_address_is_spelled_in_one_way():
    assert check_entity(QuotaEntity(address="0:0:0::1")) == QuotaEntity(address="::1")
    assert check_entity(QuotaEntity(address=DEFAULT)) == QuotaEntity(address=DEFAULT)
    assert check_entity(QuotaEntity("u", DEFAULT)) == QuotaEntity("u", DEFAULT)


ADDRESS, CLIENT = QuotaEntity(address="::1"), QuotaEntity(None, "c")


@pytest.mark.parametrize(
    ("entity", "bound", "rate"),
    [
        (CLIENT, QuotaKind.PRODUCED, 0.0),
        (CLIENT, QuotaKind.PRODUCED, -1.0),
        (CLIENT, QuotaKind.PRODUCED, 0.5),
        (CLIENT, QuotaKind.PRODUCED, float(2**63)),
        (CLIENT, QuotaKind.WORK, float("nan")),
        (CLIENT, QuotaKind.WORK, float("inf")),
        (CLIENT, QuotaKind.CONNECTIONS, 1.0),
        (ADDRESS, QuotaKind.PRODUCED, 1.0),
        (ADDRESS, QuotaKind.CONNECTIONS, 1.5),
    ],
)
def test_no_other_rate_is_one(entity, bound, rate):
    with pytest.raises(InvalidRequest):
        check_rate(entity, bound, rate)


@pytest.mark.parametrize(
    ("entity", "bound", "rate"),
    [
        (CLIENT, QuotaKind.PRODUCED, 1.0),
        (CLIENT, QuotaKind.FETCHED, 9e18),
        (CLIENT, QuotaKind.WORK, 1e-9),
        (CLIENT, QuotaKind.CHANGES, 0.5),
        (ADDRESS, QuotaKind.CONNECTIONS, 5.0),
    ],
)
def test_a_rate_is_taken_as_it_is(entity, bound, rate):
    assert check_rate(entity, bound, rate) == rate
