from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.broker.fakes import header
from trilogue.broker.errors import (
    BrokerError,
    DuplicateSequence,
    OutOfOrderSequence,
    StaleProducerEpoch,
)
from trilogue.broker.facts import ProducerMark, SnapshotRow, WrittenBatch, decode_mark, producer_key
from trilogue.broker.producers.idempotence import ProducerLimits, Producers
from trilogue.entry.entry import CONTROL, TRANSACTIONAL

PARTITION = 7
LAST = 2**31 - 1


def write(producers: Producers, offset: int, count: int = 1, *, producer, now_ms: int = 0):
    batch = header(offset, count, producer=producer)
    repeated = producers.partition(PARTITION).check(batch)
    if repeated is None:
        producers.partition(PARTITION).write(batch, offset, -1, now_ms)
    return repeated


def check(producers: Producers, count: int = 1, *, producer):
    return producers.partition(PARTITION).check(header(0, count, producer=producer))


@pytest.fixture
def producers() -> Producers:
    """One producer (id 1, epoch 3) has written seven batches of 10, at 0, 10, ... 60."""
    made = Producers()
    for index in range(7):
        write(made, index * 10, 10, producer=(1, 3, index * 10))
    return made


ANSWERS = [
    # what comes                          count  answer
    ((1, 3, 70), 5, None),
    ((1, 3, 60), 10, 60),
    ((1, 3, 20), 10, 20),
    ((1, 3, 10), 10, DuplicateSequence),
    ((1, 3, 0), 10, DuplicateSequence),
    ((1, 3, 0), 20, DuplicateSequence),
    ((1, 3, 15), 10, OutOfOrderSequence),  # half of it is still in the window
    ((1, 3, 60), 5, OutOfOrderSequence),
    ((1, 3, 65), 5, OutOfOrderSequence),
    ((1, 3, 20), 50, OutOfOrderSequence),
    ((1, 3, 71), 1, OutOfOrderSequence),
    ((1, 3, LAST), 1, OutOfOrderSequence),
    ((1, 4, 0), 1, None),
    ((1, 4, 1), 1, OutOfOrderSequence),
    ((1, 4, 70), 1, OutOfOrderSequence),
    ((1, 2, 70), 1, StaleProducerEpoch),
    ((1, 2, 0), 1, StaleProducerEpoch),
    ((1, -1, 0), 1, StaleProducerEpoch),
    ((2, 0, 0), 1, None),
    ((2, 5, 1_000), 1, None),
]


@pytest.mark.parametrize(("producer", "count", "answer"), ANSWERS)
def test_a_batch_is_appended_recognised_or_refused(producers, producer, count, answer):
    """Wire facts, section 5: producer state per (partition, producer id)."""
    if isinstance(answer, type):
        with pytest.raises(answer):
            check(producers, count, producer=producer)
    else:
        found = check(producers, count, producer=producer)
        assert (None if found is None else found.base_offset) == answer


def test_sequences_wrap_to_zero():
    producers = Producers()
    write(producers, 0, 2, producer=(1, 0, LAST - 1))

    assert write(producers, 2, 3, producer=(1, 0, 0)) is None
    assert check(producers, 2, producer=(1, 0, LAST - 1)) == WrittenBatch(LAST - 1, 1, 0, -1)
    with pytest.raises(OutOfOrderSequence):
        check(producers, producer=(1, 0, 4))


def test_a_batch_may_wrap_within_itself():
    producers = Producers()
    write(producers, 0, 4, producer=(1, 0, LAST - 1))

    assert write(producers, 4, 1, producer=(1, 0, 2)) is None


def test_sequence_before_the_known_batches_is_out_of_order():
    producers = Producers()
    for index in range(7):
        write(producers, index, producer=(1, 0, 100 + index))

    with pytest.raises(DuplicateSequence):
        check(producers, producer=(1, 0, 100))
    with pytest.raises(OutOfOrderSequence):
        check(producers, producer=(1, 0, 99))


def test_a_new_epoch_forgets_the_batches_of_the_old_one(producers):
    write(producers, 70, producer=(1, 4, 0))

    with pytest.raises(StaleProducerEpoch):
        check(producers, 10, producer=(1, 3, 60))
    with pytest.raises(OutOfOrderSequence):
        check(producers, 10, producer=(1, 4, 60))


def test_partitions_know_nothing_of_each_other(producers):
    assert producers.partition(8).check(header(0, producer=(1, 3, 0))) is None
    assert (len(producers.partition(8)), len(producers.partition(PARTITION)), len(producers)) == (
        0,
        1,
        1,
    )


# -- snapshots


def rows_of(producers: Producers, end: int, now_ms: int = 0) -> list[SnapshotRow]:
    return producers.snapshot(now_ms, lambda _: end)


def marks_of(rows: list[SnapshotRow]) -> list[ProducerMark]:
    return [decode_mark(row.value) for row in rows if row.value is not None]


def test_a_snapshot_holds_the_last_five_durable_batches(producers):
    (mark,) = marks_of(rows_of(producers, 70))

    assert mark == ProducerMark(
        PARTITION, 1, 3, 0, 70, tuple(WrittenBatch(at, 9, at, -1) for at in range(20, 70, 10))
    )


def test_a_snapshot_does_not_know_more_than_the_disk(producers):
    (mark,) = marks_of(rows_of(producers, 30))

    assert (mark.written, mark.batches[-1].base_offset) == (30, 20)


def test_a_snapshot_falls_back_to_the_epoch_before_while_the_new_one_is_not_durable(producers):
    write(producers, 70, producer=(1, 4, 0))

    (before,) = marks_of(rows_of(producers, 70))
    (after,) = marks_of(rows_of(producers, 71))

    assert (before.epoch, before.written) == (3, 70)
    assert (after.epoch, after.written) == (4, 1)


def test_producer_without_durable_batches_is_collected_in_turn(producers):
    waiting = rows_of(producers, 5)
    later = rows_of(producers, 70)

    assert waiting == [] or marks_of(waiting) == []
    assert len(marks_of(later)) == 1


def test_a_snapshot_has_only_what_changed(producers):
    first = rows_of(producers, 70)
    second = rows_of(producers, 70)
    write(producers, 70, producer=(1, 3, 70))
    third = rows_of(producers, 71)

    assert (len(first), len(second), len(third)) == (1, 0, 1)


def test_batches_missing_in_a_snapshot_are_in_the_next(producers):
    rows_of(producers, 60)

    (mark,) = marks_of(rows_of(producers, 70))

    assert mark.batches[-1].base_offset == 60


def test_a_producer_comes_back_from_a_snapshot(producers):
    restored = Producers()
    for mark in marks_of(rows_of(producers, 70)):
        restored.load(mark)

    for producer, count, answer in ANSWERS:
        if isinstance(answer, type):
            with pytest.raises(answer):
                check(restored, count, producer=producer)
        else:
            found = check(restored, count, producer=producer)
            assert (None if found is None else found.base_offset) == answer
    assert rows_of(restored, 70) == []


def test_a_mark_in_the_journal_is_written_to_the_next_snapshot():
    producers = Producers()
    mark = ProducerMark(PARTITION, 1, 5, 10, 1, (WrittenBatch(0, 0, 3, -1),))

    producers.replay(mark)
    producers.replay(mark)

    assert marks_of(rows_of(producers, 4)) == [mark]


def test_a_mark_without_batches_fences_older_epochs():
    producers = Producers()
    mark = ProducerMark(PARTITION, 1, 5, 10, 0, ())

    producers.replay(mark)

    assert marks_of(rows_of(producers, 0)) == [mark]
    assert rows_of(producers, 0) == []
    with pytest.raises(StaleProducerEpoch):
        check(producers, producer=(1, 4, 0))
    assert check(producers, producer=(1, 5, 0)) is None


# -- replay


def test_a_replayed_marker_has_no_sequence(producers):
    """A producer goes on with its next transaction where its last batch ended."""
    marker = header(70, producer=(1, 3, -1), attributes=TRANSACTIONAL | CONTROL)

    producers.partition(PARTITION).restore(marker, 0)

    assert check(producers, producer=(1, 3, 70)) is None
    assert check(producers, 10, producer=(1, 3, 60)).base_offset == 60


def test_a_replayed_marker_of_a_higher_epoch_fences_the_producer(producers):
    marker = header(70, producer=(1, 4, -1), attributes=TRANSACTIONAL | CONTROL)

    for _ in range(2):
        producers.partition(PARTITION).restore(marker, 0)

    with pytest.raises(StaleProducerEpoch):
        check(producers, producer=(1, 3, 70))
    with pytest.raises(OutOfOrderSequence):
        check(producers, producer=(1, 4, 70))
    assert check(producers, producer=(1, 4, 0)) is None


def test_a_marker_of_an_unknown_producer_makes_none_known(producers):
    marker = header(70, producer=(9, 4, -1), attributes=TRANSACTIONAL | CONTROL)

    producers.partition(PARTITION).restore(marker, 0)

    assert check(producers, producer=(9, 0, 5)) is None


def test_a_replayed_header_counts_once(producers):
    producers.partition(PARTITION).restore(header(60, 10, producer=(1, 3, 60)), 0)
    producers.partition(PARTITION).restore(header(70, 10, producer=(1, 3, 70)), 0)
    producers.partition(PARTITION).restore(header(70, 10, producer=(1, 3, 70)), 0)

    assert check(producers, 10, producer=(1, 3, 80)) is None
    (mark,) = marks_of(rows_of(producers, 80))
    assert mark.written == 80


def test_a_replay_that_begins_in_the_middle_knows_only_what_it_saw(producers):
    producers.partition(PARTITION).restore(header(500, 10, producer=(1, 3, 500)), 0)

    assert check(producers, 10, producer=(1, 3, 510)) is None
    with pytest.raises(OutOfOrderSequence):
        check(producers, 10, producer=(1, 3, 60))


def test_a_replayed_entry_keeps_the_time_it_was_stamped_with():
    producers = Producers()
    batch = header(3, producer=(1, 0, 0), attributes=8, timestamp=77)

    producers.partition(PARTITION).restore(batch, 0)

    assert check(producers, producer=(1, 0, 0)) == WrittenBatch(0, 0, 3, 77)


# -- bounds


def test_an_idle_producer_is_forgotten_at_the_snapshot():
    producers = Producers(ProducerLimits(expiration_ms=1_000))
    write(producers, 0, producer=(1, 0, 0), now_ms=0)
    write(producers, 1, producer=(2, 0, 0), now_ms=0)
    write(producers, 2, producer=(1, 0, 1), now_ms=500)
    rows_of(producers, 3, now_ms=1_000)

    rows = rows_of(producers, 3, now_ms=1_001)

    assert rows == [SnapshotRow(producer_key(PARTITION, 2), None)]
    assert len(producers) == 1
    assert check(producers, producer=(2, 0, 44)) is None


def test_where_there_are_too_many_the_longest_idle_goes():
    producers = Producers(ProducerLimits(count_max=2))
    for producer in ((1, 0, 0), (2, 0, 0), (1, 0, 1), (3, 0, 0)):
        write(producers, len(producers), producer=producer)

    rows = rows_of(producers, 10)

    assert rows[0] == SnapshotRow(producer_key(PARTITION, 2), None)
    assert [mark.producer_id for mark in marks_of(rows)] == [1, 3]


def test_producers_of_a_deleted_partition_go_with_it(producers):
    producers.partition(8).write(header(0, producer=(9, 0, 0)), 0, -1, 0)

    producers.drop(PARTITION)
    producers.drop(99)

    rows = rows_of(producers, 70)
    assert rows[0] == SnapshotRow(producer_key(PARTITION, 1), None)
    assert [mark.producer_id for mark in marks_of(rows)] == [9]
    assert len(producers) == 1


def test_a_row_of_a_partition_that_is_gone_is_removed():
    producers = Producers()

    producers.disown(ProducerMark(99, 5, 0, 0, 0, ()))

    assert rows_of(producers, 0) == [SnapshotRow(producer_key(99, 5), None)]


# -- against a model


@dataclass
class Model:
    """One producer as a list of everything it wrote in its epoch since it was first seen.

    Offsets are known of the last five batches. Of those before `known_from` they may be forgotten:
    a snapshot is taken of a window with newer batches, which a crash has taken back.
    """

    epoch: int = -1
    batches: list[WrittenBatch] = field(default_factory=list)
    known_from: int = 0

    @property
    def next(self) -> int:
        last = self.batches[-1]
        return (last.base_sequence + last.last_offset_delta + 1) % 2**31

    def answer(self, epoch: int, sequence: int, count: int) -> object:
        if not self.batches:
            return None
        if epoch != self.epoch:
            if epoch < self.epoch:
                return StaleProducerEpoch
            return None if sequence == 0 else OutOfOrderSequence
        if sequence == self.next:
            return None
        for batch in self.batches[-5:]:
            if (batch.base_sequence, batch.last_offset_delta + 1) == (sequence, count):
                return batch.base_offset
        older = {
            (batch.base_sequence + each) % 2**31
            for batch in self.batches[:-5]
            for each in range(batch.last_offset_delta + 1)
        }
        wanted = {(sequence + each) % 2**31 for each in range(count)}
        return DuplicateSequence if wanted <= older else OutOfOrderSequence


class ProducersMachine(RuleBasedStateMachine):
    """Producers with at most five batches in flight, a log that is cut, crashes and comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.models = {1: Model(), 2: Model()}
        self.durable = {1: Model(), 2: Model()}
        self.entries: list[tuple[int, int, WrittenBatch]] = []  # of the journal
        self.durable_entries = self.cut = 0
        self.end = self.durable_end = 0
        self.meta: dict[bytes, bytes] = {}
        self.snapshot_from = {1: 0, 2: 0}  # offsets of older batches are in no snapshot

    def send(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        model = self.models[producer_id]
        expected = model.answer(epoch, sequence, count)
        batch = header(0, count, producer=(producer_id, epoch, sequence))
        got: object
        try:
            found = self.producers.partition(PARTITION).check(batch)
            got = None if found is None else found.base_offset
        except BrokerError as error:
            got = type(error)
        if got is DuplicateSequence and isinstance(expected, int):
            assert expected < model.known_from
        else:
            assert got == expected
        if expected is None:
            self.producers.partition(PARTITION).write(batch, self.end, -1, 0)
            written = WrittenBatch(sequence, count - 1, self.end, -1)
            self.entries.append((producer_id, epoch, written))
            self.end += count
            remember(model, epoch, written)
        in_flight = self.entries[self.durable_entries :]
        epochs = {each for owner, each, _ in in_flight if owner == producer_id}
        if len(in_flight) >= 5 or len(epochs) > 1:
            self.commit()

    @rule(
        producer_id=st.sampled_from([1, 2]),
        count=st.integers(1, 3),
        start=st.sampled_from([0, 100, LAST - 2]),
    )
    def send_next(self, producer_id: int, count: int, start: int) -> None:
        model = self.models[producer_id]
        if model.batches:
            self.send(producer_id, model.epoch, model.next, count)
        else:
            self.send(producer_id, 0, start, count)

    @rule(producer_id=st.sampled_from([1, 2]), back=st.integers(1, 9))
    def send_again(self, producer_id: int, back: int) -> None:
        model = self.models[producer_id]
        for batch in model.batches[-back:][:1]:
            count = batch.last_offset_delta + 1
            self.send(producer_id, model.epoch, batch.base_sequence, count)

    @rule(
        producer_id=st.sampled_from([1, 2]),
        shift=st.integers(-25, 25),
        count=st.integers(1, 4),
    )
    def send_something_near(self, producer_id: int, shift: int, count: int) -> None:
        model = self.models[producer_id]
        if model.batches:
            self.send(producer_id, model.epoch, (model.next + shift) % 2**31, count)

    @rule(
        producer_id=st.sampled_from([1, 2]),
        step=st.sampled_from([-1, 1, 2]),
        sequence=st.sampled_from([0, 0, 1, 5]),
    )
    def send_other_epoch(self, producer_id: int, step: int, sequence: int) -> None:
        self.send(producer_id, max(self.models[producer_id].epoch + step, 0), sequence, 2)

    @rule()
    def commit(self) -> None:
        self.durable_entries, self.durable_end = len(self.entries), self.end
        self.durable = {
            each: Model(model.epoch, list(model.batches)) for each, model in self.models.items()
        }

    @rule()
    def snapshot(self) -> None:
        for key, value in self.producers.snapshot(0, lambda _: self.durable_end):
            assert value is not None
            self.meta[key] = value
        self.cut = self.durable_entries
        for producer_id, model in self.models.items():  # of its window, what is durable
            if model.batches and model.epoch == self.durable[producer_id].epoch:
                oldest = model.batches[-5:][0].base_offset
                self.snapshot_from[producer_id] = max(self.snapshot_from[producer_id], oldest)

    @precondition(lambda self: self.entries)
    @rule(twice=st.booleans())
    def crash(self, twice: bool) -> None:
        self.producers = Producers()
        for value in self.meta.values():
            self.producers.load(decode_mark(value))
        del self.entries[self.durable_entries :]
        for _ in range(1 + twice):
            for producer_id, epoch, batch in self.entries[self.cut :]:
                found = header(
                    batch.base_offset,
                    batch.last_offset_delta + 1,
                    producer=(producer_id, epoch, batch.base_sequence),
                )
                self.producers.partition(PARTITION).restore(found, 0)
        self.end = self.durable_end
        self.models = {
            each: Model(model.epoch, list(model.batches), self.snapshot_from[each])
            for each, model in self.durable.items()
        }


def remember(model: Model, epoch: int, batch: WrittenBatch) -> None:
    if epoch != model.epoch:
        model.epoch = epoch
        model.batches.clear()
    model.batches.append(batch)


TestProducers = ProducersMachine.TestCase
TestProducers.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
