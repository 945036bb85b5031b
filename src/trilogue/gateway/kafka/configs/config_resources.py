"""The types of config resources: topics, brokers and groups (loggers.py has the others).

Each type describes its settings and plans their changes. Names and refusals are those of Kafka
3.9.1 and 4.3.1: an invalid value of a broker setting is 42, of a topic or group setting 40.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trilogue.broker.access.authorizer import Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, InvalidName, InvalidRequest, InvalidSetting
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.settings.broker_table import BROKER, GROUPS
from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.topic_settings import Change, change_settings
from trilogue.broker.settings.topic_table import TABLE as TOPICS
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.configs.config_entries import (
    Source,
    TopicDefaults,
    broker_synonyms,
    describe_entry,
    topic_defaults,
    topic_synonyms,
    topic_value,
)
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.metadata_changes import start_change
from trilogue.gateway.kafka.topics.replication import check_min_in_sync
from trilogue.gateway.steps import wait_until_settled
from trilogue.wire.kafka.configs.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
)

TOPIC, BROKER_KIND, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
CLUSTER = "cluster"

Changes = list[tuple[str, Change, str | None]]
ConfigEntries = list[DescribeConfigsResourceResult]
ConfigKeys = Sequence[str] | None  # names of settings; None or empty: all
# starts the checked change; returns its promise, or None if nothing is recorded
StartChange = Callable[[], Promise[Any] | None]


class ConfigResources(Protocol):
    """One type of config resource."""

    def describe(
        self, context: RequestContext, name: str, keys: ConfigKeys, request: DescribeConfigsRequest
    ) -> ConfigEntries:
        """Return the settings of one resource; raises BrokerError."""

    async def alter(
        self, context: RequestContext, name: str, changes: Changes, *, replace: bool
    ) -> StartChange:
        """Check a change; return the function that starts it. `replace` drops other overrides."""


def check_cluster(context: RequestContext) -> None:
    """Raise AccessDenied if the client may not do this to settings of the cluster."""
    if not context.is_allowed_to(context.operation, ResourceKind.CLUSTER, CLUSTER):
        raise AccessDenied(context.operation, Resource(ResourceKind.CLUSTER, CLUSTER))


def select_settings(table: dict[str, Setting], keys: ConfigKeys) -> list[Setting]:
    """Return the requested rows of a table of settings."""
    if not keys:
        return list(table.values())
    return [row for key in dict.fromkeys(keys) if (row := table.get(key)) is not None]


# ---- topics


class TopicConfigs:
    """Settings of topics, for one request; entries of settings without overrides are shared."""

    def __init__(self) -> None:
        self._defaults: TopicDefaults = {}
        self._keys: tuple[str, ...] | None = None
        self._default_entries: ConfigEntries = []

    def describe(
        self, context: RequestContext, name: str, keys: ConfigKeys, request: DescribeConfigsRequest
    ) -> ConfigEntries:
        """Return the settings of a topic; the list may be shared between topics."""
        settings = _find_topic(context, name).settings
        requested = tuple(keys or ())
        if requested != self._keys:  # most requests have the same keys for all topics
            self._defaults = self._defaults or topic_defaults(context.broker.values)
            self._default_entries = [
                self._row(row, {}, request) for row in select_settings(TOPICS, keys)
            ]
            self._keys = requested
        if settings.keys().isdisjoint(TOPICS):
            return self._default_entries
        return [
            self._row(TOPICS[each.name], settings, request) if each.name in settings else each
            for each in self._default_entries
        ]

    def _row(
        self, row: Setting, settings: Mapping[str, str], request: DescribeConfigsRequest
    ) -> DescribeConfigsResourceResult:
        defaults = self._defaults
        value, source = topic_value(row, settings, defaults)
        return describe_entry(row, value, source, topic_synonyms(row, settings, defaults), request)

    async def alter(
        self, context: RequestContext, name: str, changes: Changes, *, replace: bool
    ) -> StartChange:
        """Check a change once no other change of the topic is in progress.

        Settings of other protocols' administration at the topic are kept.
        """
        if not name:
            raise InvalidRequest("there are no settings for all topics here: they are the broker's")
        topic = _find_topic(context, name)
        cluster = context.broker.cluster
        while (pending := cluster.pending_change(topic.name)) is not None:
            await wait_until_settled(pending)
            topic = _find_topic(context, name)
        before = topic.settings
        if replace:
            before = {key: value for key, value in before.items() if key not in TOPICS}
        after = change_settings(before, check_min_in_sync(context, name, changes))
        return lambda: start_change(context, cluster.plan_alter(topic.name, after))


def _find_topic(context: RequestContext, spelled: str) -> Topic:
    name = _topic_name(spelled)
    if not context.is_allowed(name):
        raise AccessDenied(context.operation, Resource(context.kind, str(name)))
    return context.broker.cluster.topic(name)


def _topic_name(spelled: str) -> TopicName:
    if not spelled:
        raise InvalidName("a topic's name is not empty")
    return parse_kafka(spelled)


# ---- brokers


class BrokerConfigs:
    """Settings of this broker (by its id) and of all brokers (by the empty name)."""

    def describe(
        self, context: RequestContext, name: str, keys: ConfigKeys, request: DescribeConfigsRequest
    ) -> ConfigEntries:
        """Return all settings of this broker, or the overrides for all brokers."""
        check_cluster(context)
        values, entries = context.broker.values, []
        if not name:
            overrides = values.overrides(all_nodes=True)
            for row in select_settings(BROKER, keys):
                if row.key in overrides:
                    one = (row.key, overrides[row.key], Source.ALL_BROKERS)
                    entries.append(describe_entry(row, one[1], one[2], [one], request))
            return entries
        check_node(context, name)
        for row in select_settings(BROKER, keys):
            every = broker_synonyms(values, row.key)
            value, source = (every[0][1], every[0][2]) if every else (None, Source.DEFAULT)
            entries.append(describe_entry(row, value, source, every, request))
        return entries

    async def alter(
        self, context: RequestContext, name: str, changes: Changes, *, replace: bool
    ) -> StartChange:
        """Check a change of the overrides of this broker, or of all brokers."""
        check_cluster(context)
        if name:
            check_node(context, name)
        values, all_nodes = context.broker.values, not name
        while (pending := values.pending_change(all_nodes=all_nodes)) is not None:
            await wait_until_settled(pending)
        after = values.check(changes, all_nodes=all_nodes, replace=replace)
        return lambda: start_change(context, values.plan_alter(after, all_nodes=all_nodes))


def check_node(context: RequestContext, name: str) -> None:
    """Raise InvalidRequest for any broker id but this one's."""
    node_id = context.broker.cluster.node_id
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise InvalidRequest(f"the number of a broker is needed, not {name[:60]!r}")
    if int(name) != node_id:
        raise InvalidRequest(f"this is broker {node_id}, not {int(name)}")


# ---- groups


class GroupConfigs:
    """Settings of KIP-848 groups and share groups, which need not exist yet."""

    def describe(
        self, context: RequestContext, name: str, keys: ConfigKeys, request: DescribeConfigsRequest
    ) -> ConfigEntries:
        """Return the effective settings of a group."""
        _check_group(context, name)
        overrides, entries = context.broker.group_values.overrides(name), []
        for row in select_settings(GROUPS, keys):
            every = _group_defaults(context, row)
            if row.key in overrides:
                every.insert(0, (row.key, overrides[row.key], Source.GROUP))
            entries.append(describe_entry(row, every[0][1], every[0][2], every, request))
        return entries

    async def alter(
        self, context: RequestContext, name: str, changes: Changes, *, replace: bool
    ) -> StartChange:
        """Check a change of a group's overrides."""
        _check_group(context, name)
        groups = context.broker.group_values
        while (pending := groups.pending_change(name)) is not None:
            await wait_until_settled(pending)
        after = groups.check(name, changes, replace=replace)
        for key, value in after.items():
            _check_bounds(context, key, value)
        return lambda: start_change(context, groups.plan_alter(name, after))


def _check_group(context: RequestContext, name: str) -> None:
    if not name:
        raise InvalidRequest("the name of a group is needed")
    if not context.is_allowed_to(context.operation, ResourceKind.GROUP, name):
        raise AccessDenied(context.operation, Resource(ResourceKind.GROUP, name))


def _group_defaults(context: RequestContext, row: Setting) -> list[tuple[str, str, Source]]:
    """Return the values that hold without an override: the broker's, if it has such a setting."""
    if f"group.{row.key}" in BROKER:
        return broker_synonyms(context.broker.values, f"group.{row.key}")
    return [(row.key, row.default, Source.DEFAULT)]


def _check_bounds(context: RequestContext, key: str, value: str) -> None:
    """Raise InvalidSetting outside the bounds that the broker's settings give."""
    kind, _, name = key.partition(".")
    bounds = [f"group.{kind}.{bound}.{name}" for bound in ("min", "max")]
    if bounds[0] not in BROKER:
        return
    low, high = (int(context.broker.values.value(bound) or 0) for bound in bounds)
    if not low <= int(value) <= high:
        raise InvalidSetting(f"{key}: {low} to {high} are possible")
