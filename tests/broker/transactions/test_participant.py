"""What a node has of transactions of other coordinators: confirmations, markers, offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.fakes import FakeLog, FakeTimers
from tests.broker.transactions.node_world import HERE, THERE, THIRD, FakeOwnership, FakePort
from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW, subscription_key
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import (
    ConcurrentTransactions,
    NotCoordinator,
    NotOwner,
    NotReady,
    ProducerFenced,
    TooManyTransactions,
    TransactionConflict,
)
from trilogue.broker.facts import CursorMove
from trilogue.broker.node_requests import (
    EndBranch,
    FindTransaction,
    JoinTransaction,
    SubscriptionPart,
    TransactionName,
)
from trilogue.broker.transactions.branch_acks import BranchAcks
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.participant import TransactionParticipant
from trilogue.broker.transactions.pending_acks import PendingAcks
from trilogue.broker.transactions.pending_offsets import PendingOffsets
from trilogue.broker.transactions.records import DeferredAck
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
        self.pending_acks, self.acked = PendingAcks(), list[DeferredAck]()
        self.committed: list[tuple[str, tuple[CursorMove, ...]]] = []

        def commit(group: str, moves: Sequence[CursorMove]) -> None:
            self.committed.append((group, tuple(moves)))

        self.pending = PendingOffsets(
            commit,
            keys_max=2,
            positions_max=3,
            positions_in_all_max=100,
        )
        self.participant = TransactionParticipant(
            branches,
            self.ownership,  # type: ignore[arg-type]
            self.pending,
            BranchAcks(self.pending_acks, self.acked.extend, exists, ranges_max=3),
            find_partition=self.partitions.get,  # type: ignore[arg-type]
            commit_offsets=commit,
            commit_acks=self.acked.extend,
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
        acks: tuple[DeferredAck, ...] = (),
    ) -> BaseException | None:
        request = EndBranch("2-tx", 7, epoch, 5, commit, partitions, groups, acks=acks)
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


CURSOR = Cursor(subscription_key(10, "s"), 0, 5, {})
PART = SubscriptionPart(10, "s", 5)


def an_ack(*ranges: tuple[int, int], until: int = NOTHING_BELOW) -> DeferredAck:
    return DeferredAck(CURSOR.key, CURSOR.created_ms, until, ranges)


def add_ack(world: World, *ranges: tuple[int, int], name: str = "2-tx", pid: int = 7) -> None:
    world.participant.join(JoinTransaction(name, pid, 2, PART, adds=True))
    world.port.answer()
    world.participant.add_ack(name, (pid, 2), an_ack(*ranges), CURSOR)


def acked(world: World) -> list[list[tuple[int, int]]]:
    return [list(each.ranges) for each in world.acked]


def is_claimed(world: World, offset: int) -> bool:
    return world.pending_acks.claim(CURSOR).first_missing(offset) != offset


def test_acks_wait_for_the_confirmation_of_their_subscription():
    world = World()
    with pytest.raises(NotReady):
        world.participant.add_ack("2-tx", (7, 2), an_ack((1, 2)), CURSOR)
    add_ack(world, (1, 2))

    with pytest.raises(NotReady):
        world.participant.add_ack("2-tx", (7, 3), an_ack((2, 3)), CURSOR)
    with pytest.raises(TransactionConflict):
        add_ack(world, (1, 2), name="2-other", pid=8)


@pytest.mark.parametrize("commit", [True, False])
def test_acks_end_once_with_their_transaction(commit: bool):
    world = World()
    add_ack(world, (1, 2))
    add_ack(world, (3, 4))
    assert is_claimed(world, 1)

    for _ in range(2):
        assert world.end(commit=commit, acks=(an_ack(),)) is None
    assert acked(world) == ([[(1, 2), (3, 4)]] if commit else [])
    assert not is_claimed(world, 1)
    assert len(world.participant.acks) == 0


def test_dispatch_goes_on_when_the_outcome_is_durable():
    world = World()
    add_ack(world, (1, 2))
    world.log.commit()
    request = EndBranch("2-tx", 7, 2, 5, False, (), (), acks=(an_ack(),))
    world.participant.end_branch(THERE, request)

    assert is_claimed(world, 1)
    world.log.commit()
    assert not is_claimed(world, 1)


def test_acks_that_the_coordinator_has_of_a_partition_that_has_moved_come_with_the_outcome():
    world = World()
    add_ack(world, (1, 2))
    moved = an_ack((5, 6))

    assert world.end(acks=(moved,)) is None
    assert acked(world) == [[(1, 2)], [(5, 6)]]


def test_pending_acks_have_bounds():
    world = World()
    add_ack(world, (1, 2), (3, 4), (5, 6))
    with pytest.raises(TooManyTransactions):
        add_ack(world, (7, 8))


def test_pending_acks_come_back_from_facts_and_from_a_snapshot():
    world = World()
    add_ack(world, (1, 2))
    assert world.participant.snapshot() == [], "not durable yet"
    world.log.commit()
    (row,) = world.participant.snapshot()
    add_ack(world, (3, 4))
    world.log.commit()

    again = World()
    assert row.value is not None
    again.participant.acks.load(row.value)
    for kind, payload in world.log.durable_facts:  # also those that the snapshot has
        again.participant.replay(kind, payload)
    assert is_claimed(again, 1)
    assert is_claimed(again, 3)
    assert again.end(acks=(an_ack(),)) is None
    assert acked(again) == [[(1, 2), (3, 4)]]
    (ended_row,) = again.participant.snapshot()
    assert ended_row == row._replace(value=None)

    ended = World()
    for kind, payload in [*world.log.durable_facts, *again.log.durable_facts]:
        ended.participant.replay(kind, payload)
    assert len(ended.participant.acks) == 0
    assert not is_claimed(ended, 1)


def test_acks_in_a_topic_that_was_deleted_are_dropped_at_the_next_snapshot():
    world = World()
    add_ack(world, (1, 2))
    world.log.commit()
    world.participant.snapshot()
    del world.ownership.partitions[10]

    (row,) = world.participant.snapshot()
    assert row.value is None
    assert not is_claimed(world, 1)
    assert world.participant.snapshot() == []


def test_a_transaction_is_named_until_it_ends():
    world = World()
    with pytest.raises(NotReady):
        world.participant.find_name(7)
    found = world.participant.look_up(THERE, 7, FindTransaction(3, 7))
    (_, _, answer) = world.port.sent[0]
    answer.set_result(TransactionName("2-tx", "User:alice"))

    assert found.error is None
    assert world.participant.find_name(7) == TransactionName("2-tx", "User:alice")
    assert world.end() is None
    with pytest.raises(NotReady):
        world.participant.find_name(7)
