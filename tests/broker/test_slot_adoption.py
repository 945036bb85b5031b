"""A broker that adopts a slot while it serves another has what a start with both would have.

And one that gives a slot away has what a start without it would have, also when it comes back.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.broker.fakes import FakeLog, FakeTimers, batch, new_broker
from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError, NotCoordinator, NotOwner, UnknownSubscription
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.placement import PARTITIONS_PER_STEP
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import AssignSlots, PutPartitionState
from trilogue.meta.state import SlotRow

NAMES = [f"name-{number}" for number in range(6)]  # of both slots
FORMER, NEXT = 1, 2  # nodes
Row = tuple[bytes, bytes]


class FormerOwner:
    """Node 1 with both slots, which has written something of every kind and has flushed it."""

    def __init__(self) -> None:
        self.meta = MemoryMeta()
        self.meta.write_now([AssignSlots((FORMER, FORMER))])
        log, timers = FakeLog(at_once=True), FakeTimers()
        broker = new_broker(self.meta, timers)
        broker.attach(log, log)
        cluster = broker.cluster
        change = cluster.plan_create(cluster.check_create(parse_kafka("orders"), partition_count=2))
        self.meta.write_now(change.ops(), change.preconditions)
        topic = change.apply()
        self.ids = topic.row.partitions
        for number, partition in enumerate(topic.partitions):
            partition.append(batch(3, producer=(70 + number, 0, 0)), now_ms=1)
            broker.subscriptions.create(partition.partition_id, "readers", 1)
        log.commit()
        for at, name in enumerate(NAMES):
            broker.commit(Protocol.KAFKA, name, [CursorMove(self.ids[at % 2], at)])
            broker.commit(Protocol.TUBEMQ, name, [CursorMove(self.ids[at % 2], at)])
            broker.groups.join(JoinRequest(name, "", "consumer", (("range", b""),), 10_000, 60_000))
            identity = broker.transactions.init_producer(name, 60_000).result()
            broker.transactions.add_partitions(name, identity, self.ids)
        timers.advance(5)
        for name in NAMES:
            group = broker.groups.find_group(name)
            assert group is not None
            member = next(iter(group.members)).member_id
            broker.groups.sync(name, member, 1, assignments={member: b"all"})
        log.commit()
        self.rows = [(row.key, row.value) for row in broker.snapshot() if row.value is not None]
        self.meta.write_now([PutPartitionState(each, flushed_end=3) for each in self.ids])


class NextOwner:
    """Node 2 over the same rows; it owns the slots that `owned` names."""

    def __init__(self, former: FormerOwner, owned: set[int]) -> None:
        self.state = former.meta.state.copy()
        self.state.node_id = NEXT
        self.log, self.timers = FakeLog(at_once=True), FakeTimers()
        self.give(owned)
        self.meta = MemoryMeta()
        self.meta.state = self.state
        while self.meta.allocate("partition") < max(former.ids):
            pass  # ids that the former owner has used
        self.broker: Broker = new_broker(self.meta, self.timers)
        self.broker.cluster.new_topic_id = lambda: bytes(15) + b"n"
        self.broker.cluster.ownership.hold()
        for partition_id in former.ids:
            known = self.state.partition_range(partition_id)
            assert known is not None
            ownership = self.broker.cluster.ownership
            if ownership.owns_partition(partition_id):
                epoch = ownership.partition_epoch(partition_id)
                self.log.adopt_partition(partition_id, epoch, known)
        self.broker.restore_snapshot(former.rows)
        self.broker.attach(self.log, self.log)

    def give(self, slots: set[int]) -> None:
        """Make this node the owner of slots, as the former one's transaction does."""
        for slot in slots:
            self.state.slots[slot] = SlotRow(NEXT, self.state.slots[slot].epoch + 1)

    def adopt(self, slots: set[int], rows: list[Row]) -> None:
        ownership = self.broker.cluster.ownership
        ownership.adopt(slots)
        self.broker.adopt_slots(
            slots, [row for row in rows if ownership.snapshot_slot(row[0]) in slots]
        )

    def leave(self, slots: set[int]) -> list[tuple[bytes, bytes | None]]:
        """Give slots to another node; return the rows of the flush cut before."""
        self.broker.release_slots(slots)
        rows = [(row.key, row.value) for row in self.broker.snapshot()]
        for slot in slots:
            self.state.slots[slot] = SlotRow(FORMER, self.state.slots[slot].epoch + 1)
        for _ in self.broker.forget_slots(slots):
            pass
        return rows

    def content(self, ids: tuple[int, ...]) -> dict[str, object]:
        """Everything that a client could see of it."""
        broker = self.broker
        topic = next(iter(broker.cluster))
        positions = broker.committed_offsets.position
        groups = [broker.groups.find_group(name) for name in NAMES]
        return {
            "ends": [each.log.end_offset for each in topic.local_partitions],
            "epochs": [each.owner_epoch for each in topic.partitions],
            "offsets": [
                [positions(protocol, name, each) for each in ids]
                for name in NAMES
                for protocol in (Protocol.KAFKA, Protocol.TUBEMQ)
            ],
            "groups": [None if each is None else (each.type, each.is_empty) for each in groups],
            "records": {name: broker.groups.records.get(name) for name in NAMES},
            "cursors": [
                {name: each.mark for name, each in broker.subscriptions.of_partition(one).items()}
                for one in ids
            ],
            "transactions": sorted(each.row for each in broker.transactions.table),
            "producers": len(broker.producers),
        }


@pytest.fixture(scope="module")
def former() -> FormerOwner:
    return FormerOwner()


@pytest.mark.parametrize("first", [0, 1])
def test_an_adopted_slot_has_what_a_start_would_have_read(former: FormerOwner, first: int):
    started = NextOwner(former, {0, 1})
    node = NextOwner(former, {first})
    before = node.content(former.ids)
    node.give({1 - first})

    node.adopt({1 - first}, former.rows)

    assert before != started.content(former.ids)
    assert node.content(former.ids) == started.content(former.ids)
    assert node.broker.cluster.ownership.gained == []
    assert node.broker.snapshot() == [], "rows that were read are not written again"


def test_a_slot_is_refused_until_it_is_adopted_and_then_goes_on(former: FormerOwner):
    node = NextOwner(former, {0})
    topic = next(iter(node.broker.cluster))
    number = next(at for at, each in enumerate(topic.partitions) if each.is_remote)
    repeated = batch(3, producer=(70 + number, 0, 0))
    node.give({1})
    with pytest.raises(NotOwner):
        topic.partitions[number].append(repeated, now_ms=2)

    node.adopt({1}, former.rows)

    partition = next(iter(node.broker.cluster)).partitions[number]
    assert partition.append(repeated, now_ms=2).duplicate
    assert partition.append(batch(1, producer=(70 + number, 0, 3)), now_ms=2).base_offset == 3
    for name in NAMES:
        group = node.broker.groups.find_group(name)
        assert group is not None
        member = next(iter(group.members)).member_id
        node.broker.groups.heartbeat(name, member, 1)


def test_a_transaction_is_ended_on_a_partition_when_its_slot_is_adopted(former: FormerOwner):
    """Between the change of the owner and the adoption its marker must not be left out."""
    node = NextOwner(former, {0})
    table, coordinator = node.broker.transactions.table, node.broker.transactions
    found = next(iter(table))
    remote = next(each for each in former.ids if node.broker.cluster.find_partition(each) is None)
    node.give({1})

    coordinator.abort(found.row.transactional_id)
    assert found.state.is_ending, "it waits for the partition that is not adopted yet"
    node.adopt({1}, former.rows)
    node.timers.advance(1)

    assert not found.state.is_ending
    partition = node.broker.cluster.find_partition(remote)
    assert partition is not None
    assert partition.log.end_offset == 4, "its marker"


def test_a_topic_that_is_created_while_its_slot_is_adopted_is_served(former: FormerOwner):
    node = NextOwner(former, {0})
    cluster = node.broker.cluster
    count = PARTITIONS_PER_STEP + 2
    change = cluster.plan_create(cluster.check_create(parse_kafka("late"), partition_count=count))
    node.meta.write_now(change.ops())
    steps = change.steps()
    next(steps)
    node.give({1})
    node.adopt({1}, former.rows)

    for _ in steps:
        pass

    topic = cluster.topic(parse_kafka("late"))
    assert [each.is_remote for each in topic.partitions] == [False] * count


def test_the_coordinator_of_a_slot_that_is_not_adopted_is_refused(former: FormerOwner):
    node = NextOwner(former, {0})
    node.give({1})
    with pytest.raises(BrokerError):
        node.broker.pulsar_transactions.check_coordinator(1)
    node.adopt({1}, former.rows)
    node.broker.pulsar_transactions.check_coordinator(1)


@pytest.mark.parametrize("left", [0, 1])
def test_a_slot_that_is_given_away_leaves_nothing_and_may_come_back(former: FormerOwner, left: int):
    node, started = NextOwner(former, {0, 1}), NextOwner(former, {0, 1})
    without = NextOwner(former, {1 - left})
    ownership = node.broker.cluster.ownership
    facts = list(node.log.facts)

    node.leave({left})

    assert node.log.facts == facts, "the journal is the next owner's no more"
    found, expected = node.content(former.ids), without.content(former.ids)
    del found["epochs"], expected["epochs"]  # those of the other slot have gone on
    assert found == expected
    assert node.timers.pending == without.timers.pending
    assert node.log.partitions.keys() == without.log.partitions.keys()
    assert node.broker.snapshot() == []
    assert ownership.gained == []

    node.give({left})
    node.adopt({left}, former.rows)

    found, expected = node.content(former.ids), started.content(former.ids)
    del found["epochs"], expected["epochs"]
    assert found == expected


def test_a_slot_that_leaves_takes_along_what_was_not_flushed(former: FormerOwner):
    """What was written last is in the cut after the clients are refused, and its owner has it."""
    node = NextOwner(former, {0, 1})
    cluster, broker = node.broker.cluster, node.broker
    topic = next(iter(cluster))
    number = next(
        at for at, each in enumerate(former.ids) if cluster.ownership.partition_slot(each)
    )
    partition = topic.partitions[number]
    partition.append(batch(2, producer=(70 + number, 0, 3)), now_ms=2)
    cursor = broker.subscriptions.find_cursor(partition.partition_id, "readers")
    assert cursor is not None
    node.log.commit()
    assert broker.subscriptions.ack_until(cursor, 4)
    name = next(each for each in NAMES if cluster.ownership.slot_of(each))
    broker.commit(Protocol.KAFKA, name, [CursorMove(former.ids[0], 77)])
    broker.commit(Protocol.TUBEMQ, "tube", [CursorMove(partition.partition_id, 3)])
    node.log.commit()

    rows = node.leave({1})

    with pytest.raises(NotOwner):
        partition.append(batch(1, producer=(70 + number, 0, 5)), now_ms=3)
    with pytest.raises(NotOwner):
        topic.partition(number)
    with pytest.raises(BrokerError):
        broker.commit(Protocol.KAFKA, name, [CursorMove(former.ids[0], 78)])
    assert not broker.subscriptions.ack_until(cursor, 5)
    with pytest.raises(UnknownSubscription):
        broker.subscriptions.set_properties(cursor, {})
    assert all(value is not None for _, value in rows)
    known = node.state.partitions[partition.partition_id]
    node.state.partitions[partition.partition_id] = replace(known, flushed_end=5)
    node.give({1})
    merged = {**dict(former.rows), **{key: value for key, value in rows if value is not None}}
    node.adopt({1}, list(merged.items()))
    back = next(iter(cluster)).partitions[number]
    assert back.append(batch(2, producer=(70 + number, 0, 3)), now_ms=2).duplicate
    found = broker.subscriptions.find_cursor(partition.partition_id, "readers")
    assert found is not None
    assert found.mark == 4
    moved = broker.committed_offsets.position(Protocol.KAFKA, name, former.ids[0])
    assert moved is not None
    assert moved.mark == 77
    tube = broker.committed_offsets.position(Protocol.TUBEMQ, "tube", partition.partition_id)
    assert tube is not None
    assert tube.mark == 3


def test_members_that_wait_in_a_group_that_leaves_are_sent_to_the_next_coordinator(
    former: FormerOwner,
):
    node = NextOwner(former, {0, 1})
    groups, ownership = node.broker.groups, node.broker.cluster.ownership
    name = next(each for each in NAMES if ownership.slot_of(each))
    joining = groups.join(JoinRequest(name, "", "consumer", (("range", b""),), 10_000, 60_000))
    assert not joining.done

    node.broker.release_slots({1})

    assert isinstance(joining.error, NotCoordinator)
    node.timers.advance(3_600)
    assert groups.find_group(name) is None


def test_a_transaction_that_a_move_divides_is_aborted(former: FormerOwner):
    """Its coordinator stays, and the group whose positions it holds has another one now."""
    node = NextOwner(former, {0, 1})
    table, ownership = node.broker.transactions.table, node.broker.cluster.ownership
    found = next(each for each in table if not ownership.slot_of(each.row.transactional_id))
    row = found.row
    group = next(each for each in NAMES if ownership.slot_of(each))
    identity = ProducerIdentity(row.producer_id, row.epoch)
    node.broker.transactions.add_offsets(
        row.transactional_id, identity, group, [CursorMove(former.ids[0], 9)], adds=True
    )

    node.leave({1})

    assert found.state.is_ending, "the other node has to answer"
