"""What handlers of TubeMQ requests share: settings, clients, topics by name, counters."""

from __future__ import annotations

from typing import NamedTuple, Unpack

from trilogue.broker.access.authorizer import Resource, ResourceKind
from trilogue.broker.errors import UnknownTopic
from trilogue.broker.names import format_tubemq
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.flow_control import NO_RULES, FlowRules, merge_rules
from trilogue.gateway.connection import InFlightLimits
from trilogue.gateway.dependencies import GatewayDependencies, ProtocolGateway
from trilogue.gateway.tubemq.auth.authentication import Authentication, Role
from trilogue.gateway.tubemq.broker_map import BrokerMap
from trilogue.gateway.tubemq.held_gets import HeldGets
from trilogue.gateway.tubemq.master import Master, ProducerRegistry, digest63, find_topic
from trilogue.gateway.tubemq.message_reader import Filters, filters_of
from trilogue.gateway.tubemq.settings import MIB, TubeSettings
from trilogue.wire.tubemq.text_fields import TopicInfo

SLACK = 10 << 10  # bytes that real brokers accept beyond a topic's largest message
CACHED_MAX = 1_000  # filters, and merged flow control rules


class PublishTarget(NamedTuple):
    """A topic by the name that clients use, with what a send checks."""

    topic: Topic
    partitions: tuple[Partition, ...]  # of this node's broker, by their ids
    resource: Resource  # by its canonical name, for the authorizer
    data_bytes_max: int
    accepts_publish: bool


class TubeGatewayContext(ProtocolGateway):
    """The state of the TubeMQ gateway that handlers use; `TubeGateway` adds the endpoints."""

    protocol = "tubemq"

    def __init__(
        self,
        *,
        settings: TubeSettings,
        authentication: Authentication,
        **dependencies: Unpack[GatewayDependencies],
    ) -> None:
        super().__init__(**dependencies)
        self.settings = settings
        self.authentication = authentication
        self.tokens = authentication.tokens
        rules = authentication.settings
        self.guards_sends = rules.checks_visit or Role.PRODUCER in rules.authenticate
        self.bounds = InFlightLimits(
            receipts=settings.sends_in_flight_max,
            requests=settings.requests_in_flight_max,
            request_bytes=settings.requests_bytes_max,
        )
        self.producers = ProducerRegistry(settings)
        self.held_gets = HeldGets(settings.hold_s)
        self.brokers = BrokerMap(self.broker.cluster, self.broker_address)
        self.master = Master(
            self.broker,
            self.brokers,
            settings,
            monotonic_ms=lambda: self.monotonic_ms,
        )
        self.messages_in = self.bytes_in = 0
        self.messages_out = self.bytes_out = 0
        self.throttled_gets = 0  # answered with 452
        self.dropped = 0  # requests older than their own timeout
        self.overflows = 0  # sends answered with 419
        self.empty_frames = 0  # without blocks, ignored
        self.publish_rules = 0  # moves when the rules for publishing change
        self._targets: dict[str, PublishTarget] = {}
        self._generation = 0  # of the cluster, when the targets were found
        self._filters: dict[frozenset[str], Filters | None] = {}
        self._flow_rules: dict[tuple[int, int], FlowRules] = {}

    @property
    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock, by which sessions time out."""
        return int(self.loop.time() * 1_000)

    # ---- topics

    def find_target(self, spelled: str) -> PublishTarget:
        """Return the topic of this name; raises UnknownTopic, in the words of a real broker.

        Names are parsed once: a target is cached until a topic changes or is deleted.
        """
        cluster = self.broker.cluster
        if self._generation != cluster.generation:
            self._generation = cluster.generation
            self._targets.clear()
        target = self._targets.get(spelled)
        if target is not None and not target.topic.partitions[0].deleted:
            return target
        topic = find_topic(self.broker, spelled)
        if topic is None:
            raise UnknownTopic(f"topicName {spelled} not existed, please check your configure")
        if len(self._targets) > 2 * len(cluster) + 100:
            self._targets.clear()
        target = self._targets[spelled] = PublishTarget(
            topic,
            tuple(topic.local_partitions),
            Resource(ResourceKind.TOPIC, str(topic.name)),
            self.broker.rules.message_size_max(topic) + SLACK,
            self.accepts_publish(topic),
        )
        return target

    def forget_targets(self) -> None:
        """Clear the cache: the rules for publishing have changed."""
        self.publish_rules += 1
        self._targets.clear()

    def accepts_publish(self, topic: Topic) -> bool:
        """Return whether producers may publish to a topic."""
        if any(partition.terminated for partition in topic.partitions):
            return False
        return self.broker.rules.accepts_publish(topic)

    @property
    def message_bytes_max(self) -> int:
        """Size in bytes of the largest message, for topics without a setting of their own."""
        return self.broker.rules.cluster.message_mib_max * MIB or self.settings.message_bytes_max

    # ---- groups

    def compile_filters(self, filters: frozenset[str]) -> Filters | None:
        """Return the filters of a registration, compiled; None where it has none."""
        if not filters:
            return None
        compiled = self._filters.get(filters)
        if compiled is None:
            if len(self._filters) >= CACHED_MAX:
                self._filters.clear()
            compiled = self._filters[filters] = filters_of(filters)
        return compiled

    def flow_rules(self, group: str) -> FlowRules:
        """Return the flow control rules of a group, merged with the default ones."""
        rules = self.broker.rules
        default, own = rules.default_flow, rules.flow(group)
        if own.rules is NO_RULES:
            return default.rules
        if default.rules is NO_RULES:
            return own.rules
        key = (default.id, own.id)
        merged = self._flow_rules.get(key)
        if merged is None:
            if len(self._flow_rules) >= CACHED_MAX:
                self._flow_rules.clear()
            merged = self._flow_rules[key] = merge_rules(default.rules, own.rules)
        return merged

    # ---- the broker, as the master describes it

    def broker_address(self, *, tls: bool = False) -> tuple[str, int]:
        """Return host and port of the broker, as advertised to clients in clear or with TLS.

        Where the broker has one listener, that is its address for all.
        """
        if tls and self.tls_advertised is not None:
            return self.tls_advertised()
        return self.advertised()

    def broker_infos(self, *, tls: bool = False) -> list[str]:
        """Return `brokerId:host:port` of each broker."""
        return [str(each) for each in self.brokers.brokers(tls=tls).values()]

    def broker_checksum(self, *, tls: bool = False) -> int:
        """Return a number that identifies these addresses, also over restarts; not negative."""
        return digest63("\n".join(self.broker_infos(tls=tls)))

    def topic_info(self, topic: Topic) -> str:
        """Return `topic#brokerId:partitions:stores#largest message`, for producers."""
        size = self.broker.rules.message_size_max(topic)
        return str(TopicInfo(format_tubemq(topic.name), self.brokers.hostings(topic), size))
