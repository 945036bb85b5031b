"""Descriptions of the cluster for foreign admin clients: brokers, log directories, leaders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicCollection
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import DEADLINE, JAVA, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java

EVERY_JAVA = pytest.mark.parametrize("java", JAVA, ids=lambda java: java.name)


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


@pytest.fixture
def python(address: str) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=address)
    yield client
    client.close()


@pytest.fixture
def made(admin: AdminClient, topic: str) -> str:
    """A topic with three partitions."""
    (done,) = admin.create_topics([NewTopic(topic, 3, 1)]).values()
    done.result(DEADLINE)
    return topic


# ---- librdkafka


def test_librdkafka_describes_the_cluster(address: str, admin: AdminClient):
    response = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE)

    (node,) = response.nodes
    assert f"{node.host}:{node.port}" == address
    assert response.controller.id == node.id == 1
    assert len(response.cluster_id) == 22
    assert {each.name for each in response.authorized_operations} == {
        "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    }  # fmt: skip


def test_librdkafka_describes_authorized_operations_of_a_topic(admin: AdminClient, made: str):
    requested = admin.describe_topics(TopicCollection([made]), include_authorized_operations=True)

    response = requested[made].result(DEADLINE)

    assert [each.leader.id for each in response.partitions] == [1, 1, 1]
    assert len(response.authorized_operations) == 8


def test_librdkafka_hears_that_no_election_is_needed(admin: AdminClient, made: str):
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        requested = [Place(made, 0), Place(made, 9)]

        response = admin.elect_leaders(kind, requested).result(DEADLINE)

        errors = {place.partition: error.name() for place, error in response.items()}
        assert errors == {0: "ELECTION_NOT_NEEDED", 9: "UNKNOWN_TOPIC_OR_PART"}


# ---- kafka-python


def test_kafka_python_turns_pages_of_partitions(python: Any, made: str):
    first = python.describe_topic_partitions([made], response_partition_limit=2)
    rest = python.describe_topic_partitions([made], cursor=first["next_cursor"])

    indexes = [
        [row["partition_index"] for row in page["topics"][0]["partitions"]]
        for page in (first, rest)
    ]
    assert indexes == [[0, 1], [2]]
    assert rest["next_cursor"] is None


def test_kafka_python_describes_log_dirs_and_replica_sizes(address: str, python: Any, made: str):
    Confluent().write(address, made, [Record(b"k", os.urandom(100_000))])

    (broker,) = python.describe_log_dirs({made: [0, 1, 2]})

    (folder,) = broker["log_dirs"]
    (reported,) = folder["topics"]
    sizes = sorted(row["partition_size"] for row in reported["partitions"])
    assert sizes[:2] == [0, 0]
    assert 100_000 < sizes[2] < 101_000
    assert Path(folder["log_dir"]).is_absolute()
    assert 0 < folder["usable_bytes"] < folder["total_bytes"]


def test_kafka_python_describes_the_metadata_quorum(python: Any):
    response = python.describe_metadata_quorum()

    (topic,) = response["topics"]
    (state,) = topic["partitions"]
    assert (topic["topic_name"], state["partition_index"]) == ("__cluster_metadata", 0)
    assert [voter["replica_id"] for voter in state["current_voters"]] == [state["leader_id"]] == [1]
    assert state["high_watermark"] > 0


def test_kafka_python_moves_a_replica_to_where_it_is(python: Any, made: str):
    from kafka import TopicPartitionReplica

    (broker,) = python.describe_log_dirs({made: [0]})
    here = broker["log_dirs"][0]["log_dir"]
    replica = TopicPartitionReplica(made, 0, 1)

    done = python.alter_replica_log_dirs({replica: here})
    elsewhere = python.alter_replica_log_dirs({replica: "/nowhere"})

    assert done[replica].errno == 0
    assert elsewhere[replica].errno == 57


def test_kafka_python_hears_that_moves_are_not_possible(python: Any, made: str):
    from kafka import TopicPartition

    places = [TopicPartition(made, index) for index in range(3)]

    response = python.alter_partition_reassignments(
        {places[0]: [1], places[1]: [2], places[2]: None}
    )

    errors = {place.partition: error and error.errno for place, error in response.items()}
    assert {index: error or 0 for index, error in errors.items()} == {0: 0, 1: 39, 2: 85}
    assert python.list_partition_reassignments() == {}


def test_kafka_python_describes_idempotent_producers(address: str, python: Any, made: str):
    from kafka import TopicPartition

    producer = Confluent.producer(address, {"enable.idempotence": True})
    for number in range(5):
        producer.produce(made, value=str(number), partition=1)
        assert producer.flush(DEADLINE) == 0
    producer.produce(made, value="x", partition=2)
    assert producer.flush(DEADLINE) == 0
    Confluent().write(address, made, [Record(b"plain", b"v")])

    places = [TopicPartition(made, index) for index in range(3)]
    requested = python.describe_producers(places)
    reported = {place: state.active_producers for place, state in requested.items()}

    found = {
        place.partition: [(each.producer_epoch, each.last_sequence) for each in state]
        for place, state in reported.items()
    }
    assert found == {0: [], 1: [(0, 4)], 2: [(0, 0)]}
    (first,), (second,) = (reported[place] for place in places[1:])
    assert first.producer_id == second.producer_id


def test_kafka_python_lists_no_transactions(python: Any):
    assert python.list_transactions() == {1: []}


# ---- Java's tools


@pytest.mark.java
@EVERY_JAVA
def test_javas_tools_look_at_the_cluster(address: str, made: str, java: Java, tmp_path: Path):
    at = f"--bootstrap-server={address}"
    tools = "org.apache.kafka.tools"

    output = java.run(f"{tools}.ClusterTool", "cluster-id", at)
    assert len(output.removeprefix("Cluster ID: ").strip()) == 22
    pages = "--partition-size-limit-per-response=2"
    output = java.run(f"{tools}.TopicCommand", at, "--describe", f"--topic={made}", pages)
    assert output.count("Leader: 1\tReplicas: 1\tIsr: 1\tElr: ") == 3
    output = java.run(f"{tools}.LogDirsCommand", at, "--describe", f"--topic-list={made}")
    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    (folder,) = broker["logDirs"]
    assert {row["partition"] for row in folder["partitions"]} == {f"{made}-{n}" for n in range(3)}
    output = java.run(
        f"{tools}.LeaderElectionCommand", at, "--election-type=preferred", f"--topic={made}",
        "--partition=0",
    )  # fmt: skip
    assert "Valid replica already elected" in output


@pytest.mark.java
@EVERY_JAVA
def test_javas_tools_find_nothing_on_the_move_and_no_transactions(
    address: str, made: str, java: Java, tmp_path: Path
):
    at = f"--bootstrap-server={address}"
    reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    transactions = "org.apache.kafka.tools.TransactionsCommand"
    wanted = tmp_path / "wanted.json"
    wanted.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": made, "partition": 0, "replicas": [1]}]})
    )

    assert "No partition reassignments found" in java.run(reassign, at, "--list")
    done = java.run(reassign, at, "--execute", f"--reassignment-json-file={wanted}")
    assert "Successfully started partition reassignment" in done
    listed = java.run(transactions, at, "list")
    assert listed.split()[:2] == ["TransactionalId", "Coordinator"]
    output = java.run(transactions, at, "describe-producers", f"--topic={made}", "--partition=0")
    assert output.split()[:2] == ["ProducerId", "ProducerEpoch"]
