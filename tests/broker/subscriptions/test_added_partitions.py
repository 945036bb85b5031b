"""Subscriptions of partitions that are added while several nodes serve a topic."""

from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog, FakeTimers, new_broker
from tests.broker.transactions.node_world import HERE, THERE, FakePort
from trilogue.broker.errors import NotOwner, NotReady, TooManyPositions
from trilogue.broker.names import parse_kafka
from trilogue.broker.node_requests import (
    CreateSubscription,
    ListSubscriptions,
    SubscriptionRow,
    SubscriptionRows,
)
from trilogue.broker.promise import Promise
from trilogue.broker.subscriptions.added_partitions import ATTEMPTS_MAX, RETRY_S
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import AssignSlots

ROW = SubscriptionRow("readers", {"by": "test"})


class World:
    """A topic of four partitions; the slots of the odd or of the even ones are another node's."""

    def __init__(self, slots: tuple[int, ...]) -> None:
        self.meta, self.timers, self.port = MemoryMeta(), FakeTimers(), FakePort()
        self.meta.write_now([AssignSlots(slots)])
        log = FakeLog(at_once=True)
        self.broker = new_broker(self.meta, self.timers)
        self.broker.attach(log, log)
        self.broker.branches.port = self.port
        cluster = self.broker.cluster
        change = cluster.plan_create(cluster.check_create(parse_kafka("orders"), partition_count=4))
        self.meta.write_now(change.ops(), change.preconditions)
        self.topic = change.apply()
        self.ids = self.topic.row.partitions
        self.here = [each for each in self.ids if cluster.find_partition(each) is not None]
        self.there = [each for each in self.ids if each not in self.here]

    def subscribe(self) -> Promise[None]:
        return self.broker.added_partitions.subscribe(self.topic, 1)

    def subscribed(self) -> dict[int, dict[str, str]]:
        cursors = self.broker.subscriptions
        return {
            each: dict(found.properties)
            for each in self.ids
            if (found := cursors.find_cursor(each, "readers")) is not None
        }


@pytest.fixture
def first_here() -> World:
    world = next(
        made for made in map(World, ((HERE, THERE), (THERE, HERE))) if made.ids[0] in made.here
    )
    world.broker.subscriptions.create(world.ids[0], "readers", 0, {"by": "test"})
    return world


@pytest.fixture
def first_there() -> World:
    return next(
        made for made in map(World, ((HERE, THERE), (THERE, HERE))) if made.ids[0] in made.there
    )


def test_the_owners_of_added_partitions_create_the_subscriptions(first_here: World):
    world = first_here
    done = world.subscribe()

    assert world.subscribed() == {key: {"by": "test"} for key in world.here}
    assert world.port.waiting == [(THERE, CreateSubscription(ROW, tuple(world.there)))]
    assert not done.done
    world.port.answer()
    assert done.result() is None


def test_the_owner_of_the_first_partition_lists_the_subscriptions(first_there: World):
    world = first_there
    done = world.subscribe()

    request = ListSubscriptions(world.ids[0], "")
    assert world.port.waiting == [(THERE, request)]
    world.port.sent[-1][2].set_result(SubscriptionRows((ROW,), is_last=False))
    assert world.subscribed() == {key: {"by": "test"} for key in world.here}
    world.port.sent[-1][2].set_result(None)
    assert world.port.waiting == [(THERE, ListSubscriptions(world.ids[0], "readers"))]
    world.port.sent[-1][2].set_result(SubscriptionRows((), is_last=True))
    assert done.result() is None


def test_an_owner_that_does_not_answer_or_does_not_know_yet_gets_the_request_again(
    first_here: World,
):
    world = first_here
    done = world.subscribe()
    for error in (NotReady("not reached"), NotOwner("moved")):
        world.port.answer(error)
        assert world.port.waiting == []
        world.timers.advance(RETRY_S)
        assert world.port.waiting == [(THERE, CreateSubscription(ROW, tuple(world.there)))]

    world.port.answer()
    assert done.result() is None


def test_an_owner_that_never_answers_is_an_error(first_there: World):
    done = first_there.subscribe()
    for _ in range(ATTEMPTS_MAX):
        first_there.port.lose()
        first_there.timers.advance(RETRY_S)

    assert isinstance(done.error, NotReady)


def test_a_refusal_is_reported_at_once(first_here: World):
    done = first_here.subscribe()
    first_here.port.answer(TooManyPositions("no more subscriptions"))

    assert isinstance(done.error, TooManyPositions)


def test_other_nodes_get_lists_in_parts_and_cursors_only_of_partitions_served_here(
    first_here: World,
):
    world, handle = first_here, first_here.broker.node_requests.handle
    begin = world.ids[0]
    for number in range(3):
        properties = {"long": "x" * 60_000, "number": str(number)}
        for name in range(10):
            world.broker.subscriptions.create(begin, f"s{number}{name}", 0, properties)
    names: list[str] = []
    replies = 0
    is_last = False
    while not is_last:
        found = handle(THERE, ListSubscriptions(begin, names[-1] if names else "")).result()
        assert isinstance(found, SubscriptionRows)
        names += [each.name for each in found.rows]
        is_last, replies = found.is_last, replies + 1
    assert names == sorted(["readers", *(f"s{a}{b}" for a in range(3) for b in range(10))])
    assert replies == 2
    here, there = world.here[-1], world.there[-1]
    assert handle(THERE, CreateSubscription(ROW, (here,))).error is None
    assert here in world.subscribed()
    assert isinstance(handle(THERE, CreateSubscription(ROW, (there,))).error, NotOwner)
    assert isinstance(handle(THERE, CreateSubscription(ROW, (9_999,))).error, NotReady)
