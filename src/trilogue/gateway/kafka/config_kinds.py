"""The kinds of things that have settings, as DescribeConfigs and its family name them.

Each kind says how its settings are told, and plans how they change. Names and refusals are those
of a real server (3.9.1 and 4.3.1 side by side): wrong values of a broker's settings are an invalid
request (42), those of topics and groups an invalid config (40).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trilogue.broker.access import Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, InvalidName, InvalidRequest, InvalidSetting
from trilogue.broker.kafka_settings import BROKER, GROUPS
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.setting import Setting
from trilogue.broker.settings import Change, change_settings
from trilogue.broker.settings_table import TABLE as TOPICS
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.config_rows import (
    Behind,
    Source,
    behind_topics,
    of_broker,
    told,
    topic_synonyms,
    topic_value,
)
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import carry_out, kept
from trilogue.wire.kafka.configs import DescribeConfigsRequest, DescribeConfigsResourceResult

TOPIC, BROKER_KIND, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
CLUSTER = "cluster"

Changes = list[tuple[str, Change, str | None]]
Told = list[DescribeConfigsResourceResult]
Wanted = Sequence[str] | None  # names of settings; none: all
Carry = Callable[[], Promise[Any] | None]  # what is to be waited for, if anything


class Things(Protocol):
    """One kind of things that have settings."""

    def describe(
        self, call: Call, name: str, wanted: Wanted, request: DescribeConfigsRequest
    ) -> Told:
        """Tell the settings of one; a BrokerError when that cannot be."""

    async def alter(self, call: Call, name: str, changes: Changes, *, anew: bool) -> Carry:
        """Check a change, from nothing if `anew`, and return how to carry it out, at once."""


def check_cluster(call: Call) -> None:
    """Refuse who may not do that to the settings of the cluster."""
    if not call.may(call.operation, ResourceKind.CLUSTER, CLUSTER):
        raise AccessDenied(call.operation, Resource(ResourceKind.CLUSTER, CLUSTER))


def chosen(table: dict[str, Setting], wanted: Wanted) -> list[Setting]:
    """The rows that are asked for."""
    if not wanted:
        return list(table.values())
    return [row for key in dict.fromkeys(wanted) if (row := table.get(key)) is not None]


# ---- topics


class Topics:
    """Settings of topics, for one request: what topics say nothing about is told once for all."""

    def __init__(self) -> None:
        self._behind: Behind = {}
        self._asked: tuple[str, ...] | None = None
        self._unsaid: Told = []

    def describe(
        self, call: Call, name: str, wanted: Wanted, request: DescribeConfigsRequest
    ) -> Told:
        """Tell those that were said, and what holds for the others; the list may be shared."""
        settings = _find_topic(call, name).settings
        asked = tuple(wanted or ())
        if asked != self._asked:  # most requests have one question for all topics
            self._behind = self._behind or behind_topics(call.broker.values)
            self._unsaid = [self._row(row, {}, request) for row in chosen(TOPICS, wanted)]
            self._asked = asked
        if settings.keys().isdisjoint(TOPICS):
            return self._unsaid
        return [
            self._row(TOPICS[each.name], settings, request) if each.name in settings else each
            for each in self._unsaid
        ]

    def _row(
        self, row: Setting, settings: Mapping[str, str], request: DescribeConfigsRequest
    ) -> DescribeConfigsResourceResult:
        behind = self._behind
        value, source = topic_value(row, settings, behind)
        return told(row, value, source, topic_synonyms(row, settings, behind), request)

    async def alter(self, call: Call, name: str, changes: Changes, *, anew: bool) -> Carry:
        """Check a change when no other change of the topic is under way.

        What other protocols' administration keeps at a topic is not changed here, and stays.
        """
        if not name:
            raise InvalidRequest("there are no settings for all topics here: they are the broker's")
        topic = _find_topic(call, name)
        cluster = call.broker.cluster
        while (pending := cluster.altering(topic.name)) is not None:
            await kept(call, pending)
            topic = _find_topic(call, name)
        before = topic.settings
        if anew:
            before = {key: value for key, value in before.items() if key not in TOPICS}
        after = change_settings(before, changes)
        return lambda: carry_out(call, cluster.plan_alter(topic.name, after))


def _find_topic(call: Call, spelled: str) -> Topic:
    name = _topic_name(spelled)
    if not call.allowed(name):
        raise AccessDenied(call.operation, Resource(call.kind, str(name)))
    return call.broker.cluster.topic(name)


def _topic_name(spelled: str) -> TopicName:
    if not spelled:
        raise InvalidName("a topic's name is not empty")
    return parse_kafka(spelled)


# ---- brokers


class Brokers:
    """Settings of this broker, by its number, and of all brokers, by the empty name."""

    def describe(
        self, call: Call, name: str, wanted: Wanted, request: DescribeConfigsRequest
    ) -> Told:
        """Tell every setting of this broker, or those that were said for all brokers."""
        check_cluster(call)
        values, found = call.broker.values, []
        if not name:
            said = values.said(all_nodes=True)
            for row in chosen(BROKER, wanted):
                if row.key in said:
                    one = (row.key, said[row.key], Source.ALL_BROKERS)
                    found.append(told(row, one[1], one[2], [one], request))
            return found
        check_node(call, name)
        for row in chosen(BROKER, wanted):
            every = of_broker(values, row.key)
            value, source = (every[0][1], every[0][2]) if every else (None, Source.DEFAULT)
            found.append(told(row, value, source, every, request))
        return found

    async def alter(self, call: Call, name: str, changes: Changes, *, anew: bool) -> Carry:
        """Check a change of what was said for this broker or for all."""
        check_cluster(call)
        if name:
            check_node(call, name)
        values, all_nodes = call.broker.values, not name
        while (pending := values.altering(all_nodes=all_nodes)) is not None:
            await kept(call, pending)
        after = values.check(changes, all_nodes=all_nodes, anew=anew)
        return lambda: carry_out(call, values.plan_alter(after, all_nodes=all_nodes))


def check_node(call: Call, name: str) -> None:
    """Refuse the number of a broker that is not this one."""
    node_id = call.broker.cluster.node_id
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise InvalidRequest(f"the number of a broker is needed, not {name[:60]!r}")
    if int(name) != node_id:
        raise InvalidRequest(f"this is broker {node_id}, not {int(name)}")


# ---- groups


class Groups:
    """Settings of KIP-848 groups, which need not exist yet."""

    def describe(
        self, call: Call, name: str, wanted: Wanted, request: DescribeConfigsRequest
    ) -> Told:
        """Tell what holds for a group."""
        _check_group(call, name)
        said, found = call.broker.group_values.said(name), []
        for row in chosen(GROUPS, wanted):
            every = of_broker(call.broker.values, f"group.{row.key}")
            if row.key in said:
                every.insert(0, (row.key, said[row.key], Source.GROUP))
            found.append(told(row, every[0][1], every[0][2], every, request))
        return found

    async def alter(self, call: Call, name: str, changes: Changes, *, anew: bool) -> Carry:
        """Check a change of what was said of a group."""
        _check_group(call, name)
        groups = call.broker.group_values
        while (pending := groups.altering(name)) is not None:
            await kept(call, pending)
        after = groups.check(name, changes, anew=anew)
        for key, value in after.items():
            _check_bounds(call, key, int(value))
        return lambda: carry_out(call, groups.plan_alter(name, after))


def _check_group(call: Call, name: str) -> None:
    if not name:
        raise InvalidRequest("the name of a group is needed")
    if not call.may(call.operation, ResourceKind.GROUP, name):
        raise AccessDenied(call.operation, Resource(ResourceKind.GROUP, name))


def _check_bounds(call: Call, key: str, value: int) -> None:
    """Refuse what is not between the broker's least and its largest."""
    what = key.removeprefix("consumer.")
    low, high = (
        int(call.broker.values.value(f"group.consumer.{bound}.{what}") or 0)
        for bound in ("min", "max")
    )
    if not low <= value <= high:
        raise InvalidSetting(f"{key}: {low} to {high} are possible")
