"""The outcome of a transaction on its way to other nodes."""

from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog, FakeTimers, new_broker
from tests.broker.transactions.node_world import HERE, THERE, THIRD, FakeOwnership, FakePort
from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW, subscription_key
from trilogue.broker.errors import ConcurrentTransactions, NotCoordinator
from trilogue.broker.facts import FactKind
from trilogue.broker.node_requests import EndBranch
from trilogue.broker.transactions.batch_commits import OpenTransaction
from trilogue.broker.transactions.branches import RETRY_S, Branches
from trilogue.broker.transactions.records import DeferredAck, TransactionState, decode_saved
from trilogue.broker.transactions.transaction import VersionedContents
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.state import SlotRow


class World:
    def __init__(self) -> None:
        self.ownership = FakeOwnership({10: HERE, 20: THERE, 21: THERE, 30: THIRD})
        self.timers, self.port = FakeTimers(), FakePort()
        exists = self.ownership.partitions.__contains__
        self.branches = Branches(self.ownership, exists, self.timers, 5)  # type: ignore[arg-type]
        self.branches.port = self.port


def contained(*partitions: int, groups: tuple[str, ...] = ()) -> VersionedContents:
    made = VersionedContents()
    made.partitions.update(dict.fromkeys(partitions, 0))
    made.groups.update(dict.fromkeys(groups, 0))
    return made


def an_end(*partitions: int, groups: tuple[str, ...] = ()) -> EndBranch:
    return EndBranch("1-tx", 7, 2, 5, True, partitions, groups)


def test_each_owner_gets_what_is_its_own():
    world = World()
    parts = contained(10, 20, 21, 30, groups=("1-here", "3-group"))
    ended = world.branches.end("1-tx", parts, (7, 2), commit=True)

    assert dict(world.port.waiting) == {
        THERE: an_end(20, 21),
        THIRD: an_end(30, groups=("3-group",)),
    }
    world.port.answer()
    assert ended.done


def test_an_owner_that_does_not_answer_gets_the_outcome_again():
    world = World()
    ended = world.branches.end("1-tx", contained(20, 30), (7, 2), commit=True)
    world.port.sent[0][2].set_result(None)
    world.port.lose()

    for _ in range(3):
        assert world.port.waiting == []
        world.timers.advance(RETRY_S)
        assert world.port.waiting == [(THIRD, an_end(30))]
        world.port.lose()
    world.timers.advance(RETRY_S)
    assert not ended.done
    world.port.answer()
    assert ended.done


def test_the_outcome_follows_a_partition_to_its_next_owner():
    world = World()
    ended = world.branches.end("1-tx", contained(20, 21, 30), (7, 2), commit=True)
    world.ownership.partitions |= {20: THIRD, 21: HERE}
    del world.ownership.partitions[30]  # its topic is deleted
    world.port.lose()
    world.timers.advance(RETRY_S)

    assert world.port.waiting == [(THIRD, an_end(20))]
    world.port.answer()
    assert ended.done


def test_a_transaction_of_this_node_only_has_no_branches():
    world = World()

    assert not world.branches.exist(contained(10, groups=("1-here",)))
    assert world.branches.exist(contained(10, 20))
    assert world.branches.exist(contained(10, groups=("2-there",)))
    with pytest.raises(NotCoordinator):
        world.branches.check_coordinator("2-tx")


class Coordinator:
    """A broker that owns one of two slots, with a journal that commits on demand."""

    def __init__(self, facts: list[tuple[int, bytes]] | None = None) -> None:
        meta = MemoryMeta(b"a cluster's id 1", HERE, 1)
        meta.state.slots.clear()
        meta.state.slots.update({0: SlotRow(HERE, 1), 1: SlotRow(THERE, 1)})
        self.timers, self.log, self.port = FakeTimers(), FakeLog(), FakePort()
        self.broker = new_broker(meta, self.timers)
        self.broker.branches.port = self.port
        ownership = self.broker.cluster.ownership
        self.id = next(f"tx-{n}" for n in range(99) if ownership.owns_name(f"tx-{n}"))
        self.group = next(f"g-{n}" for n in range(99) if not ownership.owns_name(f"g-{n}"))
        for kind, payload in facts or ():
            self.broker.apply_fact(kind, payload)
        self.broker.attach(self.log, self.log)  # type: ignore[arg-type]
        self.transactions = self.broker.transactions

    def states(self) -> list[TransactionState]:
        return [
            decode_saved(payload)[0].state
            for kind, payload in self.log.facts
            if kind == FactKind.TRANSACTION_SAVED
        ]


def test_the_decision_is_durable_before_another_node_gets_it():
    world = Coordinator()
    made = world.transactions.init_producer(world.id, 60_000)
    world.log.commit()
    producer = made.result()
    world.transactions.add_group(world.id, producer, world.group)
    ended = world.transactions.end(world.id, producer, commit=True)

    assert world.states()[-1] is TransactionState.PREPARE_COMMIT
    assert world.port.sent == []
    world.log.commit()
    ((node_id, request),) = world.port.waiting
    assert (node_id, request.groups) == (THERE, (world.group,))  # type: ignore[union-attr]
    assert world.states()[-1] is TransactionState.PREPARE_COMMIT
    world.port.answer()
    assert world.states()[-1] is TransactionState.COMPLETE_COMMIT
    assert not ended.done, "until that is durable"
    world.log.commit()
    assert ended.result() == producer


def test_a_decision_that_other_nodes_have_not_got_is_sent_after_a_restart():
    world = Coordinator()
    made = world.transactions.init_producer(world.id, 60_000)
    world.log.commit()
    producer = made.result()
    world.transactions.add_group(world.id, producer, world.group)
    world.transactions.end(world.id, producer, commit=True, bumps=True)
    world.log.commit()
    ((_, first),) = world.port.waiting

    again = Coordinator(world.log.durable_facts)
    again.log.commit()
    ((node_id, second),) = again.port.waiting
    assert node_id == THERE
    assert second == first
    again.port.answer()
    assert again.states() == [TransactionState.COMPLETE_COMMIT]


@pytest.mark.parametrize("leaves", [False, True])
def test_ends_wait_while_the_slots_of_their_ids_are_about_to_leave(leaves: bool):
    """So a give begins when those under way have ended, however many others follow them."""
    world = Coordinator()
    made = world.transactions.init_producer(world.id, 60_000)
    world.log.commit()
    producer = made.result()
    world.transactions.add_group(world.id, producer, world.group)
    ownership = world.broker.cluster.ownership
    ownership.hold()
    slot = ownership.slot_of(world.id)

    with world.broker.holding_ends([slot]):
        ended = world.transactions.end(world.id, producer, commit=True, bumps=True)
        fenced = world.transactions.init_producer(world.id, 60_000)
        world.log.commit()
        assert not ended.done
        assert not fenced.done
        assert not world.broker.is_ending_in([slot])
        with pytest.raises(ConcurrentTransactions):
            world.broker.batch_commits.commit(world.id, 1, [OpenTransaction(world.id, producer)])
        if leaves:
            world.broker.release_slots([slot])
    expected = NotCoordinator if leaves else ConcurrentTransactions
    assert [type(each.error) for each in (ended, fenced)] == [expected] * 2
    assert world.transactions.table.find_by_id(world.id).state is TransactionState.ONGOING


def test_requests_for_an_id_of_another_node_are_refused():
    world = Coordinator()
    ownership = world.broker.cluster.ownership
    name = next(f"tx-{n}" for n in range(99) if not ownership.owns_name(f"tx-{n}"))

    with pytest.raises(NotCoordinator):
        world.transactions.init_producer(name, 60_000)
    with pytest.raises(NotCoordinator):
        world.transactions.abort(name)
    with pytest.raises(NotCoordinator):
        world.broker.batch_commits.find_last(name)


def test_the_owner_of_a_subscription_gets_its_acks_with_the_outcome():
    """Only those that the coordinator has, and only of a commit; a subscription in any case."""
    world = World()
    there, third, here = (
        DeferredAck(subscription_key(each, "s"), 5, NOTHING_BELOW, ranges)
        for each, ranges in ((20, ()), (30, ((1, 2),)), (10, ((3, 4),)))
    )
    for commit in (True, False):
        parts = contained()
        parts.acks.restore([there, third, here])
        assert world.branches.exist(parts)
        assert world.branches.have_left(parts)
        ended = world.branches.end("1-tx", parts, (7, 2), commit=commit)

        sent = {
            node: [(each.key, list(each.ranges)) for each in request.acks]  # type: ignore[union-attr]
            for node, request in world.port.waiting
        }
        assert sent == {
            THERE: [(there.key, [])],
            THIRD: [(third.key, [(1, 2)] if commit else [])],
        }
        world.port.answer()
        assert ended.done
    assert not world.branches.have_left(contained(20))
