"""Kafka Streams 4.3.1 with the streams protocol (KIP-1071), through restarts of both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.conformance.clients.kafka_apps import WordCount
from tests.conformance.kafka.programs.test_streams import (
    CHANGELOG,
    PARTITIONS,
    REPARTITION,
    Lines,
    counted,
    make_topics,
    streams,
    write,
)

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def app(broker: Broker, root: Path, **settings: object) -> WordCount:
    return streams(broker, root, "4.3.1", group__protocol="streams", **settings)


def test_words_are_counted_by_a_streams_group(own_broker: Broker, tmp_path: Path):
    admin = make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(500))

    with app(own_broker, tmp_path) as one:
        counted(own_broker.address, lines)
        one.close()

    topics = admin.list_topics(timeout=10).topics
    assert len(topics[REPARTITION].partitions) == PARTITIONS
    assert len(topics[CHANGELOG].partitions) == PARTITIONS
