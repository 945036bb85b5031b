"""Users, ACLs, quotas and policies that a client changes at one node hold at the others at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.server import Server, run_trilogue, start_server

WAIT_S = 60.0
ADMIN, PASSWORD = "admin", "correct horse"
QUIET = {"log_level": 0}
SILENT = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "orders"
CLOSED = {"socket.connection.setup.timeout.ms": 5_000, "reconnect.backoff.max.ms": 100}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Server]:
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text(f"{ADMIN}:{PASSWORD}\n")
    settings = {
        "access.authenticate": True,
        "access.authorize": True,
        "access.super-users": f"User:{ADMIN}",
        "access.users-file": users,
    }
    listen = {"kafka": "off", "kafka-sasl": "127.0.0.1:0"}
    with start_server(tmp_path / "data", listen=listen, settings=settings, nodes=2) as started:
        yield started
        assert started.stop() == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    listen = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
    with start_server(tmp_path / "data", listen=listen, nodes=2) as started:
        yield started
        assert started.stop() == 0


def login(address: str, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> dict:
    return {
        "bootstrap.servers": address,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **QUIET,
    }


def addresses(admin: AdminClient) -> list[str]:
    """Return the address of every node."""
    found = admin.list_topics(timeout=WAIT_S).brokers
    return [f"{found[each].host}:{found[each].port}" for each in sorted(found)]


def send(config: dict, partition: int) -> str:
    """Send one message to a partition of TOPIC; return the name of the error, or nothing."""
    errors: list[str] = []
    failures: list[str] = []
    producer = Producer(
        {
            **config,
            **CLOSED,
            "message.timeout.ms": 60_000,
            "error_cb": lambda error: failures.append(error.name()),
        }
    )
    producer.produce(
        TOPIC,
        b"x",
        partition=partition,
        on_delivery=lambda error, _: errors.append("" if error is None else error.name()),
    )
    while not errors and "_AUTHENTICATION" not in failures:
        producer.poll(0.1)
    if errors:
        return errors[0]
    producer.purge()
    return "_AUTHENTICATION"


def test_a_login_and_its_rights_hold_at_every_node_at_once(secured: Server):
    admin = AdminClient(login(secured.doors["kafka-sasl"], ADMIN, PASSWORD))
    nodes = addresses(admin)
    assert len(nodes) == 2
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(WAIT_S)
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(WAIT_S)
    assert {each.leader.id for each in described.partitions} == {1, 2}

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("alice", info, b"wonderland")
    admin.alter_user_scram_credentials([upsertion])["alice"].result(WAIT_S)
    alice = [login(address, "alice", "wonderland") for address in nodes]
    for config in alice:
        for partition in range(2):
            assert send(config, partition) == "TOPIC_AUTHORIZATION_FAILED"

    binding = AclBinding(
        ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.WRITE, AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([binding])[binding].result(WAIT_S)
    for config in alice:
        for partition in range(2):
            assert send(config, partition) == ""

    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["alice"].result(WAIT_S)
    for config in alice:
        assert send(config, 0) == "_AUTHENTICATION"


def test_a_deleted_user_is_disconnected_from_every_node(secured: Server):
    admin = AdminClient(login(secured.doors["kafka-sasl"], ADMIN, PASSWORD))
    nodes = addresses(admin)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("alice", info, b"wonderland")
    admin.alter_user_scram_credentials([upsertion])["alice"].result(WAIT_S)
    clients = [AdminClient(login(address, "alice", "wonderland")) for address in nodes]
    for client in clients:
        assert len(client.list_topics(timeout=WAIT_S).brokers) == 2

    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["alice"].result(WAIT_S)

    for client in clients:
        with pytest.raises(KafkaException):
            client.list_topics(timeout=3)


def test_policies_of_a_namespace_hold_at_the_owner_of_each_topic(server: Server):
    listed = json.loads(run_trilogue("nodes", "list", "--json", "--server", server.kafka).stdout)
    base = "/admin/v2/namespaces/public/default/maxProducersPerTopic"
    assert httpx.post(f"{server.http}{base}", json=1, timeout=WAIT_S).status_code == 204

    for node in listed:
        assert httpx.get(f"http://{node['doors']['http']}{base}", timeout=WAIT_S).json() == 1
    client = pulsar.Client(server.pulsar, logger=SILENT)
    try:
        for number in range(4):  # of both nodes
            topic = f"limited-{number}"
            client.create_producer(topic)
            with pytest.raises(pulsar.ProducerBusy):
                client.create_producer(topic)
    finally:
        client.close()


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer()


def test_a_schema_is_that_of_a_topic_at_every_owner_of_its_partitions(server: Server):
    path = "/admin/v2/persistent/public/default/typed/partitions"
    assert httpx.put(f"{server.http}{path}", json=4, timeout=WAIT_S).status_code == 204
    client = pulsar.Client(server.pulsar, logger=SILENT)
    try:
        schema = pulsar.schema.AvroSchema(Order)
        producer = client.create_producer("typed", schema=schema)
        consumer = client.subscribe("typed", "all", schema=schema)
        for number in range(20):
            producer.send(Order(number=number))
        read = sorted(consumer.receive(60_000).value().number for _ in range(20))
        assert read == list(range(20))
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer("typed-partition-3", schema=pulsar.schema.StringSchema())
    finally:
        client.close()


def test_a_subject_that_one_node_registers_is_known_at_the_others(server: Server):
    listed = json.loads(run_trilogue("nodes", "list", "--json", "--server", server.kafka).stdout)
    urls = [f"http://{node['doors']['http']}/schema-registry" for node in listed]
    body = {"schema": '"string"'}
    ids = [
        httpx.post(f"{url}/subjects/s{number}/versions", json=body, timeout=WAIT_S).json()
        for number, url in enumerate(urls)
    ]

    assert ids == [{"id": 1}] * len(urls)
    for url in urls:
        names = [f"s{number}" for number in range(len(urls))]
        assert httpx.get(f"{url}/subjects", timeout=WAIT_S).json() == names
        assert httpx.get(f"{url}/schemas/ids/1", timeout=WAIT_S).json() == body
