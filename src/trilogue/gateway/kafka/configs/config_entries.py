"""One setting in a DescribeConfigs response: its value, the value's source, and its synonyms.

A topic's setting without an override has the value of the broker's setting behind it. That value
comes from an override of this broker, an override of all brokers, the node's own settings, or
Kafka's default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from trilogue.broker.settings.broker_values import BrokerValues, SettingSource
from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.topic_table import TABLE as TOPICS
from trilogue.broker.settings.values import Kind
from trilogue.wire.kafka.configs.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)


class Source(IntEnum):
    """Kafka's numbers for the source of a value."""

    TOPIC = 1
    THIS_BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    GROUP = 8


SOURCES = {
    SettingSource.THIS_NODE: Source.THIS_BROKER,
    SettingSource.ALL_NODES: Source.ALL_BROKERS,
    SettingSource.NODE_SETTINGS: Source.STATIC,
    SettingSource.DEFAULT: Source.DEFAULT,
}
TYPES = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.SHORT: 4,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
    Kind.CLASS: 8,
    Kind.PASSWORD: 9,
}

Synonym = tuple[str, str, Source]  # name, value, source
# a topic's setting -> its synonyms where the topic has no override
TopicDefaults = dict[str, list[Synonym]]


def topic_defaults(values: BrokerValues) -> TopicDefaults:
    """Return the synonyms of every topic setting without overrides, shared by all topics."""
    return {
        row.key: broker_synonyms(values, row.broker_keys[0]) if row.broker_keys else []
        for row in TOPICS.values()
    }


def broker_synonyms(values: BrokerValues, key: str) -> list[Synonym]:
    """Return every value of a broker setting, highest precedence first."""
    return [(key, value, SOURCES[layer]) for layer, value in values.values_by_source(key)]


def topic_value(
    row: Setting, settings: Mapping[str, str], defaults: TopicDefaults
) -> tuple[str, Source]:
    """Return the effective value of a topic's setting, and its source."""
    own = settings.get(row.key)
    if own is not None:
        return own, Source.TOPIC
    if defaults[row.key]:
        _, value, source = defaults[row.key][0]
        return value, source
    return row.default, Source.DEFAULT


def topic_synonyms(
    row: Setting, settings: Mapping[str, str], defaults: TopicDefaults
) -> list[Synonym]:
    """Return every value of a topic's setting, highest precedence first."""
    own = settings.get(row.key)
    override = [] if own is None else [(row.key, own, Source.TOPIC)]
    return override + defaults[row.key]


def describe_entry(
    row: Setting,
    value: str | None,
    source: Source,
    synonyms: Iterable[Synonym],
    request: DescribeConfigsRequest,
) -> DescribeConfigsResourceResult:
    """Return one setting with what the request includes."""
    secret = row.is_secret
    return DescribeConfigsResourceResult(
        name=row.key,
        value=None if secret else value,
        read_only=row.is_read_only,
        is_default=source is Source.DEFAULT,
        config_source=source,
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if secret else each, source=origin)
            for name, each, origin in synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=TYPES[row.kind],
        documentation=row.doc if request.include_documentation else None,
    )
