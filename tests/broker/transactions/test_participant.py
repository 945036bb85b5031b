"""What a node has of transactions of other coordinators: confirmations, markers, offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.fakes import FakeLog, FakeTimers
from tests.broker.transactions.node_world import HERE, THERE, THIRD, FakeOwnership, FakePort
from trilogue.broker.errors import (
    ConcurrentTransactions,
    NotCoordinator,
    NotOwner,
    NotReady,
    ProducerFenced,
    TooManyTransactions,
)
from trilogue.broker.facts import CursorMove
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.node_requests import EndBranch, JoinTransaction
from trilogue.broker.transactions.participant import TransactionParticipant
from trilogue.broker.transactions.pending_offsets import PendingOffsets
from trilogue.entry.control import Outcome, read_marker
from trilogue.entry.walk import read_header

JOIN = JoinTransaction("2-tx", 7, 2, 10, adds=True)


class FakeProducers:
    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}

    def epoch_of(self, producer_id: int) -> int | None:
        return self.epochs.get(producer_id)


class FakePartition:
    deleted = False

    def __init__(self) -> None:
        self.producers = FakeProducers()
        self.markers: list[tuple[int, int, Outcome]] = []

    def append_marker(self, marker: bytes, now_ms: int) -> None:
        header = read_header(marker)
        read = read_marker(marker, header)
        assert read is not None
        self.markers.append((header.producer_id, header.producer_epoch, read.outcome))


class World:
    def __init__(self) -> None:
        self.ownership = FakeOwnership({10: HERE, 11: HERE, 20: THERE})
        self.port, self.log = FakePort(), FakeLog()
        self.partitions = {10: FakePartition(), 11: FakePartition()}
        exists = self.ownership.partitions.__contains__
        branches = Branches(self.ownership, exists, FakeTimers(), 5)  # type: ignore[arg-type]
        branches.port = self.port
        self.committed: list[tuple[str, tuple[CursorMove, ...]]] = []

        def commit(group: str, moves: Sequence[CursorMove]) -> None:
            self.committed.append((group, tuple(moves)))

        self.pending = PendingOffsets(
            commit,
            keys_max=2,
            positions_max=3,
        )
        self.participant = TransactionParticipant(
            branches,
            self.ownership,  # type: ignore[arg-type]
            self.pending,
            find_partition=self.partitions.get,  # type: ignore[arg-type]
            commit_offsets=commit,
            now_ms=lambda: 1_000,
        )
        self.participant.attach(self.log)

    def end(
        self,
        *partitions: int,
        sender: int = THERE,
        epoch: int = 2,
        commit: bool = True,
        groups: tuple[str, ...] = (),
    ) -> BaseException | None:
        request = EndBranch("2-tx", 7, epoch, 5, commit, partitions, groups)
        ended = self.participant.end_branch(sender, request)
        self.log.commit()
        return ended.error


def test_a_producer_writes_after_its_coordinator_has_confirmed():
    world = World()
    with pytest.raises(NotReady):
        world.participant.check_confirmed(7, 2, 10)
    joined = world.participant.join(JOIN)
    assert world.port.waiting == [(THERE, JOIN)]
    world.port.answer()

    assert joined.error is None
    world.participant.check_confirmed(7, 2, 10)
    for other in ((7, 3, 10), (7, 2, 11), (8, 2, 10)):
        assert not world.participant.is_confirmed(*other)


def test_a_refusal_of_the_coordinator_is_the_producers():
    world = World()
    joined = world.participant.join(JOIN)
    world.port.answer(ProducerFenced("another epoch"))

    assert isinstance(joined.error, ProducerFenced)
    assert not world.participant.is_confirmed(7, 2, 10)


def test_an_outcome_ends_what_was_confirmed():
    world = World()
    world.participant.join(JOIN)
    world.port.answer()

    assert world.end(10) is None
    assert world.partitions[10].markers == [(7, 2, Outcome.COMMIT)]
    assert not world.participant.is_confirmed(7, 2, 10)


def test_a_confirmation_that_an_outcome_has_overtaken_counts_for_nothing():
    world = World()
    joined = world.participant.join(JOIN)
    assert world.end(10, commit=False) is None
    world.port.answer()

    assert isinstance(joined.error, ConcurrentTransactions)
    assert not world.participant.is_confirmed(7, 2, 10)
    later = world.participant.join(JOIN)
    world.port.answer()
    assert later.error is None


def test_an_outcome_of_a_node_that_is_not_the_coordinator_is_refused():
    world = World()
    world.participant.join(JOIN)
    world.port.answer()

    assert isinstance(world.end(10, sender=THIRD), NotCoordinator)
    assert world.partitions[10].markers == []
    assert world.participant.is_confirmed(7, 2, 10)


def test_an_outcome_for_a_part_of_another_node_is_refused():
    world = World()

    assert isinstance(world.end(20), NotOwner)
    assert isinstance(world.end(groups=("3-group",)), NotOwner)
    assert world.end(99) is None, "a topic that is deleted"


def test_an_outcome_of_an_earlier_epoch_ends_no_later_transaction():
    world = World()
    world.partitions[10].producers.epochs[7] = 3
    world.partitions[11].producers.epochs[7] = 2

    assert world.end(10, 11) is None
    assert world.partitions[10].markers == []
    assert world.partitions[11].markers == [(7, 2, Outcome.COMMIT)]


def test_an_outcome_is_answered_when_it_is_durable():
    world = World()
    request = EndBranch("2-tx", 7, 2, 5, True, (10,), ())
    ended = world.participant.end_branch(THERE, request)

    assert not ended.done
    world.log.commit()
    assert ended.error is None


def add_offsets(world: World, *moves: tuple[int, int], producer_id: int = 7) -> None:
    world.participant.join(JoinTransaction("2-tx", producer_id, 2, "1-group", adds=True))
    world.port.answer()
    world.participant.add_offsets(producer_id, 2, "1-group", [CursorMove(*move) for move in moves])


def test_offsets_are_committed_once_with_the_newest_of_each_partition():
    world = World()
    add_offsets(world, (10, 5), (11, 6))
    add_offsets(world, (10, 8))
    assert world.pending.partition_ids("1-group") == {10, 11}

    for _ in range(2):
        assert world.end(groups=("1-group",)) is None
    assert world.committed == [("1-group", (CursorMove(10, 8), CursorMove(11, 6)))]
    assert world.pending.partition_ids("1-group") == set()


def test_offsets_of_an_aborted_transaction_are_dropped():
    world = World()
    add_offsets(world, (10, 5))
    add_offsets(world, (10, 9), producer_id=8)

    assert world.end(groups=("1-group",), commit=False) is None
    assert world.committed == []
    assert world.pending.partition_ids("1-group") == {10}, "another producer's"


def test_pending_offsets_have_bounds():
    world = World()
    add_offsets(world, (1, 1), (2, 2), (3, 3))
    with pytest.raises(TooManyTransactions):
        add_offsets(world, (4, 4))
    add_offsets(world, (1, 1), producer_id=8)
    with pytest.raises(TooManyTransactions):
        add_offsets(world, (1, 1), producer_id=9)


def test_pending_offsets_come_back_from_facts_and_from_a_snapshot():
    world = World()
    add_offsets(world, (10, 5))
    assert world.pending.snapshot() == [], "not durable yet"
    world.log.commit()
    rows = world.pending.snapshot()
    add_offsets(world, (10, 7), (11, 3))
    world.log.commit()

    again = World()
    for row in rows:
        assert row.value is not None
        again.pending.load(row.key, row.value)
    for kind, payload in world.log.durable_facts:  # also those that the snapshot has
        again.pending.replay(kind, payload)
    assert again.end(groups=("1-group",)) is None
    assert again.committed == [("1-group", (CursorMove(10, 7), CursorMove(11, 3)))]
    (row,) = again.pending.snapshot()
    assert row.value is None

    ended = World()
    for kind, payload in [*world.log.durable_facts, *again.log.durable_facts]:
        ended.pending.replay(kind, payload)
    assert len(ended.pending) == 0


def test_positions_of_a_group_that_has_moved_come_with_the_outcome():
    world = World()
    add_offsets(world, (10, 5))
    moves = (CursorMove(11, 7),)
    request = EndBranch("2-tx", 7, 2, 5, True, (), ("1-group",), (("1-group", moves),))
    world.participant.end_branch(THERE, request)
    world.log.commit()

    assert world.committed == [("1-group", (CursorMove(10, 5),)), ("1-group", moves)]
