"""A broker with topics, groups and positions: what is kept of them, and for how long."""

from __future__ import annotations

from tests.broker.fakes import FakeLog, FakeTimers, new_broker
from trilogue.broker.facts import DEFAULT_RETENTION, CursorMove, Protocol
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.group import MemberSubscription
from trilogue.broker.names import parse_kafka
from trilogue.log.errors import LogError
from trilogue.meta.memory import MemoryMeta

KAFKA = Protocol.KAFKA
DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS
SESSION_MS = 1_800_000


def read_names(metadata: bytes) -> MemberSubscription | None:
    """Decode a member's metadata: names of topics, one after the other; `?` is malformed."""
    if metadata == b"?":
        return None
    return MemberSubscription(frozenset(map(parse_kafka, metadata.decode().split())))


class Room:
    """A broker over a meta in memory and a log whose writes become durable on demand."""

    def __init__(self, *topics: str, before: Room | None = None) -> None:
        """`before` is what this one goes on from: a restart, by snapshot and journal."""
        self.timers = FakeTimers()
        self.log = FakeLog()
        self.meta = before.meta if before else MemoryMeta()
        self.rows: dict[bytes, bytes] = dict(before.rows) if before else {}
        self.broker = new_broker(
            self.meta,
            self.timers,
            decode_subscription=read_names,
        )
        for row in self.meta.state.topics.values():
            for partition_id in row.partitions:
                self.log.create_partition(partition_id, 1)
        if before is not None:
            self.timers.now = before.timers.now
            self.broker.restore_snapshot(self.rows.items())
            for kind, payload in before.log.durable_facts[before.cut_at :]:
                self.broker.apply_fact(kind, payload)
        self.broker.attach(self.log, self.log)
        self.cut_at = 0
        for name in topics:
            self.create(name)

    def create(self, name: str) -> None:
        cluster = self.broker.cluster
        commit = cluster.plan_create(cluster.check_create(parse_kafka(name), partition_count=2))
        self.meta.write_now(commit.ops(), commit.preconditions)
        commit.apply()

    def cut(self) -> None:
        """A flush: what the snapshot holds no restart replays."""
        self.log.commit()
        self.cut_at = len(self.log.durable_facts)
        for key, value in self.broker.snapshot():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def restart(self) -> Room:
        """A new process on what was durable."""
        self.log.commit()
        return Room(before=self)

    def days(self, count: float) -> None:
        self.timers.advance(count * DAY_MS / 1_000)

    def partition_id(self, topic: str, index: int = 0) -> int:
        return self.broker.cluster.topic(parse_kafka(topic)).partitions[index].partition_id

    def commit(
        self,
        group: str,
        *topics: str,
        protocol: Protocol = KAFKA,
        retention_ms: int = DEFAULT_RETENTION,
    ) -> None:
        moves = [CursorMove(self.partition_id(each), 5) for each in topics]
        self.broker.commit(protocol, group, moves, retention_ms=retention_ms)
        self.log.commit()

    def topics_of(self, group: str, protocol: Protocol = KAFKA) -> set[str]:
        """The topics that a group has positions of."""
        there = self.broker.committed_offsets.positions(protocol, group)
        return {
            topic.name.name
            for topic in self.broker.cluster
            if any(each.partition_id in there for each in topic.partitions)
        }

    def member(self, group: str, topics: str, kind: str = "consumer") -> str:
        """A member that has joined and been given something."""
        member_id = self.joined(group, topics, kind)
        generation = self.broker.groups.find_group(group).generation
        self.broker.groups.sync(group, member_id, generation, assignments={member_id: b"all"})
        self.log.commit()
        return member_id

    def joined(self, group: str, topics: str, kind: str = "consumer") -> str:
        """A member that has joined and waits for its assignment."""
        request = JoinRequest(
            group, "", kind, (("range", topics.encode()),), SESSION_MS, SESSION_MS
        )
        promise = self.broker.groups.join(request)
        self.timers.advance(1)
        return promise.result().member_id

    def leave(self, group: str, member_id: str) -> None:
        self.broker.groups.leave(group, member_id)
        self.log.commit()

    def stay(self, group: str, member_id: str, days: int) -> None:
        """Let days go by in which the member shows that it lives."""
        generation = self.broker.groups.find_group(group).generation
        for _ in range(days * 72):
            self.timers.advance(DAY_MS / 72 / 1_000)
            self.broker.groups.heartbeat(group, member_id, generation)

    def remove_expired(self, retention_ms: int = RETENTION_MS) -> int:
        """Have what is due removed; how many positions that was."""
        removed = sum(self.broker.group_expiry.remove_expired(self.timers.now_ms(), retention_ms))
        self.log.commit()
        return removed

    def refuse(self, refusal: LogError | None) -> None:
        self.log.refusal = refusal

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.broker.group_admin.listed())
