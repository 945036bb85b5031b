"""What the master knows of its clients: producers, consumers, and who reads which partition.

Consumers name partitions in three spellings:

    TubePartition(topic, number)  <->  consumer@group#1:host:port#topic:number    events, reports
                                  <->  1:topic:number                             required offsets
                                  <->  topic#1:number,1:number                    reports of V2

The broker is number 1 in these; broker_map.py has all brokers and where partitions are. Partitions
of brokers that do not exist, and of names that cannot exist, are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from trilogue.broker.access.authorizer import Principal
from trilogue.broker.broker import Broker
from trilogue.broker.errors import AuthenticationFailed, InvalidName, UnknownMember
from trilogue.broker.names import TopicName, format_tubemq, parse_tubemq
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.balanced_group import BalanceSettings
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_balancer import GroupBalancer
from trilogue.broker.tubemq.group_rules import DenialReason
from trilogue.broker.tubemq.group_terms import GroupTerms
from trilogue.broker.tubemq.rebalance_events import RebalanceEvent
from trilogue.gateway.connection import MultiplexedConnection
from trilogue.gateway.tubemq.auth.authentication import NO_PROOF
from trilogue.gateway.tubemq.broker_map import BrokerMap
from trilogue.gateway.tubemq.errors import TubeRequestError
from trilogue.gateway.tubemq.event_codes import KIND_CODES
from trilogue.gateway.tubemq.sessions import ClientSessions
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import EventProto
from trilogue.wire.tubemq.text_fields import (
    SUBSCRIBABLE,
    Condition,
    Partition,
    Subscription,
    TopicMeta,
    parse_held,
    parse_required,
)

log = logging.getLogger(__name__)

DENIAL_CODES = {
    DenialReason.GROUP_FORBIDDEN: TubeCode.GROUP_FORBIDDEN,
    DenialReason.CONTENT_FORBIDDEN: TubeCode.CONTENT_FORBIDDEN,
}
NOT_SUBSCRIBABLE = 0
EPOCH_SHIFT = 32  # rebalance ids grow with the node's epoch
INT63 = (1 << 63) - 1
TOPICS_MAX = 1_024  # of a consumer, as for a real master
PARTS_MAX = 20_000  # of one report
FILTERS_MAX = 500  # of a topic
PENDING_MAX = 1_000
PENDING_BYTES_MAX = 64 << 10  # of one request


class Producer(msgspec.Struct):
    """One producer, as the master knows it."""

    principal: Principal
    host: str
    jdk: str
    topics: int  # how many it named last


class ProducerRegistry:
    """All producers of this master."""

    def __init__(self, settings: TubeSettings) -> None:
        self.sessions: ClientSessions[Producer] = ClientSessions(
            settings.producer_timeout_s, settings.producers_max
        )
        self.expired = 0

    def expire(self, now_s: float) -> None:
        """Remove producers that sent nothing for the timeout."""
        for client_id, _ in self.sessions.expire(now_s):
            self.expired += 1
            log.info("tubemq.producer_expired", extra={"client": client_id})

    def remove_producers(self, principal: Principal) -> None:
        """Remove the producers that are this principal's."""
        for client_id, producer in self.sessions.items():
            if producer.principal == principal:
                self.sessions.remove(client_id)


class PendingRegistration(NamedTuple):
    """A registration without a proof; it and the proof have to come over one connection."""

    connection: MultiplexedConnection
    request: Any


class PendingRegistrations:
    """Registrations of consumers that have not authenticated yet, as Java's do.

    The real Java client (1.13.0) means to sign when it registers, but a mistake of its own makes
    it send an empty token; it signs only after a heartbeat is answered with `requireAuth`. So such
    a registration is kept aside: the response is that nothing is allocated yet, the consumer is in
    no group and gets no token, and its next heartbeat is answered with `requireAuth`. When a
    heartbeat brings the proof, the registration is completed with all its checks. Without a proof
    it is removed after a while.
    """

    def __init__(self, timeout_s: float) -> None:
        self._pending: ClientSessions[PendingRegistration] = ClientSessions(timeout_s, PENDING_MAX)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, connection: MultiplexedConnection, request: Any, size: int, now_s: float) -> None:
        """Keep a registration of `size` bytes; raises AuthenticationFailed where that is refused.

        Another connection may replace it only when the first one is closed.
        """
        self._pending.expire(now_s)
        client_id = request.clientId
        before = self._pending.find_session(client_id)
        holder = connection if before is None else before.connection
        is_others = holder is not connection and not holder.is_gone
        if is_others or size > PENDING_BYTES_MAX:
            raise AuthenticationFailed(NO_PROOF)
        if not self._pending.put_session(
            client_id, PendingRegistration(connection, request), now_s
        ):
            raise AuthenticationFailed(NO_PROOF)

    def check(self, connection: MultiplexedConnection, request: Any, now_s: float) -> None:
        """Check that a heartbeat's client has registered; raises UnknownMember."""
        if self._find(connection, request, now_s) is None:
            raise UnknownMember(f"Not found clientId {request.clientId} in holder!")

    def pop(self, connection: MultiplexedConnection, request: Any, now_s: float) -> Any:
        """Remove and return the registration of a heartbeat's client; None if there is none."""
        pending = self._find(connection, request, now_s)
        if pending is None:
            return None
        self._pending.remove(request.clientId)
        return pending.request

    def _find(
        self, connection: MultiplexedConnection, request: Any, now_s: float
    ) -> PendingRegistration | None:
        self._pending.expire(now_s)
        pending = self._pending.find_session(request.clientId)
        if pending is None or pending.connection is not connection:
            return None
        return pending if pending.request.groupName == request.groupName else None


class Master:
    """The consumers of this node: the members of each group, and their partitions."""

    def __init__(
        self,
        broker: Broker,
        brokers: BrokerMap,
        settings: TubeSettings,
        *,
        monotonic_ms: Callable[[], int],
    ) -> None:
        cluster = broker.cluster
        session_ms = int(settings.consumer_timeout_s * 1_000)
        self.balances = GroupBalancer(
            BalanceSettings(session_ms=session_ms, event_ms=2 * session_ms),
            self._partition_count,
            first_id=cluster.node_epoch << EPOCH_SHIFT,
        )
        self.pending = PendingRegistrations(2 * settings.consumer_timeout_s)
        self._monotonic_ms = monotonic_ms
        self._broker = broker
        self._brokers = brokers
        self._broker_ids = tuple(brokers.broker_ids)
        self._cluster = cluster
        self._rules = broker.rules
        self._registrations = broker.registrations
        self.balances.gone.append(self._on_member_gone)
        self.balances.begins.append(self._on_start_offsets)
        self.balances.empty.append(broker.registrations.forget_starts)

    def open(self) -> None:
        """Subscribe to changes of topics and of rules."""
        self._cluster.listeners.append(self._topic_changed)
        self._rules.listeners.append(self.balances.refresh)

    def close(self) -> None:
        """Unsubscribe from them."""
        self._cluster.listeners.remove(self._topic_changed)
        self._rules.listeners.remove(self.balances.refresh)

    @property
    def now_ms(self) -> int:
        """Milliseconds of a monotonic clock."""
        return self._monotonic_ms()

    def tick(self) -> None:
        """Remove members whose session has timed out; notice that brokers have other ids."""
        self.balances.tick(self.now_ms)
        broker_ids = tuple(self._brokers.broker_ids)
        if broker_ids != self._broker_ids:
            self._broker_ids = broker_ids
            self.balances.request_reports()

    # -- what responses contain

    def encode_event(
        self, group: str, member_id: str, event: RebalanceEvent, *, tls: bool
    ) -> EventProto:
        """Return an event for a response; its status is left out, as real masters do."""
        brokers = self._brokers.brokers(tls=tls)
        listed = []
        for part in event.parts:
            location = self._brokers.locate(part.topic, part.number)
            broker = None if location is None else brokers.get(location[0])
            if location is not None and broker is not None:
                partition = Partition(broker, format_tubemq(part.topic), location[1])
                listed.append(str(Subscription(member_id, group, partition)))
        return EventProto(
            rebalanceId=event.rebalance_id,
            opType=KIND_CODES[event.kind],
            subscribeInfo=listed,
        )

    def describe_topics(self, group: str, terms: GroupTerms) -> tuple[int, list[str]]:
        """Return what client-balanced members assign, and a number that changes with it."""
        metas = []
        for name in sorted(terms.topics):
            topic = self._cluster.find_topic(name)
            if topic is not None and self._rules.is_deployed(topic):
                readable = self._rules.accepts_subscribe(topic) and not self._is_denied(
                    group, terms, name
                )
                status = SUBSCRIBABLE if readable else NOT_SUBSCRIBABLE
                hostings = tuple((each, status) for each in self._brokers.hostings(topic))
                metas.append(str(TopicMeta(format_tubemq(name), hostings)))
        return digest63("\n".join(metas)), metas

    # -- what requests contain

    def parse_topics(self, names: Iterable[str]) -> frozenset[TopicName]:
        """Return the topics that a consumer subscribes to.

        Raises TubeRequestError, in the words of a real master, if there is none or one of them
        does not exist.
        """
        spelled = sorted(set(names))
        if not spelled:
            raise bad_request("Request miss necessary subscribed topicList data!")
        if not all(each.strip() for each in spelled):
            raise bad_request("Request subscribed topicList data must not Blank!")
        if len(spelled) > TOPICS_MAX:
            raise bad_request(
                f"Subscribed topicList size over max value, required max count is {TOPICS_MAX}"
            )
        found = {name: find_topic(self._broker, name.strip()) for name in spelled}
        missing = [name for name, topic in found.items() if topic is None]
        if missing:
            listed = ", ".join(missing)[:1_024]
            raise TubeRequestError(
                TubeCode.TOPIC_NOT_DEPLOYED, f"Requested topic [[{listed}]] not deployed!"
            )
        return frozenset(topic.name for topic in found.values() if topic is not None)

    def parse_filters(
        self, texts: Sequence[str], topics: frozenset[TopicName]
    ) -> dict[TopicName, frozenset[str]]:
        """Parse topicCondition; topics without filters are left out of the result."""
        filters: dict[TopicName, frozenset[str]] = {}
        if len(texts) > TOPICS_MAX:
            raise bad_request(f"a consumer may have {TOPICS_MAX} topic conditions")
        for text in texts:
            if not text.strip():
                continue
            try:
                condition = Condition.parse(text)
            except WireError as error:
                raise bad_request(str(error)) from error
            topic = _parse_topic_name(condition.topic)
            if topic not in topics:
                raise bad_request(f"a condition for {condition.topic[:100]}, which is not read")
            if len(condition.filters) > FILTERS_MAX:
                raise bad_request(f"a topic may have {FILTERS_MAX} filters")
            if condition.filters:
                filters[topic] = frozenset(each.strip() for each in condition.filters)
        return filters

    def parse_required_offsets(
        self, text: str, topics: frozenset[TopicName]
    ) -> dict[TubePartition, int]:
        """Parse requiredPartition: the start offsets of a bound consumer."""
        try:
            required = parse_required(text)
        except WireError as error:
            raise bad_request(f"[Parameter error] unformatted Partition-Offset: {error}") from error
        found: dict[TubePartition, int] = {}
        for key, offset in required.items():
            topic = _parse_topic_name(key.topic)
            if topic not in topics:
                raise bad_request(
                    "[Parameter error] wrong offset reset for unsubscribed topic: "
                    f"reset item is {key}"
                )
            number = self._brokers.find_number(topic, key.broker_id, key.partition_id)
            if number is not None:
                found[TubePartition(topic, number)] = offset
        return found

    def parse_owned_partitions(self, texts: Sequence[str]) -> set[TubePartition]:
        """Parse subscribeInfo: the partitions that a client has."""
        _check_partition_count(len(texts))
        found: set[TubePartition] = set()
        names: dict[str, TopicName | None] = {}
        for text in texts:
            try:
                partition = Subscription.parse(text).partition
            except WireError as error:
                raise bad_request(str(error)) from error
            self._add_partition(
                found, names, partition.broker.broker_id, partition.topic, partition.partition_id
            )
        return found

    def parse_client_report(self, texts: Sequence[str]) -> set[TubePartition]:
        """Parse partSubInfo of V2, `topic#1:0,1:1`: the partitions that a consumer has."""
        _check_partition_count(sum(1 + text.count(",") for text in texts))
        found: set[TubePartition] = set()
        names: dict[str, TopicName | None] = {}
        try:
            for text in texts:
                for key in parse_held(text):
                    self._add_partition(found, names, key.broker_id, key.topic, key.partition_id)
        except WireError as error:
            raise bad_request(str(error)) from error
        return found

    def mark_returned(self, group: str, member_id: str) -> None:
        """Note that a consumer is a member again and keeps its registrations at the broker."""
        consumer = self._registrations.consumer(group, member_id)
        if consumer is not None:
            consumer.has_left = False

    def check_rules(self, group: str, terms: GroupTerms) -> None:
        """Check the administrators' rules for a group's topics; raises with code 450 or 455."""
        for topic in sorted(terms.topics):
            check_consume_rules(self._broker, group, topic, terms.filters.get(topic, ()))

    # -- inside

    def _add_partition(
        self,
        found: set[TubePartition],
        names: dict[str, TopicName | None],
        broker_id: int,
        spelled: str,
        partition_id: int,
    ) -> None:
        if spelled not in names:
            names[spelled] = _parse_topic_name(spelled)
        topic = names[spelled]
        if topic is None:
            return
        number = self._brokers.find_number(topic, broker_id, partition_id)
        if number is not None:
            found.add(TubePartition(topic, number))

    def _is_denied(self, group: str, terms: GroupTerms, topic: TopicName) -> bool:
        filters = terms.filters.get(topic, ())
        return self._rules.may_consume(group, topic, filters) is not None

    def _partition_count(self, name: TopicName) -> int:
        topic = self._cluster.find_topic(name)
        if topic is None or not self._rules.accepts_subscribe(topic):
            return 0
        return len(topic.partitions)

    def _topic_changed(self, event: TopicEvent, topic: Topic) -> None:
        if event is TopicEvent.DELETED:
            self.balances.topic_gone(topic.name)
        else:
            self.balances.topic_changed(topic.name)

    def _on_member_gone(self, group: str, member_id: str) -> None:
        """Let other members register the partitions of a consumer that left its group.

        It may still confirm its last messages: Go's client closes here before it unregisters at
        the broker.
        """
        consumer = self._registrations.consumer(group, member_id)
        if consumer is not None:
            consumer.has_left = True

    def _on_start_offsets(self, group: str, starts: Mapping[TubePartition, int]) -> None:
        for part, offset in starts.items():
            topic = self._cluster.find_topic(part.topic)
            if topic is None or part.number >= len(topic.partitions):
                continue
            partition = topic.partitions[part.number]
            if not partition.is_remote:  # its broker gets the offset from the consumer
                self._registrations.begin_at(partition.partition_id, group, offset)


def bad_request(text: str) -> TubeRequestError:
    """Return the error for a malformed request."""
    return TubeRequestError(TubeCode.BAD_REQUEST, text)


def find_topic(broker: Broker, spelled: str) -> Topic | None:
    """Return the deployed topic of this name; None where TubeMQ clients can know no such topic."""
    try:
        topic = broker.cluster.find_topic(parse_tubemq(spelled))
    except InvalidName:
        return None
    if topic is None or not broker.rules.is_deployed(topic):
        return None
    return topic


def check_consume_rules(
    broker: Broker, group: str, topic: TopicName, filters: Collection[str]
) -> None:
    """Check that administrators let a group read a topic; raises with code 450 or 455."""
    denial = broker.rules.may_consume(group, topic, filters)
    if denial is not None:
        raise TubeRequestError(DENIAL_CODES[denial.reason], denial.text)


def digest63(text: str) -> int:
    """Return a number, not negative, that identifies a text, also over restarts."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") & INT63


def _check_partition_count(count: int) -> None:
    """Check the count before any is parsed, so that no request blocks the loop."""
    if count > PARTS_MAX:
        raise bad_request(f"a consumer may have {PARTS_MAX} partitions")


def _parse_topic_name(spelled: str) -> TopicName | None:
    try:
        return parse_tubemq(spelled)
    except InvalidName:
        return None
