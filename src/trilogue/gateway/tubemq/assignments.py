"""The master's memory of consumers, and partitions in the words of their clients.

    Part(topic, number)  <->  consumer@group#1:host:port#topic:number    events, reports
                         <->  1:topic:number                             required partitions
                         <->  topic#1:number,1:number                    reports of V2

There is one broker, number 1, whose partition numbers are ours. A partition that a client names of
another broker, or by a name that is none, is none of ours and is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from trilogue.broker.balance import Balances
from trilogue.broker.balance_events import BalanceEvent
from trilogue.broker.balance_group import BalanceSettings
from trilogue.broker.balance_shares import Part
from trilogue.broker.balance_terms import Terms
from trilogue.broker.cluster import Event
from trilogue.broker.errors import InvalidName
from trilogue.broker.names import TopicName, parse_tubemq, spelled_tubemq
from trilogue.broker.topic import Topic
from trilogue.gateway.tubemq.errors import Refusal
from trilogue.gateway.tubemq.unproven import Unproven
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import EventProto
from trilogue.wire.tubemq.messages import (
    SUBSCRIBABLE,
    BrokerInfo,
    Condition,
    Hosting,
    Partition,
    Subscription,
    TopicMeta,
    parse_held,
    parse_required,
)

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.door import TubeDoor

BROKER_ID = 1
NOT_SUBSCRIBABLE = 0
EPOCH_SHIFT = 32  # rebalance ids of a later life of the node are larger
INT63 = (1 << 63) - 1
TOPICS_MAX = 1_024  # of a consumer, as a real master
PARTS_MAX = 20_000  # of one report
FILTERS_MAX = 500  # of a topic


class Master:
    """What the doors keep of consumers: who is in which group, and who reads what."""

    def __init__(self, door: TubeDoor) -> None:
        cluster = door.broker.cluster
        session_ms = int(door.settings.consumer_timeout_s * 1_000)
        self.balances = Balances(
            BalanceSettings(session_ms=session_ms, event_ms=2 * session_ms),
            self._partition_count,
            first_id=cluster.node_epoch << EPOCH_SHIFT,
        )
        self.unproven = Unproven(2 * door.settings.consumer_timeout_s)
        self._door = door
        self._cluster = cluster
        self._rules = door.broker.rules
        self._readings = door.broker.readings
        self.balances.gone.append(self._gone)
        self.balances.begins.append(self._begins)
        self.balances.empty.append(door.broker.readings.forget_starts)

    def open(self) -> None:
        """Hear of topics and of rules from now on."""
        self._cluster.listeners.append(self._topic_changed)
        self._rules.listeners.append(self.balances.refresh)

    def close(self) -> None:
        """Hear of them no more."""
        self._cluster.listeners.remove(self._topic_changed)
        self._rules.listeners.remove(self.balances.refresh)

    @property
    def now_ms(self) -> int:
        """Milliseconds of a clock that does not go back."""
        return int(self._door.loop.time() * 1_000)

    def tick(self) -> None:
        """Let go who was silent for too long."""
        self.balances.tick(self.now_ms)

    # -- what consumers are told

    def event(self, group: str, member_id: str, event: BalanceEvent) -> EventProto:
        """An event for an answer; its status is left out (wire fact: consumer.txt, 6)."""
        broker = BrokerInfo.parse(self._door.broker_info)
        return EventProto(
            rebalanceId=event.rebalance_id,
            opType=event.kind,
            subscribeInfo=[
                str(
                    Subscription(
                        member_id,
                        group,
                        Partition(broker, spelled_tubemq(part.topic), part.number),
                    )
                )
                for part in event.parts
            ],
        )

    def topic_metas(self, group: str, terms: Terms) -> tuple[int, list[str]]:
        """What members that balance themselves share out, and a number that changes with it."""
        metas = []
        for name in sorted(terms.topics):
            topic = self._cluster.find(name)
            if topic is not None and self._rules.is_deployed(topic):
                readable = self._rules.accepts_subscribe(topic) and not self._denied(
                    group, terms, name
                )
                hosting = Hosting(BROKER_ID, len(topic.partitions))
                status = SUBSCRIBABLE if readable else NOT_SUBSCRIBABLE
                metas.append(str(TopicMeta(spelled_tubemq(name), ((hosting, status),))))
        digest = blake2b("\n".join(metas).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") & INT63, metas

    # -- what consumers say

    def topics(self, names: Iterable[str]) -> frozenset[TopicName]:
        """The topics that a consumer asks for; refused where there is none, or one is not there.

        Texts as the real master has them (wire fact: errors.txt).
        """
        asked = sorted(set(names))
        if not asked:
            raise bad_request("Request miss necessary subscribed topicList data!")
        if not all(each.strip() for each in asked):
            raise bad_request("Request subscribed topicList data must not Blank!")
        if len(asked) > TOPICS_MAX:
            raise bad_request(
                f"Subscribed topicList size over max value, required max count is {TOPICS_MAX}"
            )
        found = {name: self._deployed(name.strip()) for name in asked}
        missing = [name for name, topic in found.items() if topic is None]
        if missing:
            listed = ", ".join(missing)[:1_024]
            raise Refusal(
                TubeCode.TOPIC_NOT_DEPLOYED, f"Requested topic [[{listed}]] not deployed!"
            )
        return frozenset(topic.name for topic in found.values() if topic is not None)

    def filters(
        self, texts: Sequence[str], topics: frozenset[TopicName]
    ) -> dict[TopicName, frozenset[str]]:
        """Read topicCondition: only topics that are filtered are there."""
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
            topic = _topic_name(condition.topic)
            if topic not in topics:
                raise bad_request(f"a condition for {condition.topic[:100]}, which is not read")
            if len(condition.filters) > FILTERS_MAX:
                raise bad_request(f"a topic may have {FILTERS_MAX} filters")
            if condition.filters:
                filters[topic] = frozenset(each.strip() for each in condition.filters)
        return filters

    def required(self, text: str, topics: frozenset[TopicName]) -> dict[Part, int]:
        """Read requiredPartition: where a bound consumer wants to begin."""
        try:
            required = parse_required(text)
        except WireError as error:
            raise bad_request(f"[Parameter error] unformatted Partition-Offset: {error}") from error
        found: dict[Part, int] = {}
        for key, offset in required.items():
            topic = _topic_name(key.topic)
            if topic not in topics:
                raise bad_request(
                    "[Parameter error] wrong offset reset for unsubscribed topic: "
                    f"reset item is {key}"
                )
            if key.broker_id == BROKER_ID:
                found[Part(topic, key.partition_id)] = offset
        return found

    def claims(self, texts: Sequence[str]) -> set[Part]:
        """Read subscribeInfo: what a client says to have."""
        _check_parts(len(texts))
        found: set[Part] = set()
        names: dict[str, TopicName | None] = {}
        for text in texts:
            try:
                partition = Subscription.parse(text).partition
            except WireError as error:
                raise bad_request(str(error)) from error
            _claim(
                found, names, partition.broker.broker_id, partition.topic, partition.partition_id
            )
        return found

    def is_back(self, group: str, member_id: str) -> None:
        """A consumer that was given up is a member again, and has what it had at the broker."""
        consumer = self._readings.consumer(group, member_id)
        if consumer is not None:
            consumer.has_left = False

    def check_rules(self, group: str, terms: Terms) -> None:
        """Refuse a group that administrators keep from one of its topics (450, 455)."""
        for topic in sorted(terms.topics):
            denial = self._rules.may_consume(group, topic, terms.filters.get(topic, ()))
            if denial is not None:
                raise Refusal(TubeCode(denial.code), denial.text)

    # -- inside

    def _deployed(self, spelled: str) -> Topic | None:
        topic = self._door.find(spelled)
        if topic is None or not self._rules.is_deployed(topic):
            return None
        return topic

    def _denied(self, group: str, terms: Terms, topic: TopicName) -> bool:
        filters = terms.filters.get(topic, ())
        return self._rules.may_consume(group, topic, filters) is not None

    def _partition_count(self, name: TopicName) -> int:
        topic = self._cluster.find(name)
        if topic is None or not self._rules.accepts_subscribe(topic):
            return 0
        return len(topic.partitions)

    def _topic_changed(self, event: Event, topic: Topic) -> None:
        if event is Event.DELETED:
            self.balances.topic_gone(topic.name)
        else:
            self.balances.topic_changed(topic.name)

    def _gone(self, group: str, member_id: str) -> None:
        """Who is no member any more stands in no other's way at the broker either.

        It may still say what became of its last messages: Go's client closes here before it
        unregisters there (recorded).
        """
        consumer = self._readings.consumer(group, member_id)
        if consumer is not None:
            consumer.has_left = True

    def _begins(self, group: str, starts: Mapping[Part, int]) -> None:
        for part, offset in starts.items():
            topic = self._cluster.find(part.topic)
            if topic is not None and part.number < len(topic.partitions):
                partition_id = topic.partitions[part.number].partition_id
                self._readings.begin_at(partition_id, group, offset)


def bad_request(text: str) -> Refusal:
    """Say what is wrong with a request."""
    return Refusal(TubeCode.BAD_REQUEST, text)


def part_claims(texts: Sequence[str]) -> set[Part]:
    """Read partSubInfo of V2, `topic#1:0,1:1`: what a client that balances itself has."""
    _check_parts(sum(1 + text.count(",") for text in texts))
    found: set[Part] = set()
    names: dict[str, TopicName | None] = {}
    try:
        for text in texts:
            for key in parse_held(text):
                _claim(found, names, key.broker_id, key.topic, key.partition_id)
    except WireError as error:
        raise bad_request(str(error)) from error
    return found


def _check_parts(count: int) -> None:
    """Look at how many are named before any is read: one request must not take the loop."""
    if count > PARTS_MAX:
        raise bad_request(f"a consumer may have {PARTS_MAX} partitions")


def _claim(
    found: set[Part], names: dict[str, TopicName | None], broker_id: int, spelled: str, number: int
) -> None:
    if spelled not in names:
        names[spelled] = _topic_name(spelled)
    topic = names[spelled]
    if topic is not None and broker_id == BROKER_ID:
        found.add(Part(topic, number))


def _topic_name(spelled: str) -> TopicName | None:
    try:
        return parse_tubemq(spelled)
    except InvalidName:
        return None
