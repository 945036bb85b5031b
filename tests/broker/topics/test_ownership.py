"""Slots that a node owns, and slots that it serves."""

from __future__ import annotations

from trilogue.broker.topics.ownership import Ownership
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.state import MetaState, SlotRow


def state_of(*owners: int) -> MetaState:
    state = MemoryMeta(bytes(16)).state
    state.slots = {slot: SlotRow(node_id, 1) for slot, node_id in enumerate(owners)}
    return state


def test_a_slot_that_a_node_gets_is_not_served_before_its_state_is_read():
    state = state_of(1, 2)
    ownership = Ownership(state)
    ownership.hold()
    state.slots[1] = SlotRow(1, 2)

    assert ownership.slot_owner(1) == 1
    assert [ownership.owns_slot(slot) for slot in (0, 1, 2)] == [True, False, False]
    assert ownership.gained == [1]
    assert not ownership.is_alone

    started_again = Ownership(state)
    started_again.hold()
    assert started_again.gained == []
    assert started_again.is_alone

    generation = ownership.generation
    ownership.adopt([1])
    assert ownership.gained == []
    assert ownership.is_alone
    assert ownership.generation > generation, "for caches"


def test_a_slot_that_a_node_gives_away_is_not_served():
    state = state_of(1, 1)
    ownership = Ownership(state)
    ownership.hold()
    state.slots[0] = SlotRow(2, 2)

    assert not ownership.owns_slot(0)
    assert not ownership.is_master
    assert ownership.serves_any
    state.slots[1] = SlotRow(2, 2)
    assert not ownership.serves_any


def test_clients_of_a_slot_go_to_its_next_owner_when_it_is_known():
    ownership = Ownership(state_of(1, 2, 3))
    ownership.hold()
    changes = [ownership.next_change]
    ownership.expect({1: 1, 2: 9})

    assert [ownership.slot_leader(each) for each in range(3)] == [1, 1, 3], "9 has no slots"
    assert [ownership.slot_owner(each) for each in range(3)] == [1, 2, 3]
    assert ownership.is_expecting
    assert [ownership.expects_slot(each) for each in range(3)] == [False, True, False]
    assert changes[0].done

    changes.append(ownership.next_change)
    ownership.expect({1: 1})
    assert not changes[1].done, "nothing has changed"
    ownership.expect({})
    assert changes[1].done
    assert not ownership.is_expecting
