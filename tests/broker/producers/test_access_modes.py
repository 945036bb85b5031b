"""Who may write to a partition: names, access modes, epochs and the line of those who wait."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import ProducerBusy, ProducerFenced, UnknownTopic
from trilogue.broker.producers.access_modes import (
    NO_EPOCH,
    AccessMode,
    Admission,
    PartitionWriters,
    Writer,
    Writers,
    epoch_key,
)

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAITING, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


class Noted(Writer):
    """A writer that records its callbacks."""

    def __init__(self, name: str, access: AccessMode = SHARED, **how) -> None:
        super().__init__(name, access=access, **{"session": self, **how})
        self.events: list[object] = []

    def on_fenced(self):
        self.events.append("fenced")

    def on_replaced(self):
        self.events.append("replaced")

    def on_promoted(self):
        self.events.append("promoted")

    def on_refused(self, problem):
        self.events.append(type(problem))


def taken(writers: PartitionWriters, writer: Writer) -> int:
    """Let a writer in that has the partition to itself, as a gateway does."""
    assert writers.admit(writer) is Admission.EXCLUSIVE
    commit = writers.plan_epoch(writer)
    commit.ops()
    return commit.apply()


@pytest.fixture
def writers() -> PartitionWriters:
    return Writers({}).get_or_create(7)


def test_any_number_of_writers_share_a_partition(writers):
    assert [writers.admit(Noted(f"{n}")) for n in range(3)] == [Admission.ADMITTED] * 3


def test_no_more_than_the_policy_allows(writers):
    writers.admit(Noted("a"), most=1)
    with pytest.raises(ProducerBusy, match="as many"):
        writers.admit(Noted("b"), most=1)


def test_a_name_is_held_by_one_writer_at_a_time(writers):
    first = Noted("a")
    writers.admit(first)
    with pytest.raises(ProducerBusy):
        writers.admit(Noted("a", incarnation=1))

    writers.leave(first)

    assert writers.admit(Noted("a")) is Admission.ADMITTED


def test_a_reconnect_of_a_generated_name_takes_it_from_the_older(writers):
    older, newer = Noted("a", generated=True), Noted("a", generated=True, incarnation=1)
    writers.admit(older)

    assert writers.admit(newer) is Admission.ADMITTED

    assert older.events == ["replaced"]
    with pytest.raises(ProducerBusy):
        writers.admit(older)


def test_the_same_producer_of_the_same_connection_takes_its_name_again(writers):
    session = object()
    older = Noted("a", session=session, number=3)
    writers.admit(older)
    with pytest.raises(ProducerBusy):
        writers.admit(Noted("a", session=session, number=4, incarnation=1))

    writers.admit(Noted("a", session=session, number=3, incarnation=1))

    assert older.events == ["replaced"]


@pytest.mark.parametrize("access", [EXCLUSIVE, FENCING, WAITING])
def test_the_writer_that_takes_an_empty_partition_has_it_alone(writers, access):
    assert taken(writers, Noted("a", access)) == 0

    with pytest.raises(ProducerBusy):
        writers.admit(Noted("b"))
    with pytest.raises(ProducerFenced):
        writers.admit(Noted("c", EXCLUSIVE))


def test_exclusive_beside_shared_ones_is_refused(writers):
    writers.admit(Noted("a"))
    with pytest.raises(ProducerFenced):
        writers.admit(Noted("b", EXCLUSIVE))


def test_fencing_sends_everybody_off(writers):
    present, waiting = Noted("a"), Noted("b", WAITING)
    writers.admit(present)
    writers.admit(waiting)

    taken(writers, Noted("c", FENCING))

    assert present.events == ["fenced"]
    assert waiting.events == [ProducerFenced]
    assert [each.name for each in writers] == ["c"]


def test_waiting_producers_are_promoted_in_order(writers):
    holder = Noted("a")
    first, second = Noted("b", WAITING), Noted("c", WAITING)
    writers.admit(holder)
    assert writers.admit(first) is writers.admit(second) is Admission.WAITING

    writers.leave(holder)
    assert (first.events, second.events) == (["promoted"], [])
    writers.leave(first)

    assert second.events == ["promoted"]


def test_a_holder_that_reconnects_keeps_the_partition_from_the_line(writers):
    holder = Noted("a", EXCLUSIVE, generated=True)
    epoch = taken(writers, holder)
    waiting = Noted("b", WAITING)
    writers.admit(waiting)
    again = Noted("a", EXCLUSIVE, generated=True, incarnation=1, epoch=epoch)

    assert taken(writers, again) == epoch

    assert holder.events == ["replaced"]
    assert waiting.events == []


def test_replaced_holder_promotes_the_next_waiting_producer(writers):
    holder = Noted("a", EXCLUSIVE, generated=True)
    taken(writers, holder)
    waiting = Noted("b", WAITING)
    writers.admit(waiting)

    with pytest.raises(ProducerBusy):
        writers.admit(Noted("a", SHARED, generated=True, incarnation=1))

    assert (holder.events, waiting.events) == (["replaced"], ["promoted"])


def test_the_line_is_bounded(writers, monkeypatch):
    monkeypatch.setattr("trilogue.broker.producers.access_modes.WAITING_MAX", 1)
    for name in ("a", "b"):
        writers.admit(Noted(name, WAITING))

    with pytest.raises(ProducerBusy):
        writers.admit(Noted("c", WAITING))


def test_producer_is_refused_while_others_wait(writers):
    holder = Noted("a")
    writers.admit(holder)
    writers.admit(Noted("b", WAITING))

    with pytest.raises(ProducerBusy):
        writers.admit(Noted("c"))
    with pytest.raises(ProducerFenced):
        writers.admit(Noted("d", EXCLUSIVE))


def test_producer_that_left_the_queue_is_not_promoted(writers):
    holder, first, second = Noted("a"), Noted("b", WAITING), Noted("c", WAITING)
    for each in (holder, first, second):
        writers.admit(each)

    writers.leave(first)
    writers.leave(holder)

    assert (first.events, second.events) == ([], ["promoted"])


def test_each_exclusive_producer_has_a_higher_epoch(writers):
    first, second = Noted("a", EXCLUSIVE), Noted("b", EXCLUSIVE)
    assert taken(writers, first) == 0
    writers.leave(first)

    assert taken(writers, second) == 1


def test_returning_producer_keeps_its_epoch_unless_fenced(writers):
    first = Noted("a", EXCLUSIVE)
    epoch = taken(writers, first)
    writers.leave(first)
    again = Noted("a", EXCLUSIVE, epoch=epoch)
    assert taken(writers, again) == epoch
    writers.leave(again)
    taken(writers, Noted("b", EXCLUSIVE))

    with pytest.raises(ProducerFenced):
        writers.admit(Noted("a", FENCING, epoch=epoch))


def test_an_epoch_that_was_never_given_is_without_an_owner(writers):
    assert taken(writers, Noted("a", EXCLUSIVE, epoch=2**64 - 1)) == 0


def test_one_in_the_line_whose_epoch_is_over_gets_an_error(writers):
    holder = Noted("a", EXCLUSIVE)
    taken(writers, holder)
    late = Noted("b", WAITING, epoch=0)
    writers.admit(late)
    writers.leave(holder, promote=False)
    between = Noted("c", FENCING)
    writers._waiting.remove(late)
    taken(writers, between)
    writers._waiting.append(late)

    writers.leave(between)

    assert late.events == [ProducerFenced]


def test_an_epoch_survives_a_restart():
    settings = {epoch_key(7): "4"}
    writers = Writers(settings)

    assert taken(writers.get_or_create(7), Noted("a", EXCLUSIVE)) == 5
    with pytest.raises(ProducerFenced):
        Writers(settings).get_or_create(7).admit(Noted("b", EXCLUSIVE, epoch=3))
    assert Writers(settings).get_or_create(8).epoch == NO_EPOCH


def test_a_deleted_partition_has_no_writers():
    writers = Writers({})
    writer = Noted("a")
    writers.get_or_create(7).admit(writer)

    writers.drop(7, UnknownTopic("deleted"))

    assert writer.events == ["fenced"]
    assert writers.get(7) is None


def test_partitions_that_no_client_writes_to_are_forgotten():
    settings: dict[str, str] = {}
    writers = Writers(settings)
    writer = Noted("a", EXCLUSIVE)
    taken(writers.get_or_create(7), writer)
    writers.discard_idle(7)
    assert writers.get(7) is not None
    writers.get_or_create(7).leave(writer)
    settings[epoch_key(7)] = "0"

    writers.discard_idle(7)

    assert writers.get(7) is None
