"""Topics by name and by id, who owns their partitions, and how topics come and go.

One node owns everything today: its id and its epoch (one more with every start) are the owner and
the owner epoch of all partitions. Making and deleting a topic are decided here and returned as a
`Commit`; a name that is being made is taken from the moment of the decision, so that two clients
who mention a new topic at once make it once (`creating` lets the second wait for the first).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from trilogue.broker.coming import AT_ONCE, PartitionLogs, make_partitions
from trilogue.broker.commit import Commit
from trilogue.broker.errors import (
    InvalidAssignment,
    InvalidPartitions,
    InvalidRequest,
    ReplicationFactor,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from trilogue.broker.names import NamespaceName, TopicName
from trilogue.broker.partition import Partition
from trilogue.broker.placement import check_assignment, check_nodes
from trilogue.broker.policies import BROKER_POLICIES, Policies, terminated_partitions
from trilogue.broker.producers import Producers
from trilogue.broker.promise import Promise
from trilogue.broker.settings import NODE_DEFAULTS, TopicSettings, check_settings, resolve
from trilogue.broker.topic import Topic
from trilogue.meta.port import DeleteTopic, Op, PutTopic, TopicAbsent, TopicIs, TopicRow
from trilogue.meta.state import MetaState

log = logging.getLogger(__name__)

DEFAULT = -1  # "as the broker likes", for a number of partitions and of copies


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """How many partitions: of a topic whose maker does not say, of any topic, of all topics.

    `topic` is what holds for a topic that sets nothing.
    """

    default_partitions: int = 1
    topic_partitions_max: int = 10_000
    partitions_max: int = 100_000
    topic: TopicSettings = NODE_DEFAULTS


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that may be made: everything is checked but that it can be recorded."""

    name: TopicName
    partition_count: int
    settings: dict[str, str]
    partitioned: bool = True


class Event(Enum):
    """What has happened to a topic when its listeners are called."""

    CREATED = "created"
    ALTERED = "altered"  # settings, policies, more partitions, the end of some
    DELETED = "deleted"


Listener = Callable[[Event, Topic], None]
Leaves = Callable[[Topic], Sequence[Op]]  # what else of meta goes with a topic


class Cluster:
    """All topics. Partition ids are known from the first moment, topics once there is a log."""

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
        self.leaves: list[Leaves] = []
        self.listeners: list[Listener] = []  # called when it is true, in order
        self._policies = policies or (lambda _name, _settings: BROKER_POLICIES)
        self.cluster_id = state.cluster_id
        self.node_id = state.node_id
        self.node_epoch = state.node_epoch
        self._meta = state
        self.limits = limits
        self._allocate = allocate
        self.new_id = new_topic_id  # 16 random bytes, never given twice
        self._now_ms = now_ms
        self._producers = producers
        self._forget = forget
        self._logs: PartitionLogs | None = None
        self._rows = list(state.topics.values())
        self._partitions: dict[int, Partition | None] = {
            each: None for row in self._rows for each in row.partitions
        }
        self._topics: dict[TopicName, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._creating: dict[TopicName, Commit[Topic]] = {}
        self._coming = 0  # partitions of topics that are being made
        self._deleting: dict[TopicName, Commit[None]] = {}
        self._altering: dict[TopicName, Commit[Topic]] = {}
        self.generation = 0  # moves when a topic is replaced by one with other settings
        self._said: Mapping[str, str] = {}  # for topics that do not say it
        self.defaults = limits.topic  # what holds for a topic that sets nothing
        self._homes = Counter(NamespaceName(row.tenant, row.namespace) for row in self._rows)

    def attach(self, logs: PartitionLogs) -> None:
        """Take the log, which has recovered; from here on there are topics."""
        self._logs = logs
        for row in self._rows:
            settings, of = self._resolve(row.settings), self._producers.of
            self._add(row, [Partition(logs.partition(n), of(n), settings) for n in row.partitions])
        self._rows.clear()

    # -- what there is

    def __iter__(self) -> Iterator[Topic]:
        """All topics, in no special order; not to be held while topics come and go."""
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: TopicName) -> Topic | None:
        """Return a topic if there is one."""
        return self._topics.get(name)

    def topic(self, name: TopicName) -> Topic:
        """Return a topic, or say that there is none."""
        found = self._topics.get(name)
        if found is None:
            raise UnknownTopic("there is no such topic")
        return found

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic with this id, or say that there is none."""
        found = self._by_id.get(topic_id)
        if found is None:
            raise UnknownTopicId("no topic has this id")
        return found

    def has_partition(self, partition_id: int) -> bool:
        """Whether a partition exists, in some topic."""
        return partition_id in self._partitions

    def find_partition(self, partition_id: int) -> Partition | None:
        """Return a partition if there is one, of some topic."""
        return self._partitions.get(partition_id)

    def durable_end(self, partition_id: int) -> int:
        """Return the end of what is durable in a partition; 0 where there is no log (yet)."""
        partition = self._partitions.get(partition_id)
        return 0 if partition is None else partition.log.high_watermark

    @property
    def decisions(self) -> int:
        """How often meta was committed to, over the life of the data."""
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

    def count_in(self, namespace: NamespaceName) -> int:
        """How many topics a namespace has."""
        return self._homes[namespace]

    def homes(self) -> list[NamespaceName]:
        """Return the namespaces that have topics."""
        return [name for name, count in self._homes.items() if count]

    def refresh(self, namespace: NamespaceName) -> None:
        """Let the topics of a namespace obey what was said for it."""
        for topic in self.topics_in(namespace) if self._homes[namespace] else ():
            self._obey(topic)
            self._tell(Event.ALTERED, topic)

    def obey(self, said: Mapping[str, str]) -> None:
        """Let topics that do not say it themselves obey what was said for all (kafka_values.py)."""
        self._said = said
        self.defaults = resolve({}, self.limits.topic, said)
        for topic in self._topics.values():
            settings = self._resolve(topic.settings)
            for partition in topic.partitions:
                partition.obey(settings)
        self.generation += 1

    # -- topics that come

    def creating(self, name: TopicName) -> Promise[Topic] | None:
        """Return the promise of a topic that is being made right now."""
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
        """Return the topic as it would be made, or say why it cannot be."""
        if name in self._topics or name in self._creating:
            raise TopicExists("the name is taken")
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
        return NewTopic(name, partition_count, check_settings(settings or {}), partitioned)

    def plan_create(self, topic: NewTopic) -> Commit[Topic]:
        """Decide to make a topic that `check_create` has just found possible."""
        name = topic.name
        assert name not in self._topics
        assert name not in self._creating
        made: list[TopicRow] = []
        parts: list[Partition] = []

        def ops() -> list[Op]:
            made.append(self._row(topic))
            return [PutTopic(made[0])]

        commit = Commit(
            ops,
            (TopicAbsent(name.tenant, name.namespace, name.name),),
            lambda: self._create(made[0], parts),
            outrun=TopicExists("the name is taken"),
            partition_ids=topic.partition_count,
            prepare=lambda: self._make(parts, made[0]),
        )
        self._creating[name] = commit
        self._coming += topic.partition_count
        commit.done.then(lambda _: self._created(topic))
        return commit

    # -- topics that go

    def plan_delete(self, name: TopicName) -> Commit[None]:
        """Decide to delete a topic. It is served until the commit is applied."""
        topic = self.topic(name)
        if name in self._deleting:
            raise UnknownTopic("the topic is being deleted")
        row = topic.row
        commit: Commit[None] = Commit(
            lambda: [
                DeleteTopic(name.tenant, name.namespace, name.name),
                *(op for leaves in self.leaves for op in leaves(topic)),
            ],
            (TopicIs(name.tenant, name.namespace, name.name, row.topic_id, row.epoch),),
            lambda: self._delete(topic),
            outrun=UnknownTopic("the topic was changed or deleted meanwhile"),
            tidy=lambda: self._tidy(topic),
        )
        self._deleting[name] = commit
        commit.done.then(lambda _: _over(self._deleting, name, commit))
        return commit

    # -- topics that change

    def altering(self, name: TopicName) -> Promise[Topic] | None:
        """Return the promise of a change of this topic that is being recorded right now."""
        found = self._altering.get(name)
        return None if found is None else found.done

    def plan_alter(self, name: TopicName, settings: dict[str, str]) -> Commit[Topic]:
        """Decide what settings a topic keeps; one change of a topic at a time (`altering`).

        They hold for everything that is asked of the topic after the commit is applied.
        """
        topic = self.topic(name)
        if name in self._deleting:
            raise UnknownTopic("the topic is being deleted")
        if name in self._altering:
            raise InvalidRequest("the topic is being changed")
        row = replace(topic.row, settings=settings, epoch=topic.row.epoch + 1)
        commit = Commit(
            lambda: [PutTopic(row)],
            (TopicIs(name.tenant, name.namespace, name.name, row.topic_id, topic.row.epoch),),
            lambda: self._alter(topic, row),
            outrun=UnknownTopic("the topic was changed or deleted meanwhile"),
        )
        self._altering[name] = commit
        commit.done.then(lambda _: _over(self._altering, name, commit))
        return commit

    def check_grow(
        self,
        name: TopicName,
        partition_count: int,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Return how many partitions more that is, or say why a topic cannot have so many.

        `assignments` says for each new partition which nodes shall have it.
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
        if assignments is not None and len(assignments) != more:
            raise InvalidAssignment(f"{len(assignments)} assignments for {more} new partitions")
        check_nodes(assignments or (), self.node_id)
        return more

    def plan_grow(self, name: TopicName, partition_count: int) -> Commit[Topic]:
        """Decide to give a topic more partitions; those it has keep their numbers and messages."""
        more = self.check_grow(name, partition_count)
        if name in self._altering:
            raise InvalidRequest("the topic is being changed")
        topic = self.topic(name)
        made: list[TopicRow] = []
        parts: list[Partition] = []

        def ops() -> list[Op]:
            ids = (*topic.row.partitions, *(self._allocate("partition") for _ in range(more)))
            made.append(replace(topic.row, partitions=ids, epoch=topic.row.epoch + 1))
            return [PutTopic(made[0])]

        commit = Commit(
            ops,
            (TopicIs(name.tenant, name.namespace, name.name, topic.topic_id, topic.row.epoch),),
            lambda: self._grow(topic, made[0], parts),
            outrun=UnknownTopic("the topic was changed or deleted meanwhile"),
            partition_ids=more,
            prepare=lambda: self._make(parts, made[0], more),
        )
        self._altering[name] = commit
        self._coming += more
        commit.done.then(lambda _: self._grown(name, more))
        return commit

    # -- inside

    def _resolve(self, kept: Mapping[str, str]) -> TopicSettings:
        return resolve(kept, self.limits.topic, self._said) if kept else self.defaults

    def _check_count(self, count: int, more: int | None = None) -> None:
        most = self.limits.topic_partitions_max
        if not 1 <= count <= most:
            raise InvalidPartitions(f"a topic has 1 to {most} partitions, not {count}")
        total = self.partition_count + self._coming + (count if more is None else more)
        if total > self.limits.partitions_max:
            raise InvalidPartitions(
                f"all topics together have {self.limits.partitions_max} at most"
            )

    def _row(self, topic: NewTopic) -> TopicRow:
        return TopicRow(
            tenant=topic.name.tenant,
            namespace=topic.name.namespace,
            name=topic.name.name,
            topic_id=self.new_id(),
            partitions=tuple(self._allocate("partition") for _ in range(topic.partition_count)),
            partitioned=topic.partitioned,
            settings=topic.settings,
            created_ms=self._now_ms(),
            epoch=0,
        )

    def _make(self, parts: list[Partition], row: TopicRow, more: int = 0) -> Iterator[None]:
        assert self._logs is not None, "no log yet"
        return make_partitions(
            parts,
            row.partitions[-more:],
            logs=self._logs,
            producers=self._producers,
            owner_epoch=self.node_epoch,
            settings=self._resolve(row.settings),
        )

    def _create(self, row: TopicRow, parts: Sequence[Partition]) -> Topic:
        topic = self._add(row, parts)
        self._homes[topic.name.home] += 1
        self._tell(Event.CREATED, topic)
        return topic

    def _created(self, topic: NewTopic) -> None:
        del self._creating[topic.name]
        self._coming -= topic.partition_count

    def _alter(self, topic: Topic, row: TopicRow) -> Topic:
        return self._replace(Topic(row, topic.name, topic.partitions))

    def _replace(self, topic: Topic) -> Topic:
        settings = self._resolve(topic.settings)
        for partition in topic.partitions:
            partition.obey(settings)
        self._topics[topic.name] = self._by_id[topic.topic_id] = topic
        self.generation += 1
        self._obey(topic)
        self._tell(Event.ALTERED, topic)
        return topic

    def _grow(self, topic: Topic, row: TopicRow, parts: Sequence[Partition]) -> Topic:
        self._partitions.update((each.partition_id, each) for each in parts)
        return self._replace(Topic(row, topic.name, (*topic.partitions, *parts)))

    def _grown(self, name: TopicName, more: int) -> None:
        del self._altering[name]
        self._coming -= more

    def _obey(self, topic: Topic) -> None:
        """Put beside each partition's settings what the policies say, and whether it is over."""
        policies = self._policies(topic.name, topic.settings)
        over = terminated_partitions(topic.settings)
        for index, partition in enumerate(topic.partitions):
            partition.policies = policies
            partition.terminated = index in over

    def _tell(self, event: Event, topic: Topic) -> None:
        for listener in self.listeners:
            try:
                listener(event, topic)
            except Exception:  # it is true already; others must hear it all the same
                log.exception("topic.listener_failed", extra={"event": event.value})

    def _add(self, row: TopicRow, parts: Sequence[Partition]) -> Topic:
        settings = self._resolve(row.settings)
        name = TopicName(row.tenant, row.namespace, row.name)
        topic = Topic(row, name, tuple(parts))
        if parts[0].settings != settings:  # what holds for all was changed meanwhile
            for partition in parts:
                partition.obey(settings)
        self._partitions.update(zip(row.partitions, topic.partitions, strict=True))
        self._topics[name] = self._by_id[row.topic_id] = topic
        self._obey(topic)
        return topic

    def _delete(self, topic: Topic) -> None:
        del self._topics[topic.name], self._by_id[topic.topic_id], self._deleting[topic.name]
        for partition in topic.partitions:
            partition.deleted = True
            del self._partitions[partition.partition_id]
        self._homes[topic.name.home] -= 1

    def _tidy(self, topic: Topic) -> Iterator[None]:
        """Let go of what belonged to a topic that is gone; another may have its name by now."""
        assert self._logs is not None, "no log yet"
        ids = topic.row.partitions
        forgetting = self._forget(ids)
        next(forgetting, None)
        self._tell(Event.DELETED, topic)
        yield from forgetting
        for count, partition_id in enumerate(ids, 1):
            self._logs.drop_partition(partition_id)
            if count % AT_ONCE == 0:
                yield


def _over(under_way: dict[TopicName, Any], name: TopicName, commit: Commit[Any]) -> None:
    if under_way.get(name) is commit:
        del under_way[name]
