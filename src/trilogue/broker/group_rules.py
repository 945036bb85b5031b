"""What administrators say of TubeMQ's groups and topics: who may read what, how fast, and whether.

Everything is kept in meta as settings, as JSON, one for each thing that something is said of:

    tubemq/cluster                    the default flow control
    tubemq/broker                     whether this node takes messages, and gives them out
    tubemq/topic/T                    whether only groups that are named may read the topic T
    tubemq/group/G                    the flow control of the group G
    tubemq/consume/G/T                whether G may read T, and only through which filters

Topics are named canonically. What belongs to one topic and to nothing else (whether it takes
messages from TubeMQ clients, how large they may be) is among the settings of the topic.

Changes are decided here and returned as a `Commit`; each expects what was there when it was
decided. The id of a flow control changes whenever its text does: clients compare ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from trilogue.broker.commit import Commit
from trilogue.broker.errors import InUse, InvalidSetting, Outrun
from trilogue.broker.flow_control import NO_RULES, Rules, parse_rules
from trilogue.broker.names import TopicName
from trilogue.broker.settings import TUBEMQ_DELETED, TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE
from trilogue.broker.topic import Topic
from trilogue.log.errors import CorruptLog
from trilogue.meta.port import DeleteSetting, PutSetting, SettingIs

PREFIX = "tubemq/"
CLUSTER_KEY, BROKER_KEY = PREFIX + "cluster", PREFIX + "broker"
TOPIC_KEY, GROUP_KEY, CONSUME_KEY = PREFIX + "topic/", PREFIX + "group/", PREFIX + "consume/"

RECORDS_MAX = 100_000  # of each kind
GROUP_SIZE_MAX = 1_024  # characters of a group's name
TEXT_SIZE_MAX = 1_024  # of a reason, of who changed something
FILTERS_MAX, FILTER_SIZE_MAX = 500, 256
NO_FLOW_ID = -2  # nothing was ever said: what clients begin with
NO_TEXT = " "  # what clients are told where nothing is said (wire fact, section 3)

SIZE_KEY = "max.message.bytes"  # among the settings of a topic
KAFKA_SLACK = 12  # what Kafka counts with a batch: the default has room for it
MIB = 1 << 20
MESSAGE_MIB_MAX = 15  # an entry has at most 16, with attributes and what we keep beside it

GROUP_FORBIDDEN, CONTENT_FORBIDDEN = 450, 455  # codes of the wire, section 9


class Denial(NamedTuple):
    """Why a group may not read: a code of the wire and a sentence."""

    code: int
    text: str


class Flow(NamedTuple):
    """How fast may be read: what clients compare, what they are told, what it means."""

    id: int
    text: str
    rules: Rules


NO_FLOW = Flow(NO_FLOW_ID, NO_TEXT, NO_RULES)


class Stamp(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who said something, and when (ms)."""

    made_by: str = ""
    made_ms: int = 0
    changed_by: str = ""
    changed_ms: int = 0


class FlowText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flow control as it was said; it may be kept and not hold."""

    id: int = NO_FLOW_ID
    text: str = ""
    holds: bool = False


class ClusterSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for all groups, and for topics that say nothing of their own."""

    flow: FlowText = FlowText()
    message_mib_max: int = 0  # of the largest body; 0: what the node says for all protocols
    stamp: Stamp = Stamp()


class BrokerSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether this node takes messages of TubeMQ clients, and gives them out."""

    publishes: bool = True
    subscribes: bool = True
    stamp: Stamp = Stamp()


class TopicSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether groups need to be named to read a topic."""

    named_groups_only: bool = False
    stamp: Stamp = Stamp()


class GroupSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for one group.

    A rate is how many brokers there may be for each member of a group; as there is one broker, any
    rate is kept.
    """

    flow: FlowText = FlowText()
    checks_rate: bool = False
    rate: int = 0
    stamp: Stamp = Stamp()


class ConsumeSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one group may do with one topic."""

    named: bool = True  # as one that may read a topic which only named groups may
    may: bool = True
    reason: str = ""  # why it may not
    filtered: bool = False  # only with filters, and only with these
    filters: tuple[str, ...] = ()
    stamp: Stamp = Stamp()


Record = ClusterSaid | BrokerSaid | TopicSaid | GroupSaid | ConsumeSaid
R = TypeVar("R", ClusterSaid, BrokerSaid, TopicSaid, GroupSaid, ConsumeSaid)
NOTHING_OF_TOPIC, NOTHING_OF_GROUP = TopicSaid(), GroupSaid()
_NOTHING: Mapping[str, ConsumeSaid] = MappingProxyType({})


class GroupRules:
    """All of it, from meta's settings; changed through commits only."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.listeners: list[Callable[[], None]] = []  # called after every change
        self.cluster = ClusterSaid()
        self.broker = BrokerSaid()
        self.topics: dict[str, TopicSaid] = {}
        self.groups: dict[str, GroupSaid] = {}
        self._consume: dict[str, dict[str, ConsumeSaid]] = {}  # by topic, by group
        self._consume_count = 0
        self._default_flow = NO_FLOW
        self._flows: dict[str, Flow] = {}
        self._texts: dict[str, str] = {}
        for key, text in settings.items():
            if key.startswith((CLUSTER_KEY, BROKER_KEY, TOPIC_KEY, GROUP_KEY, CONSUME_KEY)):
                self._take(key, text)

    # -- what doors ask

    def may_consume(
        self, group: str, topic: TopicName, filters: Collection[str] = ()
    ) -> Denial | None:
        """Say why a group may not read a topic with these filters; None: it may."""
        named = str(topic)
        said = self.consume(group, named)
        if said is not None and not said.may:
            why = f": {said.reason}" if said.reason else ""
            return Denial(
                GROUP_FORBIDDEN,
                f"[Restricted Group] {group} is forbidden to consume {topic.name}{why}",
            )
        named_only = self.topics.get(named, NOTHING_OF_TOPIC).named_groups_only
        if named_only and (said is None or not said.named):
            return Denial(
                GROUP_FORBIDDEN,
                f"[unAuthorized Group] {group} is not authorized to consume {topic.name}",
            )
        if said is None:
            return None
        return _check_filters(said, group, topic, filters) if said.filtered else None

    def flow(self, group: str) -> Flow:
        """How fast a group may read, on top of the default."""
        return self._flows.get(group, NO_FLOW)

    @property
    def default_flow(self) -> Flow:
        """How fast every group may read."""
        return self._default_flow

    def accepts_publish(self, topic: Topic) -> bool:
        """Whether TubeMQ clients may write to a topic now."""
        settings = topic.settings
        return (
            self.broker.publishes
            and settings.get(TUBEMQ_PUBLISH) != "false"
            and TUBEMQ_DELETED not in settings
        )

    def accepts_subscribe(self, topic: Topic) -> bool:
        """Whether TubeMQ clients may read a topic now."""
        settings = topic.settings
        return (
            self.broker.subscribes
            and settings.get(TUBEMQ_SUBSCRIBE) != "false"
            and TUBEMQ_DELETED not in settings
        )

    def is_deployed(self, topic: Topic) -> bool:
        """Whether TubeMQ clients shall know a topic: an administrator may have taken it from them.

        It is deleted, for other protocols too, when it is removed for good.
        """
        return TUBEMQ_DELETED not in topic.settings

    def message_size_max(self, topic: Topic) -> int:
        """Bytes of the largest message that TubeMQ clients may write to a topic.

        What the topic says for itself goes before what the administrators said for all of them, and
        that before what the node says for all protocols.
        """
        size = topic.partitions[0].message_size_max
        if SIZE_KEY in topic.settings:
            return size
        return self.cluster.message_mib_max * MIB or max(1, size - KAFKA_SLACK)

    # -- what administrators ask

    def consume(self, group: str, topic: str) -> ConsumeSaid | None:
        """What was said of a group and a topic (canonically named)."""
        return self._consume.get(topic, _NOTHING).get(group)

    def of_topic(self, topic: str) -> list[tuple[str, ConsumeSaid]]:
        """What was said of a topic and groups, in their order."""
        return sorted(self._consume.get(topic, _NOTHING).items())

    def every_consume(self) -> Iterator[tuple[str, str, ConsumeSaid]]:
        """All of that: group, topic, what was said, in the order of topics and groups."""
        for topic in sorted(self._consume):
            for group, said in self.of_topic(topic):
                yield group, topic, said

    # -- changes

    def plan_cluster(self, rules: ClusterSaid) -> Commit[None]:
        """Decide what holds for all groups."""
        parse_rules(rules.flow.text)
        check_message_mib(rules.message_mib_max)
        return self._put(CLUSTER_KEY, rules)

    def plan_broker(self, rules: BrokerSaid) -> Commit[None]:
        """Decide what this node does."""
        return self._put(BROKER_KEY, rules)

    def plan_topic(self, topic: TopicName, rules: TopicSaid | None) -> Commit[None]:
        """Decide whether groups need to be named to read a topic; None forgets it."""
        if rules is None:
            return self._delete(f"{TOPIC_KEY}{topic}")
        if str(topic) not in self.topics:
            _check_room(self.topics)
        return self._put(f"{TOPIC_KEY}{topic}", rules)

    def plan_group(self, group: str, rules: GroupSaid | None) -> Commit[None]:
        """Decide what holds for a group; None forgets it."""
        check_group(group)
        if rules is None:
            return self._delete(GROUP_KEY + group)
        parse_rules(rules.flow.text)
        if group not in self.groups:
            _check_room(self.groups)
        return self._put(GROUP_KEY + group, rules)

    def plan_consume(self, group: str, topic: TopicName, rules: ConsumeSaid | None) -> Commit[None]:
        """Decide what a group may do with a topic; None forgets it."""
        check_group(group)
        key = f"{CONSUME_KEY}{group}/{topic}"
        if rules is None:
            return self._delete(key)
        if len(rules.reason) > TEXT_SIZE_MAX:
            raise InvalidSetting(f"a reason has at most {TEXT_SIZE_MAX} characters")
        _check_filter_texts(rules.filters)
        if self.consume(group, str(topic)) is None:
            _check_room(range(self._consume_count))
        return self._put(key, rules)

    # -- inside

    def _put(self, key: str, record: Record) -> Commit[None]:
        text = msgspec.json.encode(record).decode()
        return Commit(
            lambda: [PutSetting(key, text)],
            (SettingIs(key, self._texts.get(key)),),
            lambda: self._changed(key, text),
            outrun=Outrun("it was changed meanwhile"),
        )

    def _delete(self, key: str) -> Commit[None]:
        return Commit(
            lambda: [DeleteSetting(key)],
            (SettingIs(key, self._texts.get(key)),),
            lambda: self._changed(key, None),
            outrun=Outrun("it was changed meanwhile"),
        )

    def _changed(self, key: str, text: str | None) -> None:
        if text is None:
            self._forget(key)
        else:
            self._take(key, text)
        for listener in list(self.listeners):
            listener()

    def _take(self, key: str, text: str) -> None:
        self._texts[key] = text
        if key == CLUSTER_KEY:
            self.cluster = _read(key, text, ClusterSaid)
            self._default_flow = _flow(key, self.cluster.flow)
        elif key == BROKER_KEY:
            self.broker = _read(key, text, BrokerSaid)
        elif key.startswith(TOPIC_KEY):
            self.topics[key.removeprefix(TOPIC_KEY)] = _read(key, text, TopicSaid)
        elif key.startswith(GROUP_KEY):
            group = key.removeprefix(GROUP_KEY)
            self.groups[group] = said = _read(key, text, GroupSaid)
            self._flows[group] = _flow(key, said.flow)
        else:
            group, _, topic = key.removeprefix(CONSUME_KEY).partition("/")
            groups = self._consume.setdefault(topic, {})
            self._consume_count += group not in groups
            groups[group] = _read(key, text, ConsumeSaid)

    def _forget(self, key: str) -> None:
        self._texts.pop(key, None)
        if key.startswith(TOPIC_KEY):
            self.topics.pop(key.removeprefix(TOPIC_KEY), None)
        elif key.startswith(GROUP_KEY):
            group = key.removeprefix(GROUP_KEY)
            self.groups.pop(group, None)
            self._flows.pop(group, None)
        else:
            group, _, topic = key.removeprefix(CONSUME_KEY).partition("/")
            groups = self._consume.get(topic, {})
            self._consume_count -= groups.pop(group, None) is not None
            if not groups:
                self._consume.pop(topic, None)


def flow_said(before: FlowText, text: str, *, holds: bool, now_ms: int) -> FlowText:
    """A flow control with an id that says whether anything is another than before."""
    if (text, holds) == (before.text, before.holds):
        return before
    return FlowText(max(now_ms, before.id + 1), text, holds)


def check_message_mib(size: int) -> int:
    """Return the size of the largest body in MiB, or refuse it; 0 says nothing."""
    if not 0 <= size <= MESSAGE_MIB_MAX:
        raise InvalidSetting(f"messages have at most 1 to {MESSAGE_MIB_MAX} MB here, not {size}")
    return size


def check_group(group: str) -> str:
    """Return a group's name, or refuse it: no blanks, no slash, at most 1,024 characters."""
    if not group or len(group) > GROUP_SIZE_MAX or not group.isprintable():
        raise InvalidSetting(f"a group's name has 1 to {GROUP_SIZE_MAX} characters")
    if "/" in group or any(each.isspace() for each in group):
        raise InvalidSetting("a group's name has neither blanks nor slashes")
    return group


def _check_filters(
    said: ConsumeSaid, group: str, topic: TopicName, filters: Collection[str]
) -> Denial | None:
    if not said.filters:
        why = f"is not allowed to consume any data of topic {topic.name}"
    elif not filters:
        why = f"must set the filter conditions of topic {topic.name}"
    elif not set(filters) <= set(said.filters):
        other = sorted(set(filters) - set(said.filters))
        why = f"has unauthorized filter conditions for topic {topic.name}: {', '.join(other[:10])}"
    else:
        return None
    return Denial(CONTENT_FORBIDDEN, f"[Restricted Group] {group} {why}")


def _check_filter_texts(filters: tuple[str, ...]) -> None:
    if len(filters) > FILTERS_MAX:
        raise InvalidSetting(f"there may be {FILTERS_MAX} filters")
    for each in filters:
        if not each or len(each) > FILTER_SIZE_MAX or "," in each:
            raise InvalidSetting(f"a filter has 1 to {FILTER_SIZE_MAX} characters and no comma")


def _check_room(records: Collection[object]) -> None:
    if len(records) >= RECORDS_MAX:
        raise InUse(f"there may be {RECORDS_MAX} of these rules")


def _flow(key: str, said: FlowText) -> Flow:
    if said.id == NO_FLOW_ID:
        return NO_FLOW
    if not said.holds or not said.text:
        return Flow(said.id, NO_TEXT, NO_RULES)
    try:
        return Flow(said.id, said.text, parse_rules(said.text))
    except InvalidSetting as error:
        raise CorruptLog(f"what meta keeps as {key} cannot be read") from error


def _read(key: str, text: str, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptLog(f"what meta keeps as {key} cannot be read") from error
