"""Transactions of Kafka's producers over several nodes of one directory."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.conformance.clients.java import Java
from tests.crash.transactions.transaction_load import read_committed
from tests.node.supervisor.test_nodes import (
    LISTEN,
    QUIET,
    WAIT_S,
    create,
    numbered,
    pids_of_nodes,
    produce,
)
from tests.node_ports import find_node_ports
from tests.server import Server, run_trilogue, start_server
from trilogue.client.kafka.sync import KafkaClient

PARTITIONS = 6
IDS = ["tx-0", "tx-1", "tx-4", "tx-5"]  # two of each node
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    ports = find_node_ports(3, "kafka")  # tests start again with three
    listen = {**LISTEN, **ports.listen}
    with start_server(tmp_path / "data", listen=listen, nodes=2) as started:
        create(started, "in", PARTITIONS)
        create(started, "out", PARTITIONS)
        yield started
        started.stop()


def transactional(server: Server, name: str, **settings: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": name, **QUIET, **settings}
    )
    made.init_transactions(WAIT_S)
    return made


def begin(producer: Producer, value: bytes) -> None:
    """Begin a transaction with a message in each partition of `out`, and wait for their acks."""
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("out", value, partition=partition)
    assert producer.flush(WAIT_S) == 0


def committed(server: Server) -> list[bytes]:
    found = read_committed(server.kafka, "out", PARTITIONS)
    return sorted(message.value() for message in found)


def test_messages_and_positions_on_all_nodes_end_with_their_transaction(server: Server):
    produce(server, "in", numbered(0, 60), PARTITIONS)
    for number, name in enumerate(IDS):
        producer = transactional(server, name)
        for ending in ("abort", "commit"):
            consumer = Consumer(
                {
                    "bootstrap.servers": server.kafka,
                    "group.id": f"group-{number}",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    **QUIET,
                }
            )
            consumer.subscribe(["in"])
            read = consumer.consume(10, WAIT_S)
            begin(producer, f"{ending}-{name}".encode())
            positions = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, metadata, WAIT_S)
            if ending == "commit":
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
            found = consumer.committed(consumer.assignment(), WAIT_S)
            moved = sum(max(each.offset, 0) for each in found)
            assert moved == (len(read) if ending == "commit" else 0)
            consumer.close()

    assert committed(server) == sorted(PARTITIONS * [f"commit-{name}".encode() for name in IDS])


def test_a_second_producer_of_an_id_fences_the_first_at_every_node(server: Server):
    for name in IDS:
        first = transactional(server, name)
        begin(first, b"zombie")
        second = transactional(server, name)

        with pytest.raises(KafkaException):
            first.commit_transaction(WAIT_S)
        begin(second, name.encode())
        second.commit_transaction(WAIT_S)
    assert committed(server) == sorted(PARTITIONS * [name.encode() for name in IDS])


def test_a_transaction_times_out_while_a_node_of_its_partitions_is_down(server: Server):
    producers = [transactional(server, name, **{"transaction.timeout.ms": 1_000}) for name in IDS]
    for producer in producers:
        begin(producer, b"late")
    for pid in pids_of_nodes(server):
        os.kill(pid, signal.SIGKILL)

    assert committed(server) == []
    for producer in producers:
        with pytest.raises(KafkaException):
            producer.commit_transaction(WAIT_S)


def test_open_transactions_go_on_when_slots_move(server: Server):
    """With a start of other nodes, and while all serve; with messages and positions of a group."""
    produce(server, "in", numbered(0, 60), PARTITIONS)
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.subscribe(["in"])
    read = consumer.consume(10, WAIT_S)
    producers = [transactional(server, name) for name in IDS]
    for producer in producers:
        begin(producer, b"first")
    positions = consumer.position(consumer.assignment())
    producers[0].send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
    moved = run_trilogue("nodes", "drain", "2", "--data", str(server.data))
    assert moved.returncode == 0, moved.stderr

    for producer in producers[1:]:
        producer.commit_transaction(WAIT_S)
    ended = end_one_with_positions(producers[0])
    found = consumer.committed(consumer.assignment(), WAIT_S)
    assert sum(max(each.offset, 0) for each in found) == ended * len(read)
    consumer.close()
    for producer in producers[1:]:
        begin(producer, b"second")
    assert server.stop() == 0
    listen = {**LISTEN, "kafka": server.doors["kafka"]}
    again = start_server(server.data, listen=listen, nodes=3)
    for producer in producers[1:]:
        producer.commit_transaction(WAIT_S)
    count = PARTITIONS * (len(IDS) - 1)
    assert committed(again) == (count + ended * PARTITIONS) * [b"first"] + count * [b"second"]
    assert again.stop() == 0


def end_one_with_positions(producer: Producer) -> bool:
    """Commit; it is aborted if its group and its coordinator are on two nodes now."""
    try:
        producer.commit_transaction(WAIT_S)
    except KafkaException:
        return False
    return True


def test_open_transactions_go_on_when_all_nodes_are_killed(server: Server):
    producers = [transactional(server, name) for name in IDS]
    for producer in producers:
        begin(producer, b"kept")
    for pid in pids_of_nodes(server):
        os.kill(pid, signal.SIGKILL)

    for producer in producers:
        producer.commit_transaction(WAIT_S)
    assert committed(server) == len(IDS) * PARTITIONS * [b"kept"]


def test_transactions_are_listed_described_and_aborted_at_their_coordinator(server: Server):
    producers = [transactional(server, name) for name in IDS]  # which must live on
    for producer in producers:
        begin(producer, b"open")
    client = KafkaClient(server.kafka)
    try:
        listed = client.admin.list_transactions()
        assert [each.name for each in listed] == IDS
        described = client.admin.describe_transactions(IDS)
        assert {len(each.partitions) for each in described.values()} == {PARTITIONS}
        assert {each.coordinator.id for each in described.values()} == {1, 2}
        check_txn_ids(server)
        assert client.admin.abort_transactions(IDS) == dict.fromkeys(IDS)
    finally:
        client.close()
    assert committed(server) == []
    assert "CompleteAbort" in run_trilogue("transactions", "list", "--server", server.kafka).stdout


def check_txn_ids(server: Server) -> None:
    """The TxnIDs that `describe` shows are those of Pulsar's administration, with coordinators."""
    shown = run_trilogue("transactions", "describe", *IDS, "--json", "--server", server.kafka)
    txn_ids = {row["transaction"]: row["txn_id"] for row in json.loads(shown.stdout)}
    url = f"{server.http}/admin/v3/transactions/slowTransactions/0"
    slow = httpx.get(url, timeout=WAIT_S).json()
    assert txn_ids == {each["owner"]: each["txnId"] for each in slow.values()}


@pytest.mark.java
def test_javas_tool_finds_transactions_and_producers_of_all_nodes(server: Server):
    java, at = Java("4.3.1"), f"--bootstrap-server={server.kafka}"
    producers = [transactional(server, name) for name in IDS]
    for producer in producers:
        begin(producer, b"open")
    rows = java.run(TRANSACTIONS, at, "list").splitlines()[1:]

    assert sorted(row.split()[0] for row in rows) == IDS
    assert {row.split()[1] for row in rows} == {"1", "2"}
    assert {row.split()[3] for row in rows} == {"Ongoing"}
    for name in IDS[1:3]:  # one of each node
        described = java.run(TRANSACTIONS, at, "describe", f"--transactional-id={name}")
        assert all(f"out-{number}" in described for number in range(PARTITIONS))
    for partition in (0, 1):
        place = ("--topic=out", f"--partition={partition}")
        found = java.run(TRANSACTIONS, at, "describe-producers", *place).splitlines()[1:]
        assert len(found) == len(IDS)


def test_each_node_lists_the_transactions_and_coordinators_of_all_over_http(server: Server):
    producers = [transactional(server, name) for name in IDS]
    for producer in producers:
        begin(producer, b"x")
    brokers = httpx.get(f"{server.http}/admin/v2/brokers/standalone").json()
    assert len(brokers) == 2
    for broker in brokers:
        root = f"http://{broker}/admin/v3/transactions"
        slow = httpx.get(f"{root}/slowTransactions/0", timeout=WAIT_S).json()
        assert sorted(each["owner"] for each in slow.values()) == IDS
        stats = httpx.get(f"{root}/coordinatorStats", timeout=WAIT_S).json()
        assert list(stats) == [str(number) for number in range(16)]
        assert sum(each["ongoingTxnSize"] for each in stats.values()) == len(IDS)
        assert len(httpx.get(f"{root}/slowTransactions/0?own=true").json()) == 2
    for producer in producers:
        producer.commit_transaction(WAIT_S)
    server_http = f"{server.http}/admin/v3/transactions/slowTransactions/0"
    assert httpx.get(server_http, timeout=WAIT_S).json() == {}
