"""Consumer groups of a broker, their members driven by hand, and a clock that only tests move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import pytest

from tests.broker.fakes import FakeLog, FakeTimers, new_broker
from trilogue.broker.broker_settings import BrokerSettings
from trilogue.broker.errors import BrokerError
from trilogue.broker.facts import SnapshotRow
from trilogue.broker.groups.classic.members import GroupSettings
from trilogue.broker.groups.consumer.assignors import PartitionIndexes, TopicIdPartition
from trilogue.broker.groups.consumer.group import (
    ConsumerGroupSettings,
    Heartbeat,
    HeartbeatResponse,
)
from trilogue.broker.groups.consumer.mixed_group import AssignmentCodec, MixedGroup
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.groups.member_metadata import CLASSIC_ASSIGNMENTS, read_subscription
from trilogue.meta.memory import MemoryMeta

SESSION_S, REBALANCE_S = 45, 60
BEAT_MS = 200  # the shortest there is, so that it is always the same


class Room:
    """A broker with topics; members go by short names and beat for group g."""

    def __init__(
        self,
        *,
        assignment_codec: AssignmentCodec = CLASSIC_ASSIGNMENTS,
        groups_max: int = 100,
        meta: MemoryMeta | None = None,
        **settings,
    ) -> None:
        """`meta` of another room: a restart, which `load` or `replay` completes."""
        settings.setdefault("heartbeat_interval_ms", BEAT_MS)
        self.timers = FakeTimers()
        self.log = FakeLog(at_once=True)
        self.meta = meta or MemoryMeta()
        self.broker = new_broker(
            self.meta,
            self.timers,
            decode_subscription=read_subscription,
            assignment_codec=assignment_codec,
            settings=BrokerSettings(
                groups=GroupSettings(groups_max=groups_max),
                consumer_groups=ConsumerGroupSettings(**settings),
            ),
        )
        if meta is None:
            self.broker.attach(self.log, self.log)
        self.topics: dict[str, Topic] = {}
        self.epochs: dict[str, int] = {}

    # -- restarts

    def load(self, rows: list[SnapshotRow]) -> None:
        """Begin with a snapshot that another room has taken."""
        self.broker.restore_snapshot((row.key, row.value) for row in rows if row.value is not None)
        self._attach()

    def replay(self, facts: list[tuple[int, bytes]]) -> None:
        """Begin with the journal of another room."""
        for kind, payload in facts:
            self.broker.apply_fact(kind, payload)
        self._attach()

    def _attach(self) -> None:
        for row in self.meta.state.topics.values():
            for partition_id in row.partitions:
                self.log.create_partition(partition_id, 1)
        self.broker.attach(self.log, self.log)

    # -- topics

    def topic(self, name: str, partitions: int = 6) -> bytes:
        cluster = self.broker.cluster
        plan = cluster.plan_create(
            cluster.check_create(parse_kafka(name), partition_count=partitions)
        )
        self.meta.write_now(plan.ops(), plan.preconditions)
        self.topics[name] = plan.apply()
        return self.topics[name].topic_id

    def grow(self, name: str, partitions: int) -> None:
        cluster = self.broker.cluster
        plan = cluster.plan_add_partitions(parse_kafka(name), partitions)
        self.meta.write_now(plan.ops(), plan.preconditions)
        plan.apply()

    def delete(self, name: str) -> None:
        plan = self.broker.cluster.plan_delete(parse_kafka(name))
        self.meta.write_now(plan.ops(), plan.preconditions)
        plan.apply()

    # -- members

    def heartbeat(self, member: str, epoch: int | None = None, **fields) -> HeartbeatResponse:
        """Beat at the member's epoch, or at this one."""
        at = self.epochs.get(member, 0) if epoch is None else epoch
        response = self.broker.consumer_groups.heartbeat(
            Heartbeat(fields.pop("group", "g"), member, at, **fields)
        )
        self.epochs[member] = response.epoch
        return response

    def join(self, member: str, *topics: str, **fields) -> HeartbeatResponse:
        fields.setdefault("topics", names(*topics))
        fields.setdefault("rebalance_timeout_ms", REBALANCE_S * 1_000)
        return self.heartbeat(member, 0, owned={}, **fields)

    def settle(self, *members: str) -> None:
        """Let all members follow their assignments until each has its target."""
        for _ in range(10):
            for member in members:
                self.heartbeat(member, owned=self.assigned(member))
            if self.group.state_name == "Stable":
                return
        raise AssertionError(f"never stable: {self.group.state_name}")

    @property
    def group(self) -> MixedGroup:
        return self.broker.consumer_groups.find_group("g")

    def assigned(self, member: str) -> PartitionIndexes:
        return self.group.require_member(member).assigned

    def shares(self) -> dict[str, list[int]]:
        """What each member has, of all topics together."""
        return {
            each.member_id: sorted(index for found in each.assigned.values() for index in found)
            for each in self.group.members
        }


def names(*spelled: str) -> frozenset[TopicName]:
    return frozenset(map(parse_kafka, spelled))


def some(topic_id: bytes, *indexes: int) -> PartitionIndexes:
    return {topic_id: frozenset(indexes)} if indexes else {}


def refused(kind: type[BrokerError], call) -> BrokerError:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return caught.value


def slots_of(parts: PartitionIndexes) -> list[TopicIdPartition]:
    """Every single partition, in order."""
    return [(topic, index) for topic, indexes in parts.items() for index in sorted(indexes)]


def parts_of(slots: Collection[TopicIdPartition]) -> PartitionIndexes:
    """The partitions, topic by topic."""
    found: defaultdict[bytes, set[int]] = defaultdict(set)
    for topic, index in slots:
        found[topic].add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
