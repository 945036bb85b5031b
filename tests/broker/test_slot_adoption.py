"""A broker that adopts a slot while it serves another has what a start with both would have."""

from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog, FakeTimers, batch, new_broker
from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError, NotOwner
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.creation import PARTITIONS_PER_STEP
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
        self.broker.adopt_slots([row for row in rows if ownership.snapshot_slot(row[0]) in slots])

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
