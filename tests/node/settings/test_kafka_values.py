"""A node's settings under Kafka's names, and changes of them by clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.gateway.test_listener import EchoGateway
from tests.server import start_server
from trilogue.broker.settings.broker_table import BROKER
from trilogue.broker.settings.broker_values import BrokerValues
from trilogue.broker.settings.topic_settings import Change
from trilogue.gateway.listener import Listener
from trilogue.gateway.stream import Limits
from trilogue.meta.memory import MemoryMeta
from trilogue.node.settings.kafka_values import follow_values, set_addresses, set_node_values
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import BY_KEY

DEADLINE = 30.0


def values() -> tuple[BrokerValues, MemoryMeta]:
    meta = MemoryMeta(bytes(16), node_id=1, node_epoch=1)
    return BrokerValues(meta.state.settings, 1, apply_to_topics=lambda _said: None), meta


def test_live_values_are_in_the_table_and_follow_node_settings():
    constants, _ = values()
    own = load_settings(
        environment={},
        assignments=[
            "frames.limit=2MiB",
            "topics.auto-create=false",
            "kafka.sasl-session=10s",
            "kafka.sasl-mechanisms=PLAIN, SCRAM-SHA-512",
        ],
    )

    set_node_values(constants, own, 5)
    set_addresses(constants, "127.0.0.1:1", lambda: ("example", 2))

    assert constants.live.keys() <= BROKER.keys()
    assert constants.value("socket.request.max.bytes") == "2097152"
    assert constants.value("auto.create.topics.enable") == "false"
    assert constants.value("fetch.max.bytes") == "5"
    assert constants.value("listeners") == "PLAINTEXT://127.0.0.1:1"
    assert constants.value("connections.max.idle.ms") == "600000"
    assert constants.value("connections.max.reauth.ms") == "10000"
    assert constants.value("sasl.enabled.mechanisms") == "PLAIN,SCRAM-SHA-512"


@pytest.mark.parametrize("row", BROKER.values(), ids=BROKER)
def test_a_reason_that_names_a_setting_of_the_node_names_one_that_is_there(row):
    named = {part for part in row.doc.split("`")[1::2] if "." in part}

    assert named <= BY_KEY.keys() | BROKER.keys()


class Pace:
    """Notes how often compaction is to look, in seconds, and its limits."""

    def __init__(self):
        self.intervals: list[float] = []
        self.map_bytes = self.bytes_per_second = -1

    def look_every(self, seconds: float) -> None:
        self.intervals.append(seconds)


def test_node_applies_the_latest_overrides():
    constants, meta = values()
    constants.live["max.connections"] = lambda: "10"
    constants.live["log.cleaner.backoff.ms"] = lambda: "1000"
    listener, pace = Listener(EchoGateway(), Limits(), monotonic=lambda: 0.0), Pace()
    follow_values(constants, listener, pace)
    at_first = listener.limits.connections

    changes = [
        ("max.connections", Change.SET, "3"),
        ("log.cleaner.backoff.ms", Change.SET, "1"),
        ("log.cleaner.dedupe.buffer.size", Change.SET, "1000000"),
        ("log.cleaner.io.max.bytes.per.second", Change.SET, "2e6"),
        ("max.connections.per.ip.overrides", Change.SET, "10.0.0.1:5"),
    ]
    unlimited = pace.bytes_per_second
    commit = constants.plan_alter(
        constants.check(changes, all_nodes=True, replace=False), all_nodes=True
    )
    meta.write_now(commit.ops(), commit.preconditions)
    commit.apply()

    assert (at_first, listener.limits.connections) == (10, 3)
    assert pace.intervals == [1.0, 0.1]
    assert (unlimited, pace.bytes_per_second, pace.map_bytes) == (0, 2_000_000, 1_000_000)
    assert listener.limits.connections_of == {"10.0.0.1": 5}


def test_running_node_describes_its_addresses_and_keeps_overrides(tmp_path: Path):
    with start_server(tmp_path / "data", topics__max_entry="5000") as server:
        first = described(server.kafka)
        alter_broker(
            server.kafka, ConfigEntry("log.preallocate", "true", incremental_operation=SET)
        )
    with start_server(tmp_path / "data") as again:
        second = described(again.kafka)

        assert first["listeners"].value == f"PLAINTEXT://{server.kafka}"
        assert first["log.dirs"].value == str(tmp_path / "data")
        assert (first["message.max.bytes"].value, first["message.max.bytes"].source) == ("5000", 4)
        assert (second["log.preallocate"].value, second["log.preallocate"].source) == ("true", 2)


SET = AlterConfigOpType.SET


def described(address: str) -> dict[str, ConfigEntry]:
    client = AdminClient({"bootstrap.servers": address})
    (done,) = client.describe_configs([ConfigResource("broker", "1")]).values()
    return done.result(DEADLINE)


def alter_broker(address: str, *entries: ConfigEntry) -> None:
    client = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource("broker", "1", incremental_configs=list(entries))
    (done,) = client.incremental_alter_configs([resource]).values()
    done.result(DEADLINE)
