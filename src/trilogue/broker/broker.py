"""The broker: topics, groups, positions, producers and settings of this node. It never waits.

A node starts it in this order (each step needs the one before):

    broker = Broker(meta.state, allocate=meta.allocate, timers=..., now_ms=..., ...)
    broker.restore_snapshot(meta.snapshots())       # the state of fast facts at the last cut
    log = Log.open(...)                             # its recovery calls broker.restore_entry,
                                                    # broker.restore_foreign and broker.apply_fact
                                                    # for what came after the cut
    broker.attach(log, log.journal)                 # topics are served from here on

At every flush cut, in the callback of the journal, `broker.snapshot()` returns the rows that
changed since the previous cut. Each change is returned once, so the caller must bring it to meta.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trilogue.broker.access import acls, delegation_tokens, users
from trilogue.broker.access.acls import AclStore
from trilogue.broker.access.delegation_tokens import DelegationTokens
from trilogue.broker.access.users import Users
from trilogue.broker.broker_settings import BrokerSettings
from trilogue.broker.cursors.committed_offsets import CommittedOffsets
from trilogue.broker.cursors.share_positions import SharePositions
from trilogue.broker.cursors.subscription_cursors import Bounds, SubscriptionCursors
from trilogue.broker.errors import NotCoordinator, NotReady, ProducerIdsExhausted, UnknownTopic
from trilogue.broker.facts import (
    BATCH_KEY,
    CURSOR_KEY,
    DEFAULT_RETENTION,
    GROUP_KEY,
    GROUP_KINDS,
    MEMBER_KEY,
    PENDING_ACKS_KEY,
    PENDING_KEY,
    PENDING_KINDS,
    PRODUCER_KEY,
    SEQUENCE_KEY,
    SHARE_KEY,
    SHARE_KINDS,
    SUBSCRIPTION_KEY,
    SUBSCRIPTION_KINDS,
    TRANSACTION_KEY,
    TRANSACTION_KINDS,
    CursorMove,
    FactJournal,
    FactKind,
    ProducerMark,
    Protocol,
    SnapshotRow,
    decode_mark,
)
from trilogue.broker.groups.admin import GroupAdmin
from trilogue.broker.groups.classic.members import Timers
from trilogue.broker.groups.consumer.mixed_group import NO_CODEC, AssignmentCodec
from trilogue.broker.groups.consumer.records import is_consumer_group
from trilogue.broker.groups.consumer.registry import ConsumerGroupRegistry
from trilogue.broker.groups.expiry import GroupExpiry
from trilogue.broker.groups.group import DecodeSubscription, no_subscription
from trilogue.broker.groups.membership import GROUP, decode_member_key
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.groups.share.partitions import SharePartitions
from trilogue.broker.groups.share.records import is_share_group
from trilogue.broker.groups.share.registry import ShareGroupRegistry
from trilogue.broker.groups.streams.records import is_streams_group
from trilogue.broker.groups.streams.registry import StreamsGroupRegistry
from trilogue.broker.internal.records import InternalRecords
from trilogue.broker.internal.state_topics import StateTopics
from trilogue.broker.names import TopicName
from trilogue.broker.node_requests import DescribeProducers, NodeReply
from trilogue.broker.non_persistent import topics as non_persistent_topics
from trilogue.broker.non_persistent.topics import NonPersistentTopics
from trilogue.broker.producers.access_modes import Writers
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.promise import Promise
from trilogue.broker.quotas import quotas
from trilogue.broker.quotas.quotas import Quotas
from trilogue.broker.schemas import subjects, topic_schemas
from trilogue.broker.schemas.subjects import Subjects
from trilogue.broker.schemas.topic_schemas import SchemaRegistry
from trilogue.broker.settings.broker_values import (
    BROKER_PREFIX,
    GROUP_PREFIX,
    BrokerValues,
    GroupValues,
)
from trilogue.broker.subscriptions.added_partitions import AddedPartitions
from trilogue.broker.topics import default_policies
from trilogue.broker.topics.cluster import Cluster, TopicEvent
from trilogue.broker.topics.namespaces import NAMESPACE_KEY, TENANT_KEY, Namespaces
from trilogue.broker.topics.placement import PARTITIONS_PER_STEP, PartitionLogs
from trilogue.broker.topics.policies import Policies
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.batch_commits import BatchCommits
from trilogue.broker.transactions.branch_acks import BranchAcks
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.completion import TransactionCompletion
from trilogue.broker.transactions.coordinator import ProducerIdentity, TransactionCoordinator
from trilogue.broker.transactions.participant import NodeRequestHandler, TransactionParticipant
from trilogue.broker.transactions.pending_offsets import PendingOffsets
from trilogue.broker.transactions.pulsar_transactions import PulsarTransactions
from trilogue.broker.transactions.records import DeferredAck
from trilogue.broker.transactions.transaction_table import TransactionTable
from trilogue.broker.tubemq.group_rules import RULE_KEYS, GroupRules
from trilogue.broker.tubemq.registrations import Registrations
from trilogue.entry.entry import EntryHeader, Format
from trilogue.entry.pulsar.pulsar_batch import read_stamp
from trilogue.log.errors import CorruptLog
from trilogue.meta.errors import NoIdsLeft
from trilogue.meta.state import MetaState

if TYPE_CHECKING:
    from trilogue.broker.producers.described import NodeProducers

ApplySetting = Callable[[str, str | None], None]  # a key, and its text; None: it was deleted


class Broker:
    """Topics and their partitions, groups and positions, producers, settings, quotas."""

    def __init__(
        self,
        state: MetaState,
        *,
        allocate: Callable[[str], int],
        timers: Timers,
        now_ms: Callable[[], int],
        new_topic_id: Callable[[], bytes],
        new_member_suffix: Callable[[], str],
        decode_subscription: DecodeSubscription = no_subscription,
        assignment_codec: AssignmentCodec = NO_CODEC,
        load_internal_records: Callable[[], InternalRecords] | None = None,
        settings: BrokerSettings | None = None,
    ) -> None:
        settings = settings or BrokerSettings()
        self._allocate = allocate
        self._now_ms = now_ms
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
        self.values = BrokerValues(
            state.settings, state.node_id, apply_to_topics=self.cluster.apply_topic_defaults
        )
        self.values.live.update(settings.live_values(state.node_id))
        self.values.listeners.append(self._limit_producers)
        self._limit_producers()
        self.group_values = GroupValues(state.settings)
        self.namespaces = Namespaces(
            state.settings,
            topics=self.cluster.topic_count,
            namespaces_with_topics=self.cluster.namespaces_with_topics,
            changed=self.cluster.refresh_policies,
        )
        self.non_persistent = NonPersistentTopics(
            state.settings, self.namespaces, self.cluster.ownership, now_ms
        )
        exists = self.cluster.has_partition
        offsets = self.committed_offsets = CommittedOffsets(exists, settings.committed_offsets)
        self.subscriptions = SubscriptionCursors(
            exists, self._bounds, now_ms, settings.subscriptions
        )
        self.registrations = Registrations(
            partial(self.commit, Protocol.TUBEMQ),
            partial(offsets.position, Protocol.TUBEMQ),
            settings.registrations,
        )
        self.rules = GroupRules(state.settings)  # of TubeMQ's administration
        self.quotas = Quotas(state.settings, burst_s=settings.quota_burst_s)
        self.writers = Writers(state.settings)
        self.acls = AclStore(state.settings)
        self.users = Users(state.settings)
        self.delegation_tokens = DelegationTokens(state.settings, self.users.tokens_from_ms)
        self._make_transactions(settings, timers, state.node_epoch)
        self.schemas = SchemaRegistry(state.settings, now_ms)
        self.subjects = Subjects(state.settings, self.schemas, self.cluster, now_ms)
        self.cluster.deletion_ops += (self.schemas.deletion_ops, self.writers.deletion_ops)
        self._make_groups(
            settings, timers, new_member_suffix, decode_subscription, assignment_codec
        )
        self.state_topics = self._make_state_topics(load_internal_records)
        self._setting_stores = self._map_setting_stores()

    def _make_transactions(
        self, settings: BrokerSettings, timers: Timers, coordinator_epoch: int
    ) -> None:
        cluster, limits, table = self.cluster, settings.transactions, TransactionTable()
        self.branches = Branches(
            cluster.ownership, cluster.has_partition, timers, coordinator_epoch
        )
        self.participant = TransactionParticipant(
            self.branches,
            cluster.ownership,
            PendingOffsets(
                self._commit_in_transaction,
                keys_max=limits.ids_max,
                positions_max=limits.positions_max,
                positions_in_all_max=limits.parts_max,
            ),
            BranchAcks(
                table.pending_acks,
                self._commit_acks,
                cluster.has_partition,
                ranges_max=limits.ack_ranges_max,
            ),
            find_partition=cluster.find_partition,
            commit_offsets=self._commit_in_transaction,
            commit_acks=self._commit_acks,
            now_ms=self._now_ms,
        )
        completion = TransactionCompletion(
            table,
            find_partition=cluster.find_partition,
            commit_offsets=self._commit_in_transaction,
            commit_acks=self._commit_acks,
            timers=timers,
            now_ms=self._now_ms,
            branches=self.branches,
            participant=self.participant,
        )
        self.transactions = TransactionCoordinator(
            allocate_producer_id=self._allocate_producer_id,
            now_ms=self._now_ms,
            branches=self.branches,
            participant=self.participant,
            table=table,
            completion=completion,
            limits=limits,
        )
        self.batch_commits = BatchCommits(self.transactions, self._now_ms)
        self.pulsar_transactions = PulsarTransactions(
            self.transactions,
            self._allocate_producer_id,
            limits,
            cluster.ownership,
            self.participant,
        )
        self.added_partitions = AddedPartitions(cluster, self.subscriptions, self.branches)
        self.node_requests = NodeRequestHandler(
            self.transactions,
            self.participant,
            self.pulsar_transactions.answer_name,
            self.added_partitions.handle,
            self._describe_producers,
        )

    @cached_property
    def node_producers(self) -> NodeProducers:
        """Return what requests the producers of other nodes' partitions: few servers need it."""
        from trilogue.broker.producers.described import NodeProducers

        return NodeProducers(self.cluster, self.branches)

    def _describe_producers(self, request: DescribeProducers) -> Promise[NodeReply]:
        return self.node_producers.handle(request)

    def _make_groups(
        self,
        settings: BrokerSettings,
        timers: Timers,
        new_member_suffix: Callable[[], str],
        decode_subscription: DecodeSubscription,
        assignment_codec: AssignmentCodec,
    ) -> None:
        offsets = self.committed_offsets
        positions = SharePositions(self.cluster.has_partition, self._bounds)
        self.groups = GroupRegistry(
            settings.groups,
            timers,
            new_member_suffix,
            now_ms=self._now_ms,
            decode_subscription=decode_subscription,
            has_positions=lambda name: bool(
                offsets.positions(Protocol.KAFKA, name) or positions.of_group(name)
            ),
        )
        self.consumer_groups = ConsumerGroupRegistry(
            settings.consumer_groups,
            self.groups,
            self.cluster,
            assignment_codec=assignment_codec,
            get_override=self.group_values.number,
        )
        self.share_groups = ShareGroupRegistry(
            settings.share_groups, self.groups, self.consumer_groups.context, self.group_values
        )
        self.streams_groups = StreamsGroupRegistry(
            settings.streams_groups, self.groups, self.consumer_groups.context, self.group_values
        )
        self.share_partitions = SharePartitions(
            positions, timers, self._now_ms, self.share_groups.limits
        )
        self.group_admin = GroupAdmin(
            self.groups, offsets, self._remove, self.share_partitions.remove
        )
        self.group_expiry = GroupExpiry(self.groups, offsets, self.cluster, self._remove)

    def _make_state_topics(
        self, load_records: Callable[[], InternalRecords] | None
    ) -> StateTopics | None:
        """Return the writer of internal topics; None without a codec of their records."""
        if load_records is None:
            return None
        return StateTopics(
            self.cluster,
            self._now_ms,
            load_records,
            offsets=self.committed_offsets,
            groups=self.groups,
            group_context=self.consumer_groups.context,
            share_positions=self.share_partitions.positions,
            transactions=self.transactions.table,
        )

    def _limit_producers(self) -> None:
        expiration_ms = int(self.values.value("producer.id.expiration.ms") or 0)
        self.producers.limits = replace(self.producers.limits, expiration_ms=expiration_ms)

    def attach(self, logs: PartitionLogs, journal: FactJournal) -> None:
        """Begin to serve, from a log that has recovered."""
        self.cluster.attach(logs)
        self.committed_offsets.attach(journal)
        self.subscriptions.attach(journal)
        self.share_partitions.positions.attach(journal)
        self._restore_members(journal)
        self.pulsar_transactions.attach()
        self.participant.attach(journal)
        self.transactions.attach(journal)
        self.producers.deduplication.retain_only(self._deduplicates)
        self.cluster.listeners.append(self._policies_changed)
        if self.state_topics is not None:
            self.state_topics.attach(journal)

    def adopt_slots(self, slots: Container[int], rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Serve slots that `ownership.adopt` has added, while it serves others; CorruptLog.

        `rows` are their snapshot rows. Their former owner has brought everything else
        to segments, which the log must have by now.
        """
        opened = self.cluster.follow_owners(slots)
        self._load_rows(rows)
        self.subscriptions.adopt(opened)
        self.share_partitions.positions.adopt(set(opened))
        keys = [key for key, _ in rows]
        members = dict.fromkeys(decode_member_key(key)[0] for key in keys if key[:1] == MEMBER_KEY)
        self._restore_groups(members)
        names = [key[1:].decode() for key in keys if key[:1] == GROUP_KEY]
        self.groups.records.note_empty(names, self._occupied_groups())
        ids = (key[1:].decode() for key in keys if key[:1] == TRANSACTION_KEY)
        found = [each for each in map(self.transactions.table.find_by_id, ids) if each is not None]
        self.pulsar_transactions.adopt(found)
        self.transactions.resume(found)
        self.producers.deduplication.finish_loading(opened)
        self.producers.deduplication.retain_only(self._deduplicates)
        if self.state_topics is not None:
            self.state_topics.adopt_partitions()

    def release_slots(self, slots: Collection[int]) -> None:
        """Serve slots no more; their clients are refused. `forget_slots` must follow.

        Their state stays as it is, for the next flush cut. No transaction of their ids may be
        ending.
        """
        self.cluster.ownership.release(slots)
        closed = self.cluster.release_slots(slots)
        gives_name, _ = self._givers(slots)
        self.subscriptions.close(closed)
        self.share_partitions.close(set(closed))
        self.registrations.drop(closed)
        self.participant.forget_confirmed()
        self.pulsar_transactions.release(gives_name)
        self.groups.release(gives_name)

    def forget_slots(self, slots: Collection[int]) -> Iterator[None]:
        """Forget released slots, in steps: another node owns them, and meta has their state."""
        self.cluster.ownership.note_given(slots)
        gives_name, gives_partition = self._givers(slots)
        for count, partition_id in enumerate(self.cluster.end_release(), 1):
            self.cluster.drop_log(partition_id)
            self.producers.release(partition_id)
            self.writers.drop(partition_id, NotReady("another node owns the partition now"))
            if count % PARTITIONS_PER_STEP == 0:
                yield
        self.committed_offsets.release(gives_name, gives_partition)
        yield
        self.subscriptions.release(gives_partition)
        self.share_partitions.positions.release(gives_partition)
        yield
        self.groups.records.release(gives_name)
        self.groups.membership.release(gives_name)
        yield
        self.participant.release(gives_name, gives_partition)
        self.transactions.table.release(gives_name)
        self.batch_commits.release(gives_name)
        if self.state_topics is not None:
            self.state_topics.forget_written()
        for each in self.transactions.table:
            self.transactions.abort_divided(each)

    def _givers(
        self, slots: Collection[int]
    ) -> tuple[Callable[[str], bool], Callable[[int], bool]]:
        """Return whether these slots have a name, and whether they have a partition."""
        ownership, given = self.cluster.ownership, frozenset(slots)
        slot_of, partition_slot = ownership.slot_of, ownership.partition_slot
        return lambda name: slot_of(name) in given, lambda each: partition_slot(each) in given

    def holding_ends(self, slots: Collection[int]) -> AbstractContextManager[None]:
        """Begin no end of a transaction that slots coordinate meanwhile."""
        return self.transactions.holding_ends(self._givers(slots)[0])

    def is_ending_in(self, slots: Collection[int]) -> bool:
        """Whether a transaction that slots coordinate is being ended."""
        return self.transactions.table.is_ending(self._givers(slots)[0])

    def _restore_members(self, journal: FactJournal) -> None:
        """Let groups go on with their members, whose sessions begin now."""
        membership = self.groups.membership
        membership.attach(journal)
        self._restore_groups(membership)
        self.groups.records.attach(journal, self._occupied_groups())

    def _occupied_groups(self) -> set[str]:
        return {group.name for group in self.groups if not group.is_empty}

    def _restore_groups(self, names: Iterable[str]) -> None:
        groups, membership = self.groups, self.groups.membership
        for name in names:
            rows = membership.rows(name)
            row = rows.get(GROUP, b"")
            is_share, is_streams = is_share_group(row), is_streams_group(row)
            # or a crash took a part of the change
            is_whole = GROUP in rows and (is_share or is_streams or len(rows) > 1)
            if not is_whole or len(groups) >= groups.settings.groups_max:
                membership.forget(name)
            elif is_share:
                self.share_groups.restore(name, rows)
            elif is_streams:
                self.streams_groups.restore(name, rows)
            elif is_consumer_group(row):
                self.consumer_groups.restore(name, rows)
            else:
                groups.restore_classic(name, rows)

    def _map_setting_stores(self) -> Mapping[str, ApplySetting]:
        """Return who applies a setting, by the beginning of its key."""
        return {
            BROKER_PREFIX: self.values.apply_setting,
            GROUP_PREFIX: self.group_values.apply_setting,
            NAMESPACE_KEY: self.namespaces.apply_setting,
            TENANT_KEY: self.namespaces.apply_setting,
            default_policies.KEY: self.namespaces.apply_default,
            acls.PREFIX: self.acls.apply_setting,
            non_persistent_topics.KEY: self.non_persistent.apply_setting,
            delegation_tokens.PREFIX: self.delegation_tokens.apply_setting,
            **dict.fromkeys(RULE_KEYS, self.rules.apply_setting),
            quotas.PREFIX: self.quotas.apply_setting,
            **dict.fromkeys(topic_schemas.KEYS, self.schemas.apply_setting),
            subjects.ID_KEY: self.subjects.apply_setting,
            subjects.CONFIG_KEY: self.subjects.apply_setting,
            users.PREFIX: self.users.apply_setting,
        }

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that another node wrote in meta; None: it was deleted.

        Settings that only their writer reads (epochs of partitions, marks of the start) stay in
        meta.
        """
        for prefix, apply_to_store in self._setting_stores.items():
            if key.startswith(prefix):
                apply_to_store(key, text)

    # -- requests of gateways

    def commit(
        self,
        protocol: Protocol,
        name: str,
        moves: Sequence[CursorMove],
        *,
        at_ms: int | None = None,
        retention_ms: int = DEFAULT_RETENTION,
    ) -> Promise[None]:
        """Move a reader's positions; the promise is resolved when they are durable and visible.

        Membership is checked by `groups.check_commit`, which the caller calls first. `at_ms` is the
        time of the commit, now by default; `retention_ms` is how long the positions are kept.
        """
        at_ms = self._now_ms() if at_ms is None else at_ms
        if protocol is Protocol.KAFKA and self.cluster.ownership.has_left(name):
            raise NotCoordinator(f"another node coordinates {name}")
        return self.committed_offsets.commit(
            protocol, name, moves, at_ms, retention_ms=retention_ms
        )

    def init_producer_id(self) -> ProducerIdentity:
        """Return a producer id that was never used; raises ProducerIdsExhausted."""
        return ProducerIdentity(self._allocate_producer_id(), 0)

    def _allocate_producer_id(self) -> int:
        try:
            return self._allocate("producer")
        except NoIdsLeft as error:
            raise ProducerIdsExhausted("the next producer ids are not at hand yet") from error

    def pending_positions(self, group: str) -> set[int]:
        """Return the partitions whose positions of a group open transactions may still move."""
        pending = self.transactions.table.pending_positions(group)
        return pending | self.participant.pending_offsets.partition_ids(group)

    def _commit_in_transaction(self, group: str, moves: Sequence[CursorMove]) -> None:
        self.commit(Protocol.KAFKA, group, moves)

    def _commit_acks(self, acks: Sequence[DeferredAck]) -> None:
        for ack in acks:
            cursor = self.subscriptions.find_cursor(ack.key.partition_id, ack.key.name)
            if cursor is not None and cursor.created_ms == ack.created_ms:
                self.subscriptions.ack_when_durable(cursor, ack.until, ack.ranges)

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return what changed since the previous call and is durable, for meta.

        Rows of slots that were given away are another node's to write.
        """
        rows = self._changed_rows()
        ownership = self.cluster.ownership
        if not ownership.has_given:
            return rows
        return [each for each in rows if not ownership.is_given_row(each.key)]

    def _changed_rows(self) -> list[SnapshotRow]:
        return [
            *self.committed_offsets.snapshot(),
            *self.groups.records.snapshot(),
            *self.groups.membership.snapshot(),
            *self.transactions.table.snapshot(),
            *self.batch_commits.snapshot(),
            *self.participant.snapshot(),
            *self.subscriptions.snapshot(),
            *self.share_partitions.positions.snapshot(),
            *self.producers.snapshot(self._now_ms(), self.cluster.durable_end),
            *self.producers.deduplication.snapshot(self._now_ms(), self.cluster.durable_end),
        ]

    def restore_snapshot(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore the state of the last flush cut, of what this node owns; CorruptLog."""
        owns = self.cluster.ownership.owns_snapshot
        self._load_rows((key, value) for key, value in rows if owns(key))
        self.producers.deduplication.finish_loading()

    def _load_rows(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        deduplication, exists = self.producers.deduplication, self.cluster.has_partition
        loaders: dict[bytes, Callable[[bytes, bytes], None]] = {
            CURSOR_KEY: lambda _, value: self.committed_offsets.load(value),
            GROUP_KEY: lambda _, value: self.groups.records.load(value),
            MEMBER_KEY: self.groups.membership.load,
            TRANSACTION_KEY: lambda _, value: self.transactions.table.load(value),
            BATCH_KEY: lambda _, value: self.batch_commits.load(value),
            PENDING_KEY: self.participant.pending_offsets.load,
            PENDING_ACKS_KEY: lambda _, value: self.participant.acks.load(value),
            PRODUCER_KEY: lambda _, value: self._load_mark(decode_mark(value)),
            SUBSCRIPTION_KEY: lambda _, value: self.subscriptions.load(value),
            SHARE_KEY: lambda _, value: self.share_partitions.positions.load(value),
            SEQUENCE_KEY: lambda key, value: deduplication.load(key, value, exists),
        }
        for key, value in rows:
            load = loaders.get(key[:1])
            if load is None:
                raise CorruptLog(f"a snapshot of unknown kind {key[:1]!r}")
            load(key, value)

    def _load_mark(self, mark: ProducerMark) -> None:
        if self.cluster.has_partition(mark.partition_id):
            self.producers.load(mark)
        else:
            self.producers.disown(mark)

    def _replay_mark(self, mark: ProducerMark) -> None:
        if self.cluster.has_partition(mark.partition_id):
            self.producers.replay(mark)

    def apply_fact(self, kind: int, payload: bytes) -> None:
        """Apply a fact of a replayed frame; CorruptLog."""
        if kind in {FactKind.CURSOR_MOVE, FactKind.CURSORS_REMOVED}:
            self.committed_offsets.replay(kind, payload)
        elif kind in GROUP_KINDS:
            self.groups.records.replay(kind, payload)
        elif kind == FactKind.GROUP_MEMBERS:
            self.groups.membership.replay(payload)
        elif kind in TRANSACTION_KINDS:
            self.transactions.table.replay(kind, payload)
        elif kind in PENDING_KINDS:
            self.participant.replay(kind, payload)
        elif kind == FactKind.BATCH_COMMITTED:
            self.batch_commits.replay(payload)
        elif kind == FactKind.PRODUCER_MARK:
            self._replay_mark(decode_mark(payload))
        elif kind in SUBSCRIPTION_KINDS:
            self.subscriptions.replay(kind, payload)
        elif kind in SHARE_KINDS:
            self.share_partitions.positions.replay(kind, payload)
        else:
            raise CorruptLog(f"a fact of unknown kind {kind}")

    def restore_entry(self, partition_id: int, header: EntryHeader) -> None:
        """Restore the producer state that the header of a replayed entry implies."""
        if header.producer_id >= 0 and self.cluster.has_partition(partition_id):
            self.producers.partition(partition_id).restore(header, self._now_ms())

    def restore_foreign(self, partition_id: int, header: EntryHeader, entry: memoryview) -> None:
        """Restore the producer state that a replayed entry of another format implies."""
        if header.format is not Format.PULSAR or not header.record_count:
            return
        if self.cluster.has_partition(partition_id):
            stamp, end = read_stamp(entry), header.last_offset + 1
            self.producers.deduplication.restore(partition_id, stamp, end, self._now_ms())

    def _remove(self, name: str, partition_ids: Collection[int] | None) -> Promise[None]:
        return self.committed_offsets.remove(Protocol.KAFKA, name, partition_ids)

    def _deduplicates(self, partition_id: int) -> bool:
        partition = self.cluster.find_partition(partition_id)
        return partition is not None and partition.policies.deduplication

    def _policies_changed(self, event: TopicEvent, topic: Topic) -> None:
        """Drop the sequence ids of a topic whose policy is no longer to deduplicate."""
        if event is TopicEvent.DELETED:
            self.schemas.forget(topic)
        if event is TopicEvent.ALTERED:
            for partition in topic.partitions:
                if not partition.policies.deduplication:
                    self.producers.deduplication.drop(partition.partition_id)

    def _bounds(self, partition_id: int) -> Bounds | None:
        partition = self.cluster.find_partition(partition_id)
        return None if partition is None else partition.log

    def _policies(self, name: TopicName, settings: Mapping[str, str]) -> Policies:
        return self.namespaces.topic_policies(name, settings)

    def _forget(self, partition_ids: Sequence[int]) -> Iterator[None]:
        """Forget what is known of deleted partitions, in steps."""
        self.committed_offsets.drop(partition_ids)
        self.subscriptions.drop(partition_ids)
        self.share_partitions.drop(partition_ids)
        self.registrations.drop(partition_ids)
        for count, partition_id in enumerate(partition_ids, 1):
            self.producers.drop(partition_id)
            self.writers.drop(partition_id, UnknownTopic("the topic was deleted"))
            if count % PARTITIONS_PER_STEP == 0:
                yield
