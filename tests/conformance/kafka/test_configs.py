"""Settings of existing topics, described and altered by foreign admin clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, JAVA, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.server import start_server

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE


def call_admin(address: str, method: str, requested: object) -> object:
    """Have an admin client do one thing; it lives until that is done."""
    client = AdminClient({"bootstrap.servers": address})
    (done,) = getattr(client, method)([requested]).values()
    return done.result(DEADLINE)


@pytest.fixture
def made(address: str, topic: str) -> str:
    call_admin(address, "create_topics", NewTopic(topic, 1, 1))
    return topic


def described(address: str, topic: str) -> dict[str, ConfigEntry]:
    return call_admin(address, "describe_configs", ConfigResource("topic", topic))


def change(address: str, topic: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource("topic", topic, incremental_configs=list(entries))
    call_admin(address, "incremental_alter_configs", resource)


def entry(name: str, value: str | None, operation: AlterConfigOpType = SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def test_settings_are_changed_one_by_one(address: str, made: str):
    before = described(address, made)["retention.ms"]

    change(address, made, entry("retention.ms", "3600000"), entry("max.message.bytes", "5000"))
    change(address, made, entry("max.message.bytes", None, DELETE))

    after = described(address, made)
    assert (before.value, before.is_default) == ("604800000", True)
    assert (after["retention.ms"].value, after["retention.ms"].is_default) == ("3600000", False)
    assert after["max.message.bytes"].is_default


def test_all_settings_are_replaced(address: str, made: str):
    change(address, made, entry("retention.ms", "3600000"))

    resource = ConfigResource("topic", made, set_config={"retention.bytes": "1000000"})
    call_admin(address, "alter_configs", resource)

    after = described(address, made)
    assert after["retention.ms"].is_default
    assert after["retention.bytes"].value == "1000000"


def test_a_change_holds_at_once(address: str, made: str):
    change(address, made, entry("max.message.bytes", "500"))

    reported: list[str | None] = []
    producer = Producer({"bootstrap.servers": address})
    for value in (b"x" * 900, b"x"):
        producer.produce(
            made, value, on_delivery=lambda error, _: reported.append(error and error.name())
        )
        producer.flush(DEADLINE)

    assert reported == ["MSG_SIZE_TOO_LARGE", None]


@pytest.mark.parametrize(("name", "value"), [("no.such", "1"), ("retention.ms", "soon")])
def test_invalid_config_is_refused(address: str, made: str, name: str, value: str):
    with pytest.raises(KafkaException) as refused:
        change(address, made, entry(name, value))

    assert refused.value.args[0].name() == "INVALID_CONFIG"


def test_settings_of_a_topic_that_is_not_there(address: str, topic: str):
    with pytest.raises(KafkaException) as refused:
        described(address, topic)

    assert refused.value.args[0].name() == "UNKNOWN_TOPIC_OR_PART"


def test_aiokafka_describes_and_alters(address: str, made: str):
    async def go() -> object:
        client = AIOKafkaAdminClient(bootstrap_servers=address)
        await client.start()
        try:
            resource = AioResource(AioType.TOPIC, made, {"retention.ms": "7000000"})
            await client.alter_configs([resource])
            (response,) = await client.describe_configs([resource])
            return response.resources[0][4][0][:2]
        finally:
            await client.close()

    assert asyncio.run(go()) == ("retention.ms", "7000000")


def test_kafka_python_describes_and_alters(address: str, made: str):
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType, KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        resource = PythonResource(ConfigResourceType.TOPIC, made, {"retention.ms": "7000000"})
        client.alter_configs([resource])
    finally:
        client.close()

    assert described(address, made)["retention.ms"].value == "7000000"


@pytest.mark.java
@pytest.mark.parametrize("java", JAVA, ids=[java.name for java in JAVA])
def test_java_alters_and_describes(address: str, made: str, java: Java):
    """kafka-configs.sh and kafka-topics.sh --describe."""
    place = [f"--bootstrap-server={address}", "--entity-type=topics", f"--entity-name={made}"]
    tool = "kafka.admin.ConfigCommand"

    java.run(tool, *place, "--alter", "--add-config=retention.ms=3600000,retention.bytes=5")
    java.run(tool, *place, "--alter", "--delete-config=retention.bytes")
    output = java.run(tool, *place, "--describe")
    topic = java.run(
        "org.apache.kafka.tools.TopicCommand",
        f"--bootstrap-server={address}",
        "--describe",
        f"--topic={made}",
    )

    assert "retention.ms=3600000" in output
    assert "retention.bytes" not in output
    assert "retention.ms=3600000" in topic


def test_a_change_survives_a_kill(own_broker: Broker, topic: str):
    address = own_broker.address
    call_admin(address, "create_topics", NewTopic(topic, 1, 1))
    change(address, topic, entry("retention.ms", "3600000"))

    own_broker.kill9()
    own_broker.start()

    assert described(address, topic)["retention.ms"].value == "3600000"


def test_messages_acknowledged_from_memory_are_read_by_everybody(
    broker: Broker, address: str, made: str
):
    if broker.name != "trilogue":
        pytest.skip("a setting of Trilogue's own")
    change(address, made, entry("flush", "interval"))

    records = [Record(b"k", b"%d" % number) for number in range(50)]
    Confluent().write(address, made, records, idempotent=True)

    read = Confluent().read(address, made, 50)
    assert [(each.offset, each.value) for each in read] == [
        (number, b"%d" % number) for number in range(50)
    ]


def test_messages_read_with_acks_from_memory_survive_a_kill(own_broker: Broker, topic: str):
    """A message that a consumer has read is never lost, even with acks from memory."""
    if own_broker.name != "trilogue":
        pytest.skip("a setting of Trilogue's own")
    address = own_broker.address
    call_admin(address, "create_topics", NewTopic(topic, 1, 1, config={"flush": "interval"}))
    records = [Record(b"k", b"%d" % number) for number in range(300)]
    Confluent().write(address, topic, records)
    seen = Confluent().read(address, topic, 300)

    own_broker.kill9()
    own_broker.start()

    assert Confluent().read(address, topic, 300) == seen


def test_the_server_sets_the_shortest_lock_of_a_share_group(tmp_path: Path):
    locks = {"groups.share-record-lock": "2s", "groups.share-record-lock-min": "1s"}
    server = start_server(tmp_path / "data", settings=locks)
    key = "share.record.lock.duration.ms"

    def change_group(value: str) -> None:
        resource = ConfigResource("group", "g", incremental_configs=[entry(key, value)])
        call_admin(server.kafka, "incremental_alter_configs", resource)

    try:
        broker = call_admin(server.kafka, "describe_configs", ConfigResource("broker", "1"))
        with pytest.raises(KafkaException, match="1000 to 60000"):
            change_group("999")
        change_group("1000")
        group = call_admin(server.kafka, "describe_configs", ConfigResource("group", "g"))
    finally:
        server.kill9()

    assert broker[f"group.{key}"].value == "2000"
    assert broker["group.share.min.record.lock.duration.ms"].value == "1000"
    assert group[key].value == "1000"
