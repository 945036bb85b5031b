"""Topics by name and by id: how they are created, altered and deleted.

All nodes know all topics; each has the logs of the partitions that it owns (ownership.py). Creating
and deleting a topic are decided here and returned as a `MetadataChange`. A name is taken from the
moment of the decision, so that a topic that two clients request at once is created once
(`pending_creation` lets the second wait for the first). `follow` applies what another node has
changed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from trilogue.broker.errors import (
    InvalidAssignment,
    InvalidPartitions,
    InvalidRequest,
    NotOwner,
    NotReady,
    PolicyViolation,
    ReplicationFactor,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import INTERNAL_TOPICS, NamespaceName, TopicName
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.promise import Promise
from trilogue.broker.settings.topic_settings import (
    NODE_DEFAULTS,
    TopicSettings,
    check_settings,
    resolve_settings,
)
from trilogue.broker.topics.creation import check_assignment, check_in_sync, check_nodes
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.placement import (
    PARTITIONS_PER_STEP,
    PartitionLogs,
    PartitionPlacement,
)
from trilogue.broker.topics.policies import DEFAULT_POLICIES, Policies, terminated_partitions
from trilogue.broker.topics.topic import INTERNAL_PARTITIONS, Topic
from trilogue.meta.operations import (
    DeleteTopic,
    Op,
    PutTopic,
    TopicAbsent,
    TopicIs,
    TopicKey,
    TopicRow,
)
from trilogue.meta.state import MetaState

log = logging.getLogger(__name__)

DEFAULT = -1  # the broker's default, for a number of partitions and of copies


class ClusterLimits(msgspec.Struct, frozen=True):
    """Numbers of partitions: the default, and the most of one topic and of all topics.

    `topic` are the settings of a topic without overrides.
    """

    default_partitions: int = 1
    topic_partitions_max: int = 10_000
    partitions_max: int = 100_000
    topic: TopicSettings = NODE_DEFAULTS


class NewTopic(msgspec.Struct, frozen=True):
    """A topic that can be created: everything is checked except that it can be recorded."""

    name: TopicName
    partition_count: int
    settings: dict[str, str]
    partitioned: bool = True


class TopicEvent(Enum):
    """What has happened to a topic when its listeners are called."""

    CREATED = "created"
    ALTERED = "altered"  # settings, policies, more partitions, the end of some
    DELETED = "deleted"


TopicListener = Callable[[TopicEvent, Topic], None]
RemovalSteps = Callable[[Topic], Iterator[None]]  # while positions of its partitions are known
DeletionOps = Callable[[Topic], Sequence[Op]]  # rows of meta that are deleted with a topic


class Cluster:
    """All topics. Partition ids are known from the start, topics once there is a log."""

    def __init__(
        self,
        state: MetaState,
        *,
        allocate: Callable[[str], int],
        new_topic_id: Callable[[], bytes],
        now_ms: Callable[[], int],
        producers: Producers,
        forget: Callable[[Sequence[int]], Iterator[None]],
        limits: ClusterLimits,
        policies: Callable[[TopicName, Mapping[str, str]], Policies] | None = None,
    ) -> None:
        self.deletion_ops: list[DeletionOps] = []
        self.removal_steps: list[RemovalSteps] = []
        self.listeners: list[TopicListener] = []  # called after the change, in order
        self._policies = policies or (lambda _name, _settings: DEFAULT_POLICIES)
        self.cluster_id = state.cluster_id
        self.node_id = state.node_id
        self.node_epoch = state.node_epoch
        self.ownership = Ownership(state)
        self._meta = state
        self.limits = limits
        self._allocate = allocate
        self.new_topic_id = new_topic_id  # returns 16 random bytes
        self._now_ms = now_ms
        self._forget = forget
        self._placement = PartitionPlacement(state, self.ownership, producers)
        self._rows = list(state.topics.values())
        self._partitions: dict[int, Partition | None] = {
            each: None for row in self._rows for each in row.partitions
        }
        self._topics: dict[TopicName, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        # Called with the ids of partitions: when they are closed, and when another node has them.
        self.close_listeners: list[Callable[[Sequence[int]], object]] = []
        self.release_listeners: list[Callable[[Sequence[int]], object]] = []
        self._creating: dict[TopicName, MetadataChange[Topic]] = {}
        self._pending_partitions = 0  # partitions of topics that are being made
        self._deleting: dict[TopicName, MetadataChange[None]] = {}
        self._altering: dict[TopicName, MetadataChange[Topic]] = {}
        self.generation = 0  # moves when a topic is replaced by one with other settings
        self._broker_overrides: Mapping[str, str] = {}  # of all topics
        self.defaults = limits.topic  # the settings of a topic without overrides
        self._topic_counts = Counter(NamespaceName(row.tenant, row.namespace) for row in self._rows)

    def attach(self, logs: PartitionLogs) -> None:
        """Attach the recovered log; from here on there are topics."""
        self._placement.logs = logs
        for row in self._rows:
            parts: list[Partition] = []
            settings = self._resolve(row.settings)
            for _ in self._placement.open(parts, row.partitions, settings, logs.partition):
                pass
            self._add(row, parts)
        self._rows.clear()

    # -- queries

    def __iter__(self) -> Iterator[Topic]:
        """Iterate over all topics, in no order; not to be kept while topics come and go."""
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def find_topic(self, name: TopicName) -> Topic | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def topic(self, name: TopicName) -> Topic:
        """Return a topic; UnknownTopic."""
        found = self._topics.get(name)
        if found is None:
            raise UnknownTopic("there is no such topic")
        return found

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic with this id; UnknownTopicId."""
        found = self._by_id.get(topic_id)
        if found is None:
            raise UnknownTopicId("no topic has this id")
        return found

    def topic_of(self, partition_id: int) -> Topic | None:
        """Return the topic of a partition, also of another node's, or None."""
        row = self._meta.partitions.get(partition_id)
        return None if row is None else self._by_id.get(row.topic_id)

    def has_partition(self, partition_id: int) -> bool:
        """Whether a partition exists, in some topic."""
        return partition_id in self._partitions

    def find_partition(self, partition_id: int) -> Partition | None:
        """Return a partition that this node owns, or None."""
        found = self._partitions.get(partition_id)
        return None if found is None or found.is_remote else found

    def require_partition(self, partition_id: int) -> Partition:
        """Return a partition that this node owns; raises NotReady or NotOwner."""
        if partition_id not in self._partitions:
            raise NotReady("the topic is not known here, or not yet")
        found = self.find_partition(partition_id)
        if found is None:
            raise NotOwner("another node serves the partition")
        return found

    def is_compacted(self, partition_id: int) -> bool:
        """Whether the topic of a partition, also of another node's, is compacted."""
        found = self._partitions.get(partition_id)
        return found is not None and found.settings.compacts

    def durable_end(self, partition_id: int) -> int:
        """Return the end of what is durable in a partition; 0 where there is no log (yet)."""
        partition = self._placement.leaving.get(partition_id) or self._partitions.get(partition_id)
        return 0 if partition is None or partition.is_remote else partition.log.high_watermark

    @property
    def metadata_version(self) -> int:
        """The number of changes of meta, over the life of the data."""
        return self._meta.version

    @property
    def partition_count(self) -> int:
        """Partitions of all topics."""
        return len(self._partitions)

    def topics_in(self, namespace: NamespaceName) -> list[Topic]:
        """Return the topics of a namespace, in the order of their names."""
        tenant, home = namespace
        found = [
            each
            for each in self._topics.values()
            if each.name.namespace == home and each.name.tenant == tenant
        ]
        return sorted(found, key=lambda topic: topic.name.name)

    def topic_count(self, namespace: NamespaceName) -> int:
        """Return the number of topics of a namespace."""
        return self._topic_counts[namespace]

    def namespaces_with_topics(self) -> list[NamespaceName]:
        """Return the namespaces that have topics."""
        return [name for name, count in self._topic_counts.items() if count]

    def refresh_policies(self, namespace: NamespaceName) -> None:
        """Apply the policies of a namespace to its topics."""
        for topic in self.topics_in(namespace) if self._topic_counts[namespace] else ():
            self._apply_policies(topic)
            self._notify(TopicEvent.ALTERED, topic)

    def apply_topic_defaults(self, broker_overrides: Mapping[str, str]) -> None:
        """Apply broker-wide values (broker_values.py) to topics without overrides."""
        self._broker_overrides = broker_overrides
        self.defaults = resolve_settings({}, self.limits.topic, broker_overrides)
        for topic in self._topics.values():
            settings = self._resolve(topic.settings)
            for partition in topic.partitions:
                partition.apply_settings(settings)
        self.generation += 1

    # -- creating

    def pending_creation(self, name: TopicName) -> Promise[Topic] | None:
        """Return the promise of a topic that is being created, or None."""
        found = self._creating.get(name)
        return None if found is None else found.done

    def check_create(
        self,
        name: TopicName,
        *,
        partition_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        assignment: Mapping[int, Sequence[int]] | None = None,
        settings: Mapping[str, str | None] | None = None,
        partitioned: bool = True,
    ) -> NewTopic:
        """Return the topic as it would be created, or refuse it with a BrokerError."""
        if name in self._topics or name in self._creating:
            raise TopicExists("the name is taken")
        if name in INTERNAL_TOPICS:  # whatever its client wishes
            count = max(INTERNAL_PARTITIONS, self.ownership.slot_count)
            partition_count, assignment, partitioned = count, None, True
            settings = {"cleanup.policy": "compact"}
        if assignment:
            if (partition_count, replication_factor) != (DEFAULT, DEFAULT):
                raise InvalidRequest("an assignment comes without numbers of partitions and copies")
            check_assignment(assignment, self.node_id)
            partition_count = len(assignment)
        elif replication_factor not in {DEFAULT, 1}:
            raise ReplicationFactor(f"{replication_factor} copies are not possible on 1 node")
        if partition_count == DEFAULT:
            partition_count = self.limits.default_partitions
        if not partitioned:
            partition_count = 1
        self._check_count(partition_count)
        self._check_namespace_room(name, partition_count)
        checked = check_settings(settings or {})
        check_in_sync(checked, {}, self.ownership.copies_max)
        return NewTopic(name, partition_count, checked, partitioned)

    def _check_namespace_room(self, name: TopicName, more: int) -> None:
        """Refuse more partitions than the policy of the namespace allows: PolicyViolation."""
        most = self._policies(name, {}).max_topics
        if not most:
            return
        namespace = name.namespace_name
        count = sum(len(each.row.partitions) for each in self.topics_in(namespace))
        count += sum(
            change.partition_ids
            for each, change in self._creating.items()
            if each.namespace_name == namespace
        )
        if count + more > most:
            raise PolicyViolation("Exceed maximum number of topics in namespace.")

    def plan_create(self, topic: NewTopic) -> MetadataChange[Topic]:
        """Return the change that creates a topic which `check_create` has accepted."""
        name = topic.name
        assert name not in self._topics
        assert name not in self._creating
        made: list[TopicRow] = []
        parts: list[Partition] = []

        def ops() -> list[Op]:
            made.append(self._row(topic))
            return [PutTopic(made[0])]

        change = MetadataChange(
            ops,
            (TopicAbsent(name.tenant, name.namespace, name.name),),
            lambda: self._create(made[0], parts),
            on_conflict=TopicExists("the name is taken"),
            partition_ids=topic.partition_count,
            prepare=lambda: self._open_new(parts, made[0]),
        )
        self._creating[name] = change
        self._pending_partitions += topic.partition_count
        change.done.then(lambda _: self._created(topic))
        return change

    # -- deleting

    def plan_delete(self, name: TopicName) -> MetadataChange[None]:
        """Return the change that deletes a topic, which is served until then."""
        topic = self.topic(name)
        if name in self._deleting:
            raise UnknownTopic("the topic is being deleted")
        row = topic.row
        change: MetadataChange[None] = MetadataChange(
            lambda: [
                DeleteTopic(name.tenant, name.namespace, name.name),
                *(op for list_ops in self.deletion_ops for op in list_ops(topic)),
            ],
            (TopicIs(name.tenant, name.namespace, name.name, row.topic_id, row.epoch),),
            lambda: self._delete(topic),
            on_conflict=UnknownTopic("the topic was changed or deleted meanwhile"),
            clean_up=lambda: self._clean_up(topic),
        )
        self._deleting[name] = change
        change.done.then(lambda _: _end_change(self._deleting, name, change))
        return change

    # -- altering

    def pending_change(self, name: TopicName) -> Promise[Topic] | None:
        """Return the promise of a change of this topic that is being recorded, or None."""
        found = self._altering.get(name)
        return None if found is None else found.done

    def plan_alter(self, name: TopicName, settings: dict[str, str]) -> MetadataChange[Topic]:
        """Return the change that replaces a topic's overrides; one change of a topic at a time.

        The overrides hold for every request after the change is applied.
        """
        topic = self.topic(name)
        if name in self._deleting:
            raise UnknownTopic("the topic is being deleted")
        if name in self._altering:
            raise InvalidRequest("the topic is being changed")
        check_in_sync(settings, topic.row.settings, self.ownership.copies_max)
        row = replace(topic.row, settings=settings, epoch=topic.row.epoch + 1)
        change = MetadataChange(
            lambda: [PutTopic(row)],
            (TopicIs(name.tenant, name.namespace, name.name, row.topic_id, topic.row.epoch),),
            lambda: self._alter(topic, row),
            on_conflict=UnknownTopic("the topic was changed or deleted meanwhile"),
        )
        self._altering[name] = change
        change.done.then(lambda _: _end_change(self._altering, name, change))
        return change

    def check_add_partitions(
        self,
        name: TopicName,
        partition_count: int,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Return how many partitions would be added; InvalidPartitions or InvalidAssignment.

        `assignments` has the nodes of each new partition.
        """
        topic = self.topic(name)
        if name in self._deleting:
            raise UnknownTopic("the topic is being deleted")
        if not topic.partitioned:
            raise InvalidPartitions("a topic without numbered partitions does not grow")
        more = partition_count - len(topic.partitions)
        if more <= 0:
            raise InvalidPartitions(
                f"there are {len(topic.partitions)} partitions, {partition_count} is not more"
            )
        self._check_count(partition_count, more)
        self._check_namespace_room(name, more)
        if assignments is not None and len(assignments) != more:
            raise InvalidAssignment(f"{len(assignments)} assignments for {more} new partitions")
        check_nodes(assignments or (), self.node_id)
        return more

    def plan_add_partitions(self, name: TopicName, partition_count: int) -> MetadataChange[Topic]:
        """Return the change that adds partitions; present ones keep numbers and messages."""
        more = self.check_add_partitions(name, partition_count)
        if name in self._altering:
            raise InvalidRequest("the topic is being changed")
        topic = self.topic(name)
        made: list[TopicRow] = []
        parts: list[Partition] = []

        def ops() -> list[Op]:
            ids = (*topic.row.partitions, *(self._allocate("partition") for _ in range(more)))
            made.append(replace(topic.row, partitions=ids, epoch=topic.row.epoch + 1))
            return [PutTopic(made[0])]

        change = MetadataChange(
            ops,
            (TopicIs(name.tenant, name.namespace, name.name, topic.topic_id, topic.row.epoch),),
            lambda: self._add_partitions(topic, made[0], parts),
            on_conflict=UnknownTopic("the topic was changed or deleted meanwhile"),
            partition_ids=more,
            prepare=lambda: self._open_new(parts, made[0], more),
        )
        self._altering[name] = change
        self._pending_partitions += more
        change.done.then(lambda _: self._partitions_added(name, more))
        return change

    # -- changes of other nodes

    def follow(self, key: TopicKey) -> Iterator[None]:
        """Bring one topic to what meta's state has, in steps: another node has changed its row."""
        row = self._meta.topics.get(key)
        topic = self._topics.get(TopicName(*key))
        if topic is not None and (row is None or row.topic_id != topic.topic_id):
            self._delete(topic)
            yield from self._clean_up(topic)
            topic = None
        if row is None or (topic is not None and topic.row.epoch >= row.epoch):
            return
        parts: list[Partition] = []
        before = 0 if topic is None else len(topic.partitions)
        if before < len(row.partitions):
            yield from self._open_new(parts, row, len(row.partitions) - before)
        if topic is None:
            self._create(row, parts)
        elif parts:
            self._add_partitions(topic, row, parts)
        else:
            self._alter(topic, row)

    # -- slots that come and go

    def release_slots(self, slots: Container[int]) -> list[int]:
        """Close the partitions of slots that this node serves no more; return their ids.

        Their logs stay until `end_release`: what is in them may not be durable yet.
        """
        for listener in self.close_listeners if (closed := self.follow_owners(slots)) else ():
            listener(closed)
        return closed

    def end_release(self) -> list[int]:
        """Return the ids of partitions that another node has now; `drop_log` must follow."""
        released = self._placement.end_release()
        for listener in self.release_listeners:
            listener(released)
        return released

    def drop_log(self, partition_id: int) -> None:
        """Drop the log of a released partition, and call who waits for more in it."""
        self._placement.drop_log(partition_id)

    def follow_owners(self, slots: Container[int]) -> list[int]:
        """Open and close partitions of slots as this node serves them; return the ids of those."""
        changed: list[int] = []
        moved = {key for key, row in self._meta.partitions.items() if row.slot in slots}
        has_none = moved.isdisjoint
        for topic in [each for each in self if not has_none(each.row.partitions)]:
            parts = self._placement.place(topic.partitions)
            pairs = zip(topic.partitions, parts, strict=True)
            came = [new.partition_id for old, new in pairs if new is not old]
            if not came:
                continue
            changed += came
            self._partitions.update((each.partition_id, each) for each in parts)
            grown = Topic(topic.row, topic.name, tuple(parts))
            self._topics[grown.name] = self._by_id[grown.topic_id] = grown
            self._apply_policies(grown)
        self.generation += 1
        return changed

    # -- inside

    def _resolve(self, kept: Mapping[str, str]) -> TopicSettings:
        return (
            resolve_settings(kept, self.limits.topic, self._broker_overrides)
            if kept
            else self.defaults
        )

    def _check_count(self, count: int, more: int | None = None) -> None:
        most = self.limits.topic_partitions_max
        if not 1 <= count <= most:
            raise InvalidPartitions(f"a topic has 1 to {most} partitions, not {count}")
        total = self.partition_count + self._pending_partitions + (count if more is None else more)
        if total > self.limits.partitions_max:
            raise InvalidPartitions(
                f"all topics together have {self.limits.partitions_max} at most"
            )

    def _row(self, topic: NewTopic) -> TopicRow:
        return TopicRow(
            tenant=topic.name.tenant,
            namespace=topic.name.namespace,
            name=topic.name.name,
            topic_id=self._draw_topic_id(topic),
            partitions=tuple(self._allocate("partition") for _ in range(topic.partition_count)),
            partitioned=topic.partitioned,
            settings=topic.settings,
            created_ms=self._now_ms(),
            epoch=0,
        )

    def _draw_topic_id(self, topic: NewTopic) -> bytes:
        """Return a new id; a topic without numbered partitions is of the node that creates it.

        That is the one which the client is connected to: C++ clients do not follow otherwise.
        """
        topic_id = self.new_topic_id()
        is_of_this_node = not topic.partitioned and self.ownership.serves_any
        while is_of_this_node and not self.ownership.owns_new_topic(topic_id):
            topic_id = self.new_topic_id()
        return topic_id

    def _open_new(self, parts: list[Partition], row: TopicRow, more: int = 0) -> Iterator[None]:
        """Append the last `more` partitions of a row, or all, to `parts`, in steps."""
        settings = self._resolve(row.settings)
        return self._placement.open(parts, row.partitions[-more:], settings)

    def _create(self, row: TopicRow, parts: Sequence[Partition]) -> Topic:
        topic = self._add(row, parts)
        self._topic_counts[topic.name.namespace_name] += 1
        self._notify(TopicEvent.CREATED, topic)
        return topic

    def _created(self, topic: NewTopic) -> None:
        del self._creating[topic.name]
        self._pending_partitions -= topic.partition_count

    def _alter(self, topic: Topic, row: TopicRow) -> Topic:
        return self._replace(Topic(row, topic.name, self._present(topic).partitions))

    def _present(self, topic: Topic) -> Topic:
        """Return a topic as it is now: slots may have come or gone since a change was planned."""
        return self._by_id.get(topic.topic_id, topic)

    def _replace(self, topic: Topic) -> Topic:
        settings = self._resolve(topic.settings)
        for partition in topic.partitions:
            partition.apply_settings(settings)
        self._topics[topic.name] = self._by_id[topic.topic_id] = topic
        self.generation += 1
        self._apply_policies(topic)
        self._notify(TopicEvent.ALTERED, topic)
        return topic

    def _add_partitions(self, topic: Topic, row: TopicRow, parts: Sequence[Partition]) -> Topic:
        parts = self._placement.place(parts)
        self._partitions.update((each.partition_id, each) for each in parts)
        before = self._present(topic).partitions
        return self._replace(Topic(row, topic.name, (*before, *parts)))

    def _partitions_added(self, name: TopicName, more: int) -> None:
        del self._altering[name]
        self._pending_partitions -= more

    def _apply_policies(self, topic: Topic) -> None:
        """Set the policies of each partition, and whether it is terminated."""
        policies = self._policies(topic.name, topic.settings)
        over = terminated_partitions(topic.settings)
        for index, partition in enumerate(topic.partitions):
            partition.internal = topic.is_internal
            partition.policies = policies
            partition.terminated = index in over

    def _notify(self, event: TopicEvent, topic: Topic) -> None:
        for listener in self.listeners:
            try:
                listener(event, topic)
            except Exception:  # the change holds; other listeners must be called
                log.exception("topic.listener_failed", extra={"event": event.value})

    def _add(self, row: TopicRow, parts: Sequence[Partition]) -> Topic:
        settings = self._resolve(row.settings)
        name = TopicName(row.tenant, row.namespace, row.name)
        parts = self._placement.place(parts)  # slots may have come or gone since they were made
        topic = Topic(row, name, tuple(parts))
        if parts[0].settings != settings:  # defaults were changed meanwhile
            for partition in parts:
                partition.apply_settings(settings)
        self._partitions.update(zip(row.partitions, topic.partitions, strict=True))
        self._topics[name] = self._by_id[row.topic_id] = topic
        self._apply_policies(topic)
        return topic

    def _delete(self, topic: Topic) -> None:
        topic = self._present(topic)
        del self._topics[topic.name], self._by_id[topic.topic_id]
        self._deleting.pop(topic.name, None)
        for partition in topic.partitions:
            partition.deleted = True
            del self._partitions[partition.partition_id]
        self._topic_counts[topic.name.namespace_name] -= 1

    def _clean_up(self, topic: Topic) -> Iterator[None]:
        """Release what belonged to a deleted topic; another may have its name by now."""
        for list_steps in self.removal_steps:
            yield from list_steps(topic)
        forgetting = self._forget(topic.row.partitions)
        next(forgetting, None)
        self._notify(TopicEvent.DELETED, topic)
        yield from forgetting
        for count, partition_id in enumerate(topic.row.partitions, 1):
            if partition_id not in self._placement.leaving:
                self._placement.drop_log(partition_id)
            if count % PARTITIONS_PER_STEP == 0:
                yield


def _end_change(
    pending: dict[TopicName, Any], name: TopicName, change: MetadataChange[Any]
) -> None:
    if pending.get(name) is change:
        del pending[name]
