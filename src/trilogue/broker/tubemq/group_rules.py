"""Rules of administrators for TubeMQ's groups and topics: access, speed, and whether at all.

Everything is kept in meta as settings, as JSON, one for each thing that has a rule:

    tubemq/cluster                    the default flow control
    tubemq/broker                     whether this node takes messages, and gives them out
    tubemq/topic/T                    whether only groups that are named may read the topic T
    tubemq/group/G                    the flow control of the group G
    tubemq/consume/G/T                whether G may read T, and only through which filters

Topics are named canonically. What belongs to one topic and to nothing else (whether it takes
messages from TubeMQ clients, how large they may be) is among the settings of the topic.

Changes are decided here and returned as a `MetadataChange`; each expects what was there when it was
decided. The id of a flow control changes whenever its text does: clients compare ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum, auto, unique
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from trilogue.broker.errors import InUse, InvalidSetting
from trilogue.broker.metadata_change import MetadataChange, plan_setting
from trilogue.broker.names import TopicName
from trilogue.broker.settings.topic_settings import TUBEMQ_DELETED, TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.flow_control import NO_RULES, FlowRules, parse_rules
from trilogue.log.errors import CorruptLog

PREFIX = "tubemq/"
CLUSTER_KEY, BROKER_KEY = PREFIX + "cluster", PREFIX + "broker"
TOPIC_KEY, GROUP_KEY, CONSUME_KEY = PREFIX + "topic/", PREFIX + "group/", PREFIX + "consume/"
RULE_KEYS = (CLUSTER_KEY, BROKER_KEY, TOPIC_KEY, GROUP_KEY, CONSUME_KEY)

RECORDS_MAX = 100_000  # of each kind
GROUP_SIZE_MAX = 1_024  # characters of a group's name
TEXT_SIZE_MAX = 1_024  # of a reason, of who changed something
FILTERS_MAX, FILTER_SIZE_MAX = 500, 256
NO_FLOW_ID = -2  # never set: what clients begin with

SIZE_KEY = "max.message.bytes"  # among the settings of a topic
KAFKA_SLACK = 12  # what Kafka counts with a batch: the default has room for it
MIB = 1 << 20
MESSAGE_MIB_MAX = 15  # an entry has at most 16, with attributes and what we keep beside it


@unique
class DenialReason(Enum):
    """What a group is denied."""

    GROUP_FORBIDDEN = auto()  # the topic
    CONTENT_FORBIDDEN = auto()  # the topic with these filters


class ConsumeDenial(NamedTuple):
    """Why a group may not read a topic."""

    reason: DenialReason
    text: str


class FlowControl(NamedTuple):
    """A flow control: the id that clients compare, the text they get, and the parsed rules."""

    id: int
    text: str
    rules: FlowRules


NO_FLOW_CONTROL = FlowControl(NO_FLOW_ID, "", NO_RULES)


class ChangeStamp(msgspec.Struct, frozen=True, omit_defaults=True):
    """The author and the time (ms) of a change."""

    made_by: str = ""
    made_ms: int = 0
    changed_by: str = ""
    changed_ms: int = 0


class FlowControlText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flow control as it was set; it may be stored without being in force."""

    id: int = NO_FLOW_ID
    text: str = ""
    holds: bool = False


class ClusterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rules for all groups, and for topics without rules of their own."""

    flow: FlowControlText = FlowControlText()
    message_mib_max: int = 0  # of the largest body; 0: the node's limit for all protocols
    stamp: ChangeStamp = ChangeStamp()


class BrokerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether this node takes messages of TubeMQ clients, and gives them out."""

    publishes: bool = True
    subscribes: bool = True
    stamp: ChangeStamp = ChangeStamp()


class TopicRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether groups need to be named to read a topic."""

    named_groups_only: bool = False
    stamp: ChangeStamp = ChangeStamp()


class TubeGroupRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for one group.

    A rate is how many brokers there may be for each member of a group; as there is one broker, any
    rate is kept.
    """

    flow: FlowControlText = FlowControlText()
    checks_rate: bool = False
    rate: int = 0
    stamp: ChangeStamp = ChangeStamp()


class ConsumeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one group may do with one topic."""

    named: bool = True  # as one that may read a topic which only named groups may
    may: bool = True
    reason: str = ""  # why it may not
    filtered: bool = False  # only with filters, and only with these
    filters: tuple[str, ...] = ()
    stamp: ChangeStamp = ChangeStamp()


Record = ClusterRecord | BrokerRecord | TopicRecord | TubeGroupRecord | ConsumeRecord
R = TypeVar("R", ClusterRecord, BrokerRecord, TopicRecord, TubeGroupRecord, ConsumeRecord)
NO_TOPIC_RECORD = TopicRecord()
_NOTHING: Mapping[str, ConsumeRecord] = MappingProxyType({})


class GroupRules:
    """All of it, from meta's settings; changed through commits only."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.listeners: list[Callable[[], None]] = []  # called after every change
        self.cluster = ClusterRecord()
        self.broker = BrokerRecord()
        self.topics: dict[str, TopicRecord] = {}
        self.groups: dict[str, TubeGroupRecord] = {}
        self._consume: dict[str, dict[str, ConsumeRecord]] = {}  # by topic, by group
        self._consume_count = 0
        self._default_flow = NO_FLOW_CONTROL
        self._flows: dict[str, FlowControl] = {}
        self._texts: dict[str, str] = {}
        for key, text in settings.items():
            if key.startswith(RULE_KEYS):
                self._take(key, text)

    # -- queries of the gateway

    def may_consume(
        self, group: str, topic: TopicName, filters: Collection[str] = ()
    ) -> ConsumeDenial | None:
        """Return why a group may not read a topic with these filters; None: it may."""
        named = str(topic)
        record = self.consume(group, named)
        if record is not None and not record.may:
            why = f": {record.reason}" if record.reason else ""
            return ConsumeDenial(
                DenialReason.GROUP_FORBIDDEN,
                f"[Restricted Group] {group} is forbidden to consume {topic.name}{why}",
            )
        named_only = self.topics.get(named, NO_TOPIC_RECORD).named_groups_only
        if named_only and (record is None or not record.named):
            return ConsumeDenial(
                DenialReason.GROUP_FORBIDDEN,
                f"[unAuthorized Group] {group} is not authorized to consume {topic.name}",
            )
        if record is None:
            return None
        return _check_filters(record, group, topic, filters) if record.filtered else None

    def flow(self, group: str) -> FlowControl:
        """How fast a group may read, on top of the default."""
        return self._flows.get(group, NO_FLOW_CONTROL)

    @property
    def default_flow(self) -> FlowControl:
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
        """Whether a topic is visible to TubeMQ clients: an administrator may have hidden it.

        It is deleted, for other protocols too, when it is removed for good.
        """
        return TUBEMQ_DELETED not in topic.settings

    def message_size_max(self, topic: Topic) -> int:
        """Bytes of the largest message that TubeMQ clients may write to a topic.

        The topic's own setting goes before the one for all topics, and
        that before the node's setting for all protocols.
        """
        size = topic.partitions[0].message_size_max
        if SIZE_KEY in topic.settings:
            return size
        return self.cluster.message_mib_max * MIB or max(1, size - KAFKA_SLACK)

    # -- queries of administrators

    def consume(self, group: str, topic: str) -> ConsumeRecord | None:
        """Return the rule for a group and a topic (canonically named)."""
        return self._consume.get(topic, _NOTHING).get(group)

    def of_topic(self, topic: str) -> list[tuple[str, ConsumeRecord]]:
        """Return the rules for a topic by group, sorted."""
        return sorted(self._consume.get(topic, _NOTHING).items())

    def every_consume(self) -> Iterator[tuple[str, str, ConsumeRecord]]:
        """Return all of these rules as (group, topic, rule), sorted by topic and group."""
        for topic in sorted(self._consume):
            for group, record in self.of_topic(topic):
                yield group, topic, record

    # -- changes

    def plan_cluster(self, rules: ClusterRecord) -> MetadataChange[None]:
        """Decide what holds for all groups."""
        parse_rules(rules.flow.text)
        check_message_mib(rules.message_mib_max)
        return self._put(CLUSTER_KEY, rules)

    def plan_broker(self, rules: BrokerRecord) -> MetadataChange[None]:
        """Decide what this node does."""
        return self._put(BROKER_KEY, rules)

    def plan_topic(self, topic: TopicName, rules: TopicRecord | None) -> MetadataChange[None]:
        """Decide whether groups need to be named to read a topic; None forgets it."""
        if rules is None:
            return self._delete(f"{TOPIC_KEY}{topic}")
        if str(topic) not in self.topics:
            _check_room(self.topics)
        return self._put(f"{TOPIC_KEY}{topic}", rules)

    def plan_group(self, group: str, rules: TubeGroupRecord | None) -> MetadataChange[None]:
        """Decide what holds for a group; None forgets it."""
        check_group(group)
        if rules is None:
            return self._delete(GROUP_KEY + group)
        parse_rules(rules.flow.text)
        if group not in self.groups:
            _check_room(self.groups)
        return self._put(GROUP_KEY + group, rules)

    def plan_consume(
        self, group: str, topic: TopicName, rules: ConsumeRecord | None
    ) -> MetadataChange[None]:
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

    def _put(self, key: str, record: Record) -> MetadataChange[None]:
        text = msgspec.json.encode(record).decode()
        return plan_setting(key, self._texts.get(key), text, self.apply_setting)

    def _delete(self, key: str) -> MetadataChange[None]:
        return plan_setting(key, self._texts.get(key), None, self.apply_setting)

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that this node or another one wrote; None: it was deleted."""
        if text is None:
            self._forget(key)
        else:
            self._take(key, text)
        for listener in list(self.listeners):
            listener()

    def _take(self, key: str, text: str) -> None:
        self._texts[key] = text
        if key == CLUSTER_KEY:
            self.cluster = _read(key, text, ClusterRecord)
            self._default_flow = _flow(key, self.cluster.flow)
        elif key == BROKER_KEY:
            self.broker = _read(key, text, BrokerRecord)
        elif key.startswith(TOPIC_KEY):
            self.topics[key.removeprefix(TOPIC_KEY)] = _read(key, text, TopicRecord)
        elif key.startswith(GROUP_KEY):
            group = key.removeprefix(GROUP_KEY)
            self.groups[group] = record = _read(key, text, TubeGroupRecord)
            self._flows[group] = _flow(key, record.flow)
        else:
            group, _, topic = key.removeprefix(CONSUME_KEY).partition("/")
            groups = self._consume.setdefault(topic, {})
            self._consume_count += group not in groups
            groups[group] = _read(key, text, ConsumeRecord)

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


def next_flow_text(
    before: FlowControlText, text: str, *, holds: bool, now_ms: int
) -> FlowControlText:
    """Return a flow control whose id differs from the one before if anything else does."""
    if (text, holds) == (before.text, before.holds):
        return before
    return FlowControlText(max(now_ms, before.id + 1), text, holds)


def check_message_mib(size: int) -> int:
    """Return the size of the largest body in MiB, or refuse it; 0 is no limit of its own."""
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
    record: ConsumeRecord, group: str, topic: TopicName, filters: Collection[str]
) -> ConsumeDenial | None:
    if not record.filters:
        why = f"is not allowed to consume any data of topic {topic.name}"
    elif not filters:
        why = f"must set the filter conditions of topic {topic.name}"
    elif not set(filters) <= set(record.filters):
        other = sorted(set(filters) - set(record.filters))
        why = f"has unauthorized filter conditions for topic {topic.name}: {', '.join(other[:10])}"
    else:
        return None
    return ConsumeDenial(DenialReason.CONTENT_FORBIDDEN, f"[Restricted Group] {group} {why}")


def _check_filter_texts(filters: tuple[str, ...]) -> None:
    if len(filters) > FILTERS_MAX:
        raise InvalidSetting(f"there may be {FILTERS_MAX} filters")
    for each in filters:
        if not each or len(each) > FILTER_SIZE_MAX or "," in each:
            raise InvalidSetting(f"a filter has 1 to {FILTER_SIZE_MAX} characters and no comma")


def _check_room(records: Collection[object]) -> None:
    if len(records) >= RECORDS_MAX:
        raise InUse(f"there may be {RECORDS_MAX} of these rules")


def _flow(key: str, record: FlowControlText) -> FlowControl:
    if record.id == NO_FLOW_ID:
        return NO_FLOW_CONTROL
    if not record.holds or not record.text:
        return FlowControl(record.id, "", NO_RULES)
    try:
        return FlowControl(record.id, record.text, parse_rules(record.text))
    except InvalidSetting as error:
        raise CorruptLog(f"what meta keeps as {key} cannot be read") from error


def _read(key: str, text: str, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptLog(f"what meta keeps as {key} cannot be read") from error
