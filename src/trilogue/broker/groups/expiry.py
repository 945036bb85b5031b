"""When offsets of groups expire (KIP-211), and when groups are forgotten for good.

A position is kept for a time (Kafka's offsets.retention.minutes, seven days) that begins

    when the group lost its last member, or the position was committed, whichever was later
    with the commit, where the group never had members (its reader is assigned by hand)
    with the commit, for topics that a settled group of readers does not read (any more)

Nothing expires while its topic is read, or while that is unknown: classic groups that rebalance, or
are of another protocol type. A client may have set how long a commit is to be kept
(OffsetCommit v2 to v4): then that time is instead of ours, and still only without readers.

Unlike Kafka, which counts from when the group became empty alone, what is committed to an empty
group later (by an administrator, or a reader assigned by hand) is kept from then on.

Positions of share groups and durable cursors of other protocols never expire here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from trilogue.broker.cursors.committed_offsets import CommittedOffsets
from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.facts import DEFAULT_RETENTION, Protocol
from trilogue.broker.groups.admin import RemovePositions
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.group import CLASSIC, CONSUMER_PROTOCOL, Group
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.names import TopicName
from trilogue.broker.topics.cluster import Cluster

KAFKA = Protocol.KAFKA
AT_ONCE: Final = 1_000  # positions looked at, or groups, before others have a turn


class GroupExpiry:
    """Removes what expired of all groups; `remove_expired` runs once, in short steps."""

    def __init__(
        self,
        groups: GroupRegistry,
        cursors: CommittedOffsets,
        cluster: Cluster,
        remove: RemovePositions,
    ) -> None:
        self._groups = groups
        self._cursors = cursors
        self._cluster = cluster
        self._remove = remove

    def remove_expired(self, now_ms: int, retention_ms: int) -> Iterator[int]:
        """Remove what has expired; after each step yield how many positions that was.

        The removals are durable soon after; the disk's refusal (a BrokerError) ends the look.
        """
        topics = _Topics(self._cluster)
        seen = removed = 0
        owns = self._cluster.ownership.owns_name
        for name in filter(owns, self._cursors.names(KAFKA)):
            expired: list[int] = []
            since = self._since(name)
            for partition_id, position in list(self._cursors.positions(KAFKA, name).items()):
                seen += 1
                if since is not None and is_expired(position, since, retention_ms, now_ms):
                    expired.append(partition_id)
                if seen % AT_ONCE == 0:
                    yield removed
                    removed = 0
            removed += self._expire(name, expired, topics)
        yield removed
        yield from self._forget()

    def _since(self, name: str) -> int | None:
        """From when on the time of a group's positions runs, at the earliest; None: it does not."""
        group = self._groups.find_group(name)
        if group is None or group.is_empty:
            record = self._groups.records.get(name)
            return 0 if record is None else record.empty_since_ms
        return 0 if _settled(group) else None

    def _expire(self, name: str, partition_ids: list[int], topics: _Topics) -> int:
        group = self._groups.find_group(name)
        if partition_ids and group is not None and not group.is_empty:
            reads = group.reading()
            partition_ids = [
                each
                for each in partition_ids
                if (topic := topics.name_of(each)) is None or not reads(topic)
            ]
        if partition_ids:
            self._remove(name, partition_ids)
        return len(partition_ids)

    def _forget(self) -> Iterator[int]:
        """Forget groups that have neither members nor positions."""
        names = dict.fromkeys(group.name for group in self._groups)
        names.update(dict.fromkeys(self._groups.records.names()))
        for number, name in enumerate(filter(self._cluster.ownership.owns_name, names), 1):
            if not self._groups.has_positions(name) and _over(self._groups.find_group(name)):
                self._groups.drop(name)
            if number % AT_ONCE == 0:
                yield 0


class _Topics:
    """Which topic a partition is of; looked up at the first question, as few looks have one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: Mapping[int, TopicName] | None = None

    def name_of(self, partition_id: int) -> TopicName | None:
        if self._names is None:
            self._names = {
                partition.partition_id: topic.name
                for topic in self._cluster
                for partition in topic.partitions
            }
        return self._names.get(partition_id)


def is_expired(position: CommittedOffset, since_ms: int, retention_ms: int, now_ms: int) -> bool:
    """Whether the time of a position is over; it runs from `since_ms` or the commit, the later."""
    if position.retention_ms != DEFAULT_RETENTION:
        return position.committed_ms + position.retention_ms <= now_ms
    return max(since_ms, position.committed_ms) + retention_ms <= now_ms


def _settled(group: Group) -> bool:
    if group.type != CLASSIC:
        return True
    return group.protocol_type == CONSUMER_PROTOCOL and group.state_name == GroupState.STABLE.value


def _over(group: Group | None) -> bool:
    if group is None:
        return True
    pending = isinstance(group, ClassicGroup) and group.members.pending  # who is about to join
    return group.is_empty and not pending
