"""The broker: everything that is true on this node, behind one facade. It never waits.

How a node brings one to life (each step needs the one before):

    broker = Broker(meta.state, allocate=meta.allocate, timers=..., now_ms=..., ...)
    broker.restore_snapshot(meta.snapshots())       # what fast facts amounted to at the last cut
    log = Log.open(...)                             # its recovery calls broker.restore_entry,
                                                    # broker.restore_foreign and broker.apply_fact
                                                    # for what came after the cut
    broker.attach(log, log.journal)                 # topics are served from here on

and at every flush cut, in the callback of the journal, `broker.snapshot()` gives the rows that
changed since the cut before. They are handed out once: whoever takes them must bring them to meta.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from trilogue.broker.any_group import ReadWishes, unread
from trilogue.broker.cluster import Cluster, ClusterLimits, Event
from trilogue.broker.coming import AT_ONCE, PartitionLogs
from trilogue.broker.consumer_group import ConsumerGroupSettings
from trilogue.broker.consumer_group_classic import UNREAD, Shares
from trilogue.broker.consumer_groups import ConsumerGroups
from trilogue.broker.cursor import CursorLimits, Cursors, FactJournal
from trilogue.broker.errors import NotServed, ProducerIdsExhausted, UnknownTopic
from trilogue.broker.facts import (
    CURSOR_KEY,
    GROUP_KEY,
    GROUP_KINDS,
    NOT_SAID,
    PRODUCER_KEY,
    SEQUENCE_KEY,
    SUBSCRIPTION_KEY,
    SUBSCRIPTION_KINDS,
    CursorMove,
    FactKind,
    Protocol,
    SnapshotRow,
    decode_mark,
)
from trilogue.broker.group_admin import GroupAdmin
from trilogue.broker.group_expiry import GroupExpiry
from trilogue.broker.group_members import GroupSettings, Timers
from trilogue.broker.group_rules import GroupRules
from trilogue.broker.groups import Groups
from trilogue.broker.kafka_live import live_values
from trilogue.broker.kafka_values import BrokerValues, GroupValues
from trilogue.broker.names import TopicName
from trilogue.broker.namespaces import Namespaces
from trilogue.broker.policies import Policies
from trilogue.broker.producers import ProducerLimits, Producers
from trilogue.broker.promise import Promise
from trilogue.broker.quotas import Quotas
from trilogue.broker.readings import ReadingLimits, Readings
from trilogue.broker.schemas import Schemas
from trilogue.broker.subscriptions import Bounds, SubscriptionLimits, Subscriptions
from trilogue.broker.subscriptions import Journal as SubscriptionJournal
from trilogue.broker.topic import Topic
from trilogue.broker.writers import Writers
from trilogue.entry.entry import EntryHeader, Format
from trilogue.entry.pulsar_batch import read_stamp
from trilogue.log.errors import CorruptLog
from trilogue.meta.errors import NoIdsLeft
from trilogue.meta.state import MetaState


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Bounds and habits of the broker's parts."""

    cluster: ClusterLimits = field(default_factory=ClusterLimits)
    groups: GroupSettings = field(default_factory=GroupSettings)
    consumer_groups: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    producers: ProducerLimits = field(default_factory=ProducerLimits)
    cursors: CursorLimits = field(default_factory=CursorLimits)
    subscriptions: SubscriptionLimits = field(default_factory=SubscriptionLimits)
    readings: ReadingLimits = field(default_factory=ReadingLimits)
    quota_burst_s: float = 1.0  # what a quota allows at once after a pause, in seconds of its rate


class ProducerIdentity(NamedTuple):
    """What an idempotent producer signs its batches with."""

    producer_id: int
    epoch: int


class Broker:
    """Topics (`cluster`, `namespaces`), readers (`groups`, `cursors`), writers (`producers`)."""

    def __init__(
        self,
        state: MetaState,
        *,
        allocate: Callable[[str], int],
        timers: Timers,
        now_ms: Callable[[], int],
        new_topic_id: Callable[[], bytes],
        new_member_suffix: Callable[[], str],
        read_wishes: ReadWishes = unread,
        shares: Shares = UNREAD,
        settings: BrokerSettings | None = None,
    ) -> None:
        settings = settings or BrokerSettings()
        self._allocate = allocate
        self._now_ms = now_ms
        self._journal: FactJournal | None = None
        self.producers = Producers(settings.producers)
        self.cluster = Cluster(
            state,
            allocate=allocate,
            new_topic_id=new_topic_id,
            now_ms=now_ms,
            producers=self.producers,
            forget=self._forget,
            limits=settings.cluster,
            policies=self._policies,
        )
        node_id = self.cluster.node_id
        self.values = BrokerValues(state.settings, node_id, topics_obey=self.cluster.obey)
        self.values.live.update(live_values(settings, node_id))
        self.group_values = GroupValues(state.settings)
        self.namespaces = Namespaces(
            state.settings,
            topics=self.cluster.count_in,
            homes=self.cluster.homes,
            changed=self.cluster.refresh,
        )
        self.cursors = Cursors(self.cluster.has_partition, settings.cursors)
        self.subscriptions = Subscriptions(
            self.cluster.has_partition, self._bounds, now_ms, settings.subscriptions
        )
        self.readings = Readings(
            partial(self.commit, Protocol.TUBEMQ),
            partial(self.cursors.position, Protocol.TUBEMQ),
            settings.readings,
        )
        self.rules = GroupRules(state.settings)  # of TubeMQ's administration
        self.quotas = Quotas(state.settings, burst_s=settings.quota_burst_s)
        self.writers = Writers(state.settings)
        self.schemas = Schemas(state.settings, now_ms)
        self.cluster.leaves.append(self.schemas.left)
        self.cluster.leaves.append(self.writers.leaves)
        self.groups = Groups(
            settings.groups,
            timers,
            new_member_suffix,
            now_ms=now_ms,
            read_wishes=read_wishes,
            has_positions=lambda name: bool(self.cursors.positions(Protocol.KAFKA, name)),
        )
        self.consumer_groups = ConsumerGroups(
            settings.consumer_groups,
            self.groups,
            self.cluster,
            shares=shares,
            said=self.group_values.number,
        )
        self.group_admin = GroupAdmin(self.groups, self.cursors, self._remove)
        self.group_expiry = GroupExpiry(self.groups, self.cursors, self.cluster, self._remove)

    def attach(self, logs: PartitionLogs, journal: SubscriptionJournal) -> None:
        """Begin to serve, from a log that has recovered."""
        self._journal = journal
        self.cluster.attach(logs)
        self.subscriptions.attach(journal)
        self.groups.records.attach(journal)
        self.producers.sequences.keep(self._deduplicates)
        self.cluster.listeners.append(self._policies_changed)

    # -- what doors ask

    def commit(
        self,
        protocol: Protocol,
        name: str,
        moves: Sequence[CursorMove],
        *,
        at_ms: int | None = None,
        retention_ms: int = NOT_SAID,
    ) -> Promise[None]:
        """Move a reader's positions; the promise is kept when they are durable and visible.

        Membership is the group's affair: ask `groups.check_commit` first. The client may say when
        it was (`at_ms`) and for how long they are to be kept.
        """
        assert self._journal is not None, "no log yet"
        at_ms = self._now_ms() if at_ms is None else at_ms
        return self.cursors.commit(
            self._journal, protocol, name, moves, at_ms, retention_ms=retention_ms
        )

    def init_producer_id(self, transactional_id: str | None = None) -> ProducerIdentity:
        """Give a producer an id that nobody had before."""
        if transactional_id is not None:
            raise NotServed("transactions are not served")
        try:
            return ProducerIdentity(self._allocate("producer"), 0)
        except NoIdsLeft as error:
            raise ProducerIdsExhausted("the next producer ids are not at hand yet") from error

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return what changed since the last call and is durable, for meta."""
        return [
            *self.cursors.snapshot(),
            *self.groups.records.snapshot(),
            *self.subscriptions.snapshot(),
            *self.producers.snapshot(self._now_ms(), self.cluster.durable_end),
            *self.producers.sequences.snapshot(self._now_ms(), self.cluster.durable_end),
        ]

    def restore_snapshot(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take over what meta kept of the last cut."""
        for key, value in rows:
            kind = key[:1]
            if kind == CURSOR_KEY:
                self.cursors.load(value)
            elif kind == GROUP_KEY:
                self.groups.records.load(value)
            elif kind == PRODUCER_KEY:
                mark = decode_mark(value)
                if self.cluster.has_partition(mark.partition_id):
                    self.producers.load(mark)
                else:
                    self.producers.disown(mark)
            elif kind == SUBSCRIPTION_KEY:
                self.subscriptions.load(value)
            elif kind == SEQUENCE_KEY:
                self.producers.sequences.load(key, value, self.cluster.has_partition)
            else:
                raise CorruptLog(f"a snapshot of unknown kind {kind!r}")
        self.producers.sequences.loaded()

    def apply_fact(self, kind: int, payload: bytes) -> None:
        """Take over a fact of a frame that is replayed."""
        if kind == FactKind.CURSOR_MOVE:
            self.cursors.replay(payload)
        elif kind == FactKind.CURSORS_GONE:
            self.cursors.replay_gone(payload)
        elif kind in GROUP_KINDS:
            self.groups.records.replay(kind, payload)
        elif kind == FactKind.PRODUCER_MARK:
            mark = decode_mark(payload)
            if self.cluster.has_partition(mark.partition_id):
                self.producers.replay(mark)
        elif kind in SUBSCRIPTION_KINDS:
            self.subscriptions.replay(kind, payload)
        else:
            raise CorruptLog(f"a fact of unknown kind {kind}")

    def restore_entry(self, partition_id: int, header: EntryHeader) -> None:
        """Take over what the header of a replayed entry says of its producer."""
        if header.producer_id >= 0 and self.cluster.has_partition(partition_id):
            self.producers.of(partition_id).restore(header, self._now_ms())

    def restore_foreign(self, partition_id: int, header: EntryHeader, entry: memoryview) -> None:
        """Take over what a replayed entry of another format says of its producer."""
        if header.format is not Format.PULSAR or not header.record_count:
            return
        if self.cluster.has_partition(partition_id):
            stamp, end = read_stamp(entry), header.last_offset + 1
            self.producers.sequences.restore(partition_id, stamp, end, self._now_ms())

    def _remove(self, name: str, partition_ids: Collection[int] | None) -> Promise[None]:
        assert self._journal is not None, "no log yet"
        return self.cursors.remove(self._journal, Protocol.KAFKA, name, partition_ids)

    def _deduplicates(self, partition_id: int) -> bool:
        partition = self.cluster.find_partition(partition_id)
        return partition is not None and partition.policies.deduplication

    def _policies_changed(self, event: Event, topic: Topic) -> None:
        """What was remembered under a policy is forgotten with it: meanwhile it gets old."""
        if event is Event.DELETED:
            self.schemas.forget(topic)
        if event is Event.ALTERED:
            for partition in topic.partitions:
                if not partition.policies.deduplication:
                    self.producers.sequences.drop(partition.partition_id)

    def _bounds(self, partition_id: int) -> Bounds | None:
        partition = self.cluster.find_partition(partition_id)
        return None if partition is None else partition.log

    def _policies(self, name: TopicName, settings: Mapping[str, str]) -> Policies:
        return self.namespaces.policies(name, settings)

    def _forget(self, partition_ids: Sequence[int]) -> Iterator[None]:
        """What is known of partitions that are gone, some in a step."""
        self.cursors.drop(partition_ids)
        self.subscriptions.drop(partition_ids)
        self.readings.drop(partition_ids)
        for count, partition_id in enumerate(partition_ids, 1):
            self.producers.drop(partition_id)
            self.writers.drop(partition_id, UnknownTopic("the topic was deleted"))
            if count % AT_ONCE == 0:
                yield
