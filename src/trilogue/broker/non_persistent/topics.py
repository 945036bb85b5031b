"""Non-persistent topics: which there are, their producers and subscriptions, their schemas.

A message of such a topic is sent to the consumers that are connected and have permits, and is
gone: no log, no cursor, no acknowledgement. Kafka and TubeMQ clients do not see these topics, and a
persistent topic may have the same name.

A topic without numbered partitions exists from its first producer, consumer or request of an
administrator on, in memory, and is discarded when it was not used for `IDLE_S`. How many partitions
a topic has is a setting in meta:

    non-persistent/acme/shop/prices      {"partitions": 4, "properties": {}}

All partitions of a topic belong to one node, by the hash of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from trilogue.broker.errors import (
    InUse,
    InvalidPartitions,
    InvalidSchema,
    NotOwner,
    PartitionRequired,
    TopicExists,
    UnknownSchema,
    UnknownTopic,
)
from trilogue.broker.metadata_change import MetadataChange, plan_setting
from trilogue.broker.names import NamespaceName, PulsarName, TopicName
from trilogue.broker.non_persistent.counters import TrafficCounter
from trilogue.broker.non_persistent.subscription import NonPersistentSubscription
from trilogue.broker.producers.access_modes import NO_EPOCH, PartitionWriters, Writer
from trilogue.broker.quotas.topic_rates import PartitionRates, update_rates
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.version_rows import NumberedSchema, Schema
from trilogue.broker.topics.namespaces import Namespaces
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.policies import DEFAULT_POLICIES, Policies
from trilogue.log.errors import CorruptLog

KEY: Final = "non-persistent/"
LEDGER_ID: Final = 0  # of all message ids
PARTITIONS_MAX: Final = 10_000  # of one topic
PARTITIONED_MAX: Final = 10_000  # topics with numbered partitions
LOADED_MAX: Final = 10_000  # topics and partitions in memory, of one node
SUBSCRIPTIONS_MAX: Final = 1_000  # of one topic or partition
SUBSCRIPTIONS_TOTAL_MAX: Final = 100_000  # of one node
SCHEMA_VERSIONS_MAX: Final = 100  # of one topic
SCHEMA_BYTES_MAX: Final = 8 << 20  # of all topics
PROPERTIES_SIZE_MAX: Final = 64 << 10  # of one topic, as JSON
IDLE_S: Final = 60.0
SCAN_S: Final = 10.0


class PartitionedTopic(msgspec.Struct, frozen=True):
    """What is durable of a topic with numbered partitions."""

    partitions: int
    properties: dict[str, str] = {}


class NonPersistentTopic:
    """A topic without numbered partitions, or one partition, that is in use."""

    def __init__(self, name: PulsarName, namespaces: Namespaces, now_s: float) -> None:
        self.name = name
        self.writers = PartitionWriters(LEDGER_ID, NO_EPOCH)
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self.received = TrafficCounter(now_s)
        self.idle_since_s = now_s
        self.deleted = False
        self.next_entry_id = 0  # of the next message; ids do not survive the topic
        self._namespaces = namespaces
        self._policies = DEFAULT_POLICIES
        self._rates: PartitionRates | None = None

    @property
    def index(self) -> int:
        """The number of the partition; -1: the topic has no numbered partitions."""
        return -1 if self.name.partition is None else self.name.partition

    @property
    def policies(self) -> Policies:
        """The policies of the namespace."""
        self._follow_policies()
        return self._policies

    @property
    def rates(self) -> PartitionRates | None:
        """The rates of the namespace, if there are any."""
        self._follow_policies()
        return self._rates

    def _follow_policies(self) -> None:
        policies = self._namespaces.namespace_policies(self.name.topic.namespace_name)
        if policies is not self._policies:
            self._policies = policies
            self._rates = update_rates(
                self._rates,
                policies.publish_rate,
                policies.dispatch_rate,
                policies.subscription_dispatch_rate,
                lambda: (self.received.messages, self.received.size),
            )

    @property
    def consumer_count(self) -> int:
        """How many consumers the topic has."""
        return sum(len(each.members) for each in self.subscriptions.values())

    @property
    def is_used(self) -> bool:
        """Whether a producer or consumer is connected."""
        return not self.writers.is_idle or self.consumer_count > 0

    def take_epoch(self, writer: Writer) -> None:
        """Give a producer that gets exclusive access the topic's epoch, which is not durable."""
        writers = self.writers
        writer.epoch = writers.epoch = max(writers.epoch, writers.next_epoch(writer))

    def remove_if_done(self, subscription: NonPersistentSubscription) -> None:
        """Remove a subscription that is not durable and has no consumer left."""
        if not subscription.members and not subscription.durable:
            self.subscriptions.pop(subscription.name, None)


class NonPersistentTopics:
    """All non-persistent topics of a node, and the partition counts of the whole cluster."""

    def __init__(
        self,
        settings: Mapping[str, str],
        namespaces: Namespaces,
        ownership: Ownership,
        now_ms: Callable[[], int],
    ) -> None:
        self._namespaces = namespaces
        self._ownership = ownership
        self._now_ms = now_ms
        self._texts: dict[str, str] = {}
        self._partitioned: dict[TopicName, PartitionedTopic] = {}
        self._loaded: dict[PulsarName, NonPersistentTopic] = {}
        self._schemas: dict[TopicName, list[NumberedSchema]] = {}
        self._schema_bytes = 0
        self._next_scan_s = 0.0
        for key, text in settings.items():
            if key.startswith(KEY):
                self.apply_setting(key, text)

    # -- queries

    def __iter__(self) -> Iterator[NonPersistentTopic]:
        return iter(list(self._loaded.values()))

    def partitioned(self, name: TopicName) -> PartitionedTopic | None:
        """Return what is durable of a topic with numbered partitions, or None."""
        return self._partitioned.get(name)

    def partition_count(self, name: TopicName) -> int:
        """Return the number of numbered partitions of a topic; 0 if it has none."""
        found = self._partitioned.get(name)
        return 0 if found is None else found.partitions

    def partitioned_in(self, namespace: NamespaceName) -> list[TopicName]:
        """Return the topics of a namespace that have numbered partitions, in order."""
        return sorted(each for each in self._partitioned if each.namespace_name == namespace)

    def names_in(self, namespace: NamespaceName) -> list[PulsarName]:
        """Return the names of a namespace's topics, by partition, in order."""
        found = {each for each in self._loaded if each.topic.namespace_name == namespace}
        for topic in self.partitioned_in(namespace):
            found.update(
                PulsarName(topic, index, persistent=False)
                for index in range(self._partitioned[topic].partitions)
            )
        return sorted(found, key=str)

    def owner(self, name: TopicName) -> int:
        """Return the id of the node that serves a topic."""
        return self._ownership.name_owner(KEY + str(name))

    def check_owner(self, name: TopicName) -> None:
        """Refuse a topic of another node: NotOwner."""
        owner = self.owner(name)
        if owner != self._ownership.node_id:
            raise NotOwner(f"node {owner} is the owner of non-persistent://{name}", owner)

    def find_topic(self, name: PulsarName) -> NonPersistentTopic | None:
        """Return a topic or partition that is in memory, or None."""
        return self._loaded.get(name)

    def exists(self, name: PulsarName) -> bool:
        """Whether a name is of a topic or partition that clients may use."""
        count = self.partition_count(name.topic)
        if name.partition is None:
            return count > 0 or name in self._loaded
        return name.partition < count

    # -- topics in memory

    def load(self, name: PulsarName, now_s: float) -> NonPersistentTopic:
        """Return the topic or partition of a name; the caller has checked that it may exist.

        Raises PartitionRequired, UnknownTopic, NotOwner, or InUse where there are too many.
        """
        self.check_owner(name.topic)
        count = self.partition_count(name.topic)
        if name.partition is None and count:
            raise PartitionRequired("the topic has numbered partitions: name one of them")
        if name.partition is not None and name.partition >= count:
            raise UnknownTopic("the topic has no such partition")
        found = self._loaded.get(name)
        if found is None:
            if len(self._loaded) >= LOADED_MAX:
                raise InUse(f"a node has {LOADED_MAX} non-persistent topics at most")
            found = self._loaded[name] = NonPersistentTopic(name, self._namespaces, now_s)
        return found

    def check_subscription_room(self, topic: NonPersistentTopic) -> None:
        """Refuse another subscription where there are too many: InUse."""
        if len(topic.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise InUse(f"a non-persistent topic has {SUBSCRIPTIONS_MAX} subscriptions at most")
        if sum(len(each.subscriptions) for each in self._loaded.values()) >= (
            SUBSCRIPTIONS_TOTAL_MAX
        ):
            raise InUse("the node has as many non-persistent subscriptions as it may")

    def discard(self, topic: NonPersistentTopic) -> None:
        """Forget a topic; its producers and consumers must have been disconnected."""
        topic.deleted = True
        if self._loaded.get(topic.name) is topic:
            del self._loaded[topic.name]
        name = topic.name.topic
        if not any(each.topic == name for each in self._loaded):
            self._forget_schemas(name)

    def discard_idle(self, now_s: float) -> None:
        """Forget the topics that were not used for `IDLE_S`; looks every `SCAN_S`."""
        if now_s < self._next_scan_s:
            return
        self._next_scan_s = now_s + SCAN_S
        for topic in self:
            if topic.is_used:
                topic.idle_since_s = now_s
            elif now_s - topic.idle_since_s >= IDLE_S:
                self.discard(topic)

    # -- schemas, which last as long as a topic is in memory

    def schemas(self, name: TopicName) -> list[NumberedSchema]:
        """Return the versions of a topic's schema, in order."""
        return list(self._schemas.get(name, ()))

    def schema(self, name: TopicName, version: int | None = None) -> NumberedSchema:
        """Return one version of a topic's schema, the newest by default; UnknownSchema."""
        versions = self._schemas.get(name, [])
        at = len(versions) - 1 if version is None else version
        if not 0 <= at < len(versions):
            raise UnknownSchema("the topic has no such schema")
        return versions[at]

    def add_schema(self, name: TopicName, definition: Definition, schema_name: str) -> int:
        """Add a schema that was checked, and return its version; InvalidSchema if there is no room.

        The topic must be in memory.
        """
        versions = self._schemas.setdefault(name, [])
        size = len(definition.data)
        if len(versions) >= SCHEMA_VERSIONS_MAX or self._schema_bytes + size > SCHEMA_BYTES_MAX:
            raise InvalidSchema("there is no room for another schema of a non-persistent topic")
        self._schema_bytes += size
        version = len(versions)
        properties = dict(definition.properties)
        schema = Schema(definition.kind, definition.data, properties, schema_name, self._now_ms())
        versions.append((version, schema))
        return version

    def _forget_schemas(self, name: TopicName) -> None:
        for _, schema in self._schemas.pop(name, ()):
            self._schema_bytes -= len(schema.data)

    # -- numbered partitions

    def plan_create(
        self, name: TopicName, partitions: int, properties: dict[str, str]
    ) -> MetadataChange[None]:
        """Return the change that gives a new topic numbered partitions."""
        if name in self._partitioned or PulsarName(name, None, persistent=False) in self._loaded:
            raise TopicExists("This topic already exists")
        if len(self._partitioned) >= PARTITIONED_MAX:
            raise InUse(f"there may be {PARTITIONED_MAX} partitioned non-persistent topics")
        return self._plan_put(name, PartitionedTopic(partitions, properties))

    def plan_grow(self, name: TopicName, partitions: int) -> MetadataChange[None]:
        """Return the change that adds partitions."""
        found = self._partitioned.get(name)
        if found is None:
            raise UnknownTopic("the topic has no numbered partitions")
        return self._plan_put(name, PartitionedTopic(partitions, found.properties))

    def plan_delete(self, name: TopicName) -> MetadataChange[None]:
        """Return the change that deletes a topic with numbered partitions."""
        if name not in self._partitioned:
            raise UnknownTopic(f"Topic non-persistent://{name} not found.")
        key = f"{KEY}{name}"
        return plan_setting(key, self._texts.get(key), None, self.apply_setting)

    def _plan_put(self, name: TopicName, topic: PartitionedTopic) -> MetadataChange[None]:
        if not 1 <= topic.partitions <= PARTITIONS_MAX:
            raise InvalidPartitions(f"a topic has 1 to {PARTITIONS_MAX} partitions")
        key, text = f"{KEY}{name}", msgspec.json.encode(topic).decode()
        if len(text) > PROPERTIES_SIZE_MAX:
            raise InUse(f"at most {PROPERTIES_SIZE_MAX} bytes of properties are kept")
        return plan_setting(key, self._texts.get(key), text, self.apply_setting)

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that this node or another one wrote; None: it was deleted."""
        tenant, _, rest = key.removeprefix(KEY).partition("/")
        namespace, _, topic = rest.rpartition("/")
        name = TopicName(tenant, namespace, topic)
        if text is None:
            self._texts.pop(key, None)
            self._partitioned.pop(name, None)
            return
        try:
            self._partitioned[name] = msgspec.json.decode(text, type=PartitionedTopic)
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {key} cannot be read") from error
        self._texts[key] = text
