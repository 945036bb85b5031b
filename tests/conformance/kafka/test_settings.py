"""Settings of brokers, loggers and groups, and which of a topic's are taken, by foreign clients.

Each refusal is the real server's too: the same table runs on it (TRILOGUE_TEST_REAL=1). What holds
for a whole broker is changed on a broker of the test's own.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from kafka.admin import AlterConfigOp, ConfigResourceType, KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource

from tests.brokers import Broker
from tests.conformance.clients import JAVA, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.kafka.test_configs import call_admin, change, described, entry
from tests.server import count_nodes
from tests.waiting import wait_until

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
BROKER = "1"
API_VERSIONS = 18

OF_PROGRAMS = {
    "segment.bytes": "1048576",  # Kafka Streams' changelogs
    "segment.ms": "600000",
    "segment.index.bytes": "1048576",
    "retention.ms": "-1",
    "cleanup.policy": "compact,delete",
    "min.insync.replicas": "1",  # Connect's own topics
    "unclean.leader.election.enable": "false",
    "message.timestamp.type": "CreateTime",
    "delete.retention.ms": "900",
    "min.compaction.lag.ms": "0",
    "file.delete.delay.ms": "1000",
    "flush.messages": "1",
    "index.interval.bytes": "8192",
    "preallocate": "false",
    "compression.type": "lz4",
}


def test_topics_are_created_with_configs_of_programs(address: str, topic: str):
    call_admin(address, "create_topics", NewTopic(topic, 2, 1, config=OF_PROGRAMS))

    response = described(address, topic)
    assert {key: response[key].value for key in OF_PROGRAMS} == OF_PROGRAMS
    Confluent().write(address, topic, [Record(b"k", b"v")])
    assert [each.value for each in Confluent().read(address, topic, 1)] == [b"v"]


REFUSED_OF_TOPICS = [
    (("retention.ms", "soon", SET), "INVALID_CONFIG"),
    (("retention.ms", "-2", SET), "INVALID_CONFIG"),
    (("retention.ms", "5", APPEND), "INVALID_CONFIG"),
    (("cleanup.policy", "vanish", APPEND), "INVALID_CONFIG"),
    (("compression.type", "zip", SET), "INVALID_CONFIG"),
    (("compression.gzip.level", "0", SET), "INVALID_CONFIG"),
    (("segment.bytes", "1", SET), "INVALID_CONFIG"),
    (("remote.storage.enable", "true", SET), "INVALID_CONFIG"),
    (("message.timestamp.after.max.ms", "-1", SET), "INVALID_CONFIG"),
    (("no.such", "1", SET), "INVALID_CONFIG"),
]


@pytest.mark.parametrize(("wrong", "reason"), REFUSED_OF_TOPICS)
def test_a_topic_takes_no_other_values(address: str, topic: str, wrong, reason: str):
    call_admin(address, "create_topics", NewTopic(topic, 1, 1))

    with pytest.raises(KafkaException) as refused:
        change(address, topic, entry(wrong[0], wrong[1], wrong[2]))

    assert refused.value.args[0].name() == reason
    assert described(address, topic)["retention.ms"].is_default


def test_lists_grow_and_shrink(address: str, topic: str):
    call_admin(address, "create_topics", NewTopic(topic, 1, 1))

    change(address, topic, entry("cleanup.policy", "compact", APPEND))
    both = described(address, topic)["cleanup.policy"].value
    change(address, topic, entry("cleanup.policy", "delete", SUBTRACT))

    assert both == "delete,compact"
    assert described(address, topic)["cleanup.policy"].value == "compact"


# ---- brokers


def of_broker(address: str) -> dict[str, ConfigEntry]:
    return call_admin(address, "describe_configs", ConfigResource("broker", BROKER))


def alter_broker(address: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource("broker", BROKER, incremental_configs=list(entries))
    call_admin(address, "incremental_alter_configs", resource)


def test_broker_describes_all_its_configs(address: str):
    reported = of_broker(address)

    assert reported["node.id"].value == BROKER
    assert reported["listeners"].value.startswith(f"PLAINTEXT://{address}")
    assert (reported["message.max.bytes"].value, reported["message.max.bytes"].is_read_only) == (
        "1048588",
        False,
    )
    assert reported["num.partitions"].is_read_only
    assert (reported["ssl.key.password"].value, reported["ssl.key.password"].is_sensitive) == (
        None,
        True,
    )
    assert len(reported) >= 314


REFUSED_OF_BROKERS = [
    ("num.partitions", "3"),
    ("message.max.bytes", "soon"),
    ("message.max.bytes", "-5"),
]


@pytest.mark.parametrize(("key", "value"), REFUSED_OF_BROKERS)
def test_a_broker_takes_no_other_values(address: str, key: str, value: str):
    with pytest.raises(KafkaException) as refused:
        alter_broker(address, entry(key, value))

    assert refused.value.args[0].name() == "INVALID_REQUEST"
    assert of_broker(address)[key].value != value


def test_broker_configs_apply_to_topics_at_once_and_after_a_kill(own_broker: Broker, topic: str):
    address = own_broker.address
    call_admin(address, "create_topics", NewTopic(topic, 1, 1))

    alter_broker(address, entry("message.max.bytes", "500"), entry("log.retention.bytes", "7000"))

    def refused() -> bool:
        try:
            Confluent().write(address, topic, [Record(b"k", b"x" * 900)])
        except (AssertionError, KafkaException):
            return True
        return False

    wait_until(refused)
    own_broker.kill9()
    own_broker.start()
    assert refused()
    response = described(address, topic)["retention.bytes"]
    assert (response.value, response.source) == ("7000", 2)
    alter_broker(address, entry("message.max.bytes", None, DELETE))
    wait_until(lambda: not refused())


# ---- by kafka-python: everything that has settings


@contextmanager
def python(address: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        yield client
    finally:
        client.close()


def altered(client: KafkaAdminClient, kind: ConfigResourceType, name: str, **values: object) -> str:
    """Change settings one by one; return the broker's result: OK, or its error with its text."""
    configs = {key.replace("_", "."): value for key, value in values.items()}
    resource = PythonResource(kind, name, configs)
    done = client.alter_configs([resource], raise_on_unknown=False)
    return done[kind.name.lower()][name]


def describe(client: KafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, object]:
    found = client.describe_configs([PythonResource(kind, name)], config_filter="all")
    return {key: each["value"] for key, each in found[kind.name.lower()][name].items()}


@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [
        ("root", "DEBUG", "OK"),
        ("root", "LOUD", "InvalidConfig"),
        ("no.such.logger", "DEBUG", "InvalidConfig"),
        ("root", (AlterConfigOp.APPEND, "DEBUG"), "InvalidRequest"),
        ("root", (AlterConfigOp.DELETE, None), "InvalidRequest"),
    ],
)
def test_logger_levels_are_described_and_altered(address: str, name, level, reason: str):
    loggers = ConfigResourceType.BROKER_LOGGER
    with python(address) as client:
        before = describe(client, loggers, BROKER)["root"]

        done = altered(client, loggers, BROKER, **{name: level})

        assert reason in done
        after = describe(client, loggers, BROKER)["root"]
        assert after == (level if reason == "OK" else before)
        assert altered(client, loggers, BROKER, root=before) == "OK"


def test_things_with_settings_are_listed(address: str, topic: str):
    """Version 1; with a 3.9.1, which does not support it, the client requests client metrics."""
    call_admin(address, "create_topics", NewTopic(topic, 1, 1))
    with python(address) as client:
        found = client.list_config_resources(["topic", "broker"])
    if not found:
        pytest.skip("the broker is older than this request")

    assert topic in found["topic"]
    assert found["broker"] == [str(int(BROKER) + each) for each in range(count_nodes())]


# ---- by Kafka's own tools


class Tool:
    """kafka-configs.sh and kafka-topics.sh of one version, on one broker."""

    def __init__(self, java: Java, address: str) -> None:
        self.java = java
        self.place = f"--bootstrap-server={address}"

    def configs(self, kind: str, *arguments: str) -> str:
        kinds = f"--entity-type={kind}"
        return self.java.run("kafka.admin.ConfigCommand", self.place, kinds, *arguments)

    def topics(self, *arguments: str) -> str:
        return self.java.run("org.apache.kafka.tools.TopicCommand", self.place, *arguments)


@pytest.mark.java
@pytest.mark.parametrize("java", JAVA, ids=[java.name for java in JAVA])
def test_kafka_configs_resizes_pools(own_broker: Broker, java: Java):
    """A broker without such pools takes, shows and forgets their sizes."""
    tool = Tool(java, own_broker.address)
    one = f"--entity-name={BROKER}"
    pools = {"num.io.threads": 10, "num.network.threads": 4, "background.threads": 12}
    pools |= {"log.cleaner.threads": 2, "num.recovery.threads.per.data.dir": 2}
    pools |= {"num.replica.fetchers": 2, "log.cleaner.io.buffer.size": 600_000}
    added = ",".join(f"{key}={value}" for key, value in pools.items())

    tool.configs("brokers", one, "--alter", f"--add-config={added}")
    shown = tool.configs("brokers", one, "--describe")
    with pytest.raises(AssertionError):
        tool.configs("brokers", one, "--alter", "--add-config=num.io.threads=0")
    tool.configs("brokers", one, "--alter", f"--delete-config={','.join(pools)}")

    assert [key for key in pools if f"DYNAMIC_BROKER_CONFIG:{key}={pools[key]}" not in shown] == []
    assert "num.io.threads" not in tool.configs("brokers", one, "--describe")


@pytest.mark.java
@pytest.mark.parametrize("java", JAVA, ids=[java.name for java in JAVA])
def test_kafka_configs_bounds_the_cleaner_and_idle_producers(own_broker: Broker, java: Java):
    tool = Tool(java, own_broker.address)
    one = f"--entity-name={BROKER}"
    wanted = {"log.cleaner.dedupe.buffer.size": 20_000_000, "producer.id.expiration.ms": 60_000}
    wanted["log.cleaner.io.max.bytes.per.second"] = 5_000_000
    added = ",".join(f"{key}={value}" for key, value in wanted.items())

    tool.configs("brokers", one, "--alter", f"--add-config={added}")
    shown = tool.configs("brokers", one, "--describe")
    with pytest.raises(AssertionError):
        tool.configs("brokers", one, "--alter", "--add-config=producer.id.expiration.ms=0")
    tool.configs("brokers", one, "--alter", f"--delete-config={','.join(wanted)}")

    for key, value in wanted.items():
        assert f"DYNAMIC_BROKER_CONFIG:{key}={value}" in shown
    assert "producer.id.expiration.ms" not in tool.configs("brokers", one, "--describe")


@pytest.mark.java
def test_kafka_configs_bounds_the_connections_of_one_address(own_broker: Broker):
    tool = Tool(JAVA[-1], own_broker.address)
    one = f"--entity-name={BROKER}"
    added = "--add-config=max.connections.per.ip.overrides=[127.0.0.2:1]"
    tool.configs("brokers", one, "--alter", added)
    host, _, port = own_broker.address.rpartition(":")

    request = struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1)

    with contextlib.ExitStack() as stack:
        answers = []
        for _ in range(2):
            made = socket.create_connection((host, int(port)), 60, ("127.0.0.2", 0))
            stack.enter_context(made)
            with contextlib.suppress(OSError):
                made.sendall(request)
            try:
                answers.append(len(made.recv(4)))
            except ConnectionResetError:
                answers.append(0)

    assert answers == [4, 0]
    tool.configs("brokers", one, "--describe")  # other addresses are served


@pytest.mark.java
@pytest.mark.parametrize("java", JAVA, ids=[java.name for java in JAVA])
def test_kafka_configs_alters_and_describes_broker_configs(
    own_broker: Broker, topic: str, java: Java
):
    tool = Tool(java, own_broker.address)
    one = f"--entity-name={BROKER}"

    tool.configs("brokers", one, "--alter", "--add-config=message.max.bytes=5000")
    tool.configs("brokers", "--entity-default", "--alter", "--add-config=log.retention.bytes=7000")
    tool.topics("--create", f"--topic={topic}", "--config=segment.bytes=1048576")

    assert "DYNAMIC_BROKER_CONFIG:message.max.bytes=5000" in tool.configs(
        "brokers", one, "--describe"
    )
    everywhere = tool.configs("brokers", "--entity-default", "--describe")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.bytes=7000" in everywhere
    every = tool.configs("topics", f"--entity-name={topic}", "--describe", "--all")
    assert "max.message.bytes=5000" in every
    assert "retention.bytes=7000" in every
    assert "segment.bytes=1048576" in tool.topics("--describe", f"--topic={topic}")
    tool.configs("brokers", one, "--alter", "--delete-config=message.max.bytes")
    assert "message.max.bytes" not in tool.configs("brokers", one, "--describe")


@pytest.mark.java
@pytest.mark.parametrize("java", JAVA, ids=[java.name for java in JAVA])
def test_kafkas_tools_show_and_change_levels_of_loggers(own_broker: Broker, java: Java):
    tool = Tool(java, own_broker.address)
    one = f"--entity-name={BROKER}"

    tool.configs("broker-loggers", one, "--alter", "--add-config=root=WARN")

    assert "root=WARN" in tool.configs("broker-loggers", one, "--describe")


@pytest.mark.java
def test_kafkas_newest_tool_gives_a_group_settings_of_its_own(own_broker: Broker):
    """4.3.1: the first whose tool does."""
    if own_broker.name != "trilogue":
        pytest.skip("a 3.9.1 has no settings of groups")
    tool = Tool(JAVA[1], own_broker.address)
    one = "--entity-name=g"

    tool.configs("groups", one, "--alter", "--add-config=consumer.session.timeout.ms=50000")

    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in tool.configs(
        "groups", "--describe"
    )
