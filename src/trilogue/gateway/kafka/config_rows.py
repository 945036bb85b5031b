"""How one setting is told: its value, where that comes from, and what would hold without it.

A topic's setting that the topic does not say has the value of the broker's setting behind it; that
one is what was said for this node, for all nodes, by the node's own settings, or Kafka's default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from trilogue.broker.kafka_values import BrokerValues, Layer
from trilogue.broker.setting import Kind, Setting
from trilogue.broker.settings_table import TABLE as TOPICS
from trilogue.wire.kafka.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)


class Source(IntEnum):
    """Kafka's numbers for where a value comes from."""

    TOPIC = 1
    THIS_BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    GROUP = 8


SOURCES = {
    Layer.THIS_NODE: Source.THIS_BROKER,
    Layer.ALL_NODES: Source.ALL_BROKERS,
    Layer.NODE: Source.STATIC,
    Layer.DEFAULT: Source.DEFAULT,
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

Synonym = tuple[str, str, Source]  # name, value, where it comes from
Behind = dict[str, list[Synonym]]  # a topic's setting -> what holds where it is not said


def behind_topics(values: BrokerValues) -> Behind:
    """What holds for a topic that says nothing, by its settings; once for all topics asked for."""
    return {
        row.key: of_broker(values, row.broker_keys[0]) if row.broker_keys else []
        for row in TOPICS.values()
    }


def of_broker(values: BrokerValues, key: str) -> list[Synonym]:
    """Every value that a setting of the broker has, strongest first."""
    return [(key, value, SOURCES[layer]) for layer, value in values.layers(key)]


def topic_value(row: Setting, settings: Mapping[str, str], behind: Behind) -> tuple[str, Source]:
    """What holds for a topic with these settings, and why."""
    own = settings.get(row.key)
    if own is not None:
        return own, Source.TOPIC
    if behind[row.key]:
        _, value, source = behind[row.key][0]
        return value, source
    return row.default, Source.DEFAULT


def topic_synonyms(row: Setting, settings: Mapping[str, str], behind: Behind) -> list[Synonym]:
    """Every value that a topic's setting has, strongest first."""
    own = settings.get(row.key)
    said = [] if own is None else [(row.key, own, Source.TOPIC)]
    return said + behind[row.key]


def told(
    row: Setting,
    value: str | None,
    source: Source,
    synonyms: Iterable[Synonym],
    request: DescribeConfigsRequest,
) -> DescribeConfigsResourceResult:
    """One setting as the request wants it told."""
    secret = row.kind is Kind.PASSWORD
    return DescribeConfigsResourceResult(
        name=row.key,
        value=None if secret else value,
        read_only=row.fixed,
        is_default=source is Source.DEFAULT,
        config_source=source,
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if secret else each, source=of)
            for name, each, of in synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=TYPES[row.kind],
        documentation=row.doc if request.include_documentation else None,
    )
