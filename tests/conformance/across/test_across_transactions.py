"""Transactions with messages and acks of both Pulsar's and Kafka's clients: all or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cli.kafka_cli import Shell
from tests.conformance.clients.base import DEADLINE
from tests.conformance.clients.pulsar import ClientError, Connection, Out, connect
from tests.conformance.clients.pulsar_libraries import each
from tests.conformance.conftest import unique
from tests.conformance.kafka.test_transactions import producer, read, write
from tests.conformance.pulsar.test_clients import numbers, values
from tests.server import Server, start_server

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("transactions") / "data") as started:
        yield started


@pytest.fixture(params=each(can="transactions"))
def pulsar_client(request: pytest.FixtureRequest, server: Server) -> Iterator[Connection]:
    made = connect(request.param, f"pulsar://{server.doors['pulsar']}", transactions=True)
    yield made
    made.close()


@pytest.mark.parametrize("ended_by", ["pulsar", "kafka"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_kafka_producer_takes_part_in_a_pulsar_transaction(
    server: Server, pulsar_client: Connection, commits: bool, ended_by: str
):
    """Messages of both, an ack of one and positions of the other."""
    kafka, topic, source = server.kafka, unique("t"), unique("source")
    sender = pulsar_client.producer(topic, send_timeout_ms=0)
    pulsar_client.producer(source).send(*numbers(0, 2))
    consumer = pulsar_client.consumer(source, "s", earliest=True, type="shared")
    reads = consumer.receive(2)

    transaction = pulsar_client.begin()
    sender.send(Out(b"of pulsar"), transaction=transaction)
    consumer.ack(reads[0], transaction=transaction)
    made = producer(kafka, f"__pulsar_txn_{transaction.least}")
    made.begin_transaction()
    write(made, topic, b"of kafka")
    group = Consumer({"bootstrap.servers": kafka, "group.id": unique("g")})
    position = TopicPartition(source, 0, 2)
    made.send_offsets_to_transaction([position], group.consumer_group_metadata(), DEADLINE)
    assert read(kafka, topic, 0) == []
    if ended_by == "pulsar":
        transaction.commit() if commits else transaction.abort()
    elif commits:
        made.commit_transaction(DEADLINE)
        transaction.commit()  # a repeated one
    else:
        made.abort_transaction(DEADLINE)
        transaction.abort()

    wanted = [b"of pulsar", b"of kafka"] if commits else []
    assert read(kafka, topic, len(wanted)) == wanted
    got = pulsar_client.consumer(topic, "r", earliest=True)
    assert [each.value for each in got.receive(len(wanted))] == wanted
    assert got.nothing_comes()
    assert group.committed([position], DEADLINE)[0].offset == (2 if commits else -1001)
    consumer.close()
    left = pulsar_client.consumer(source, "s", earliest=True, type="shared")
    assert values(left.receive(1 if commits else 2)) == ([1] if commits else [0, 1])
    assert left.nothing_comes()
    group.close()


def test_kafkas_uncommitted_readers_see_open_messages_of_pulsar(
    server: Server, pulsar_client: Connection
):
    """The client filters aborted messages by the producer id of converted batches."""
    kafka, topic = server.kafka, unique("t")
    sender = pulsar_client.producer(topic, send_timeout_ms=0)
    aborted, committed, left_open = (pulsar_client.begin() for _ in range(3))
    sender.send(Out(b"aborted"), transaction=aborted)
    sender.send(Out(b"committed"), transaction=committed)
    aborted.abort()
    committed.commit()
    sender.send(Out(b"open"), transaction=left_open)

    every = [b"aborted", b"committed", b"open"]
    assert read(kafka, topic, 3, "read_uncommitted") == every
    assert read(kafka, topic, 1) == [b"committed"]
    left_open.abort()
    with pytest.raises(ClientError):
        left_open.commit()


def test_the_command_line_lists_describes_and_aborts_both_kinds(
    server: Server, pulsar_client: Connection
):
    shell, topic = Shell(server.kafka), unique("t")
    made = producer(server.kafka, unique("kafka"))
    sender = pulsar_client.producer(topic, send_timeout_ms=0)
    transaction = pulsar_client.begin()
    sender.send(Out(b"of pulsar"), transaction=transaction)
    made.begin_transaction()
    write(made, topic, b"of kafka")

    listed = shell.json("transactions", "list", "--state", "Ongoing")
    names = {row["transaction"] for row in listed}
    of_pulsar = f"__pulsar_txn_{transaction.least}"
    (of_kafka,) = names - {of_pulsar}
    (described,) = shell.json("transactions", "describe", f"0,{transaction.least}")
    assert described["transaction"] == of_pulsar
    assert described["txn_id"] == f"(0,{transaction.least})"
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert f"TxnID (0,{transaction.least})" in shell.lines("transactions", "describe", of_pulsar)[0]
    assert "did you mean" in shell.refused("transactions", "describe", f"{of_kafka}x")
    lines = shell.lines("transactions", "abort", of_pulsar, of_kafka, "--yes")

    assert sorted(lines) == sorted([f"aborted {of_pulsar}", f"aborted {of_kafka}"])
    assert "no transaction is ongoing" in shell.refused("transactions", "abort", of_kafka, "--yes")
    assert read(server.kafka, topic, 0) == []
    with pytest.raises(ClientError):
        transaction.commit()
    with pytest.raises(KafkaException):
        made.commit_transaction(DEADLINE)


def test_pulsars_administration_knows_a_kafka_producers_transaction(server: Server):
    """Kafka's identity as a TxnID: epoch << 48 | producer id."""
    shell, topic, name = Shell(server.kafka), unique("t"), unique("kafka")
    made = producer(server.kafka, name)
    made.begin_transaction()
    write(made, topic, b"of kafka")
    (described,) = shell.json("transactions", "describe", name)
    most, least = described["txn_id"].strip("()").split(",")

    answer = httpx.get(f"{server.http}/admin/v3/transactions/transactionMetadata/{most}/{least}")
    assert answer.json()["status"] == "OPEN"
    assert answer.json()["owner"] == name
    made.commit_transaction(DEADLINE)
