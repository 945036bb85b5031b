"""Keep a small data directory with transactions for the tests of every later version.

    python -m tools.fixture_transactions one-node       # tests/fixtures/transactions-one-node.*
    python -m tools.fixture_transactions nodes --nodes 2

Kafka's and Pulsar's clients commit, abort and leave open transactions with messages and positions.
The first round ends in order, so that meta has what is open; the second is killed, so that it is in
the journal. With several nodes each transaction has parts on other nodes than its coordinator's.
The JSON has what a reader of committed messages must find once the open ones have timed out: it is
what the clients have committed, and nothing in it comes from reading our own files. Kept fixtures
are never made again; see tools/make_fixture.py.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server import Server, start_server

from tools.make_fixture import PATIENCE, PLACE, SIZE_MAX, SMALL, plain
from trilogue.client.pulsar import InitialPosition, SubscriptionType
from trilogue.client.pulsar import sync as pulsar

TOPIC, SUBSCRIPTION, PARTITIONS = "ledger", "desk", 4
COMMITTED, ABORTED, OPEN = OUTCOMES = ("committed", "aborted", "open")
TIMEOUT_S = 120.0  # longer than a round
GROUPS = ("a", "b", "c")  # of each transaction: some are of another node
POSITION = 7


def make(name: str, nodes: int) -> None:
    """Write two rounds, and keep the data and what must be found."""
    expected: dict[str, object] = {
        "nodes": nodes,
        "topic": TOPIC,
        "partitions": PARTITIONS,
        "subscription": SUBSCRIPTION,
        "committed": [],
        "unacked": {},
        "positions": {},
    }
    several = {"nodes": nodes} if nodes > 1 else {}
    listen = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
    settings = {**SMALL, "retention.check-every": "1h", **several}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with start_server(data, listen=listen, settings=settings) as server:
            write(server, "dawn", expected)
            assert server.stop() == 0
        with start_server(data, listen=listen, settings=settings) as server:
            write(server, "night", expected)
            server.kill9()
        keep(data, f"transactions-{name}", expected)


def write(server: Server, round_name: str, expected: dict[str, object]) -> None:
    """Run a transaction of each outcome by each protocol; add to what is expected."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    topics = [NewTopic(f"orders-{round_name}", PARTITIONS, 1)]
    if round_name == "dawn":
        topics.append(NewTopic(TOPIC, PARTITIONS, 1))
    for future in admin.create_topics(topics).values():
        future.result(PATIENCE)
    producers = [write_by_kafka(server, round_name, outcome) for outcome in OUTCOMES]
    with pulsar.PulsarClient(server.pulsar) as client:
        write_by_pulsar(client, round_name)
        values = [f"{round_name} {protocol} {number}" for protocol in ("kafka", "pulsar")
                  for number in range(PARTITIONS)]  # fmt: skip
        expected["committed"] += [f"{each} {COMMITTED}" for each in values]  # type: ignore[operator]
        expected["unacked"][f"orders-{round_name}"] = [  # type: ignore[index]
            f"{number} {outcome}" for number in range(PARTITIONS) for outcome in (ABORTED, OPEN)
        ]
        for outcome in OUTCOMES:
            found = POSITION if outcome == COMMITTED else None
            for group in groups_of(f"{round_name}-{outcome}"):
                expected["positions"][group] = found  # type: ignore[index]
        if round_name != "dawn":
            server.kill9()  # before the producers of open transactions end
    del producers


def groups_of(name: str) -> list[str]:
    """Return the groups whose positions a transaction moves."""
    return [f"{name}-{group}" for group in GROUPS]


def write_by_kafka(server: Server, round_name: str, outcome: str) -> Producer:
    """One message in each partition, and positions of a group; returns the open producer."""
    name = f"{round_name}-{outcome}"
    producer = Producer(
        {
            "bootstrap.servers": server.kafka,
            "transactional.id": name,
            "transaction.timeout.ms": int(TIMEOUT_S * 1_000),
        }
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for number in range(PARTITIONS):
        producer.produce(TOPIC, f"{round_name} kafka {number} {outcome}", partition=number)
    assert producer.flush(PATIENCE) == 0
    places = [TopicPartition(TOPIC, number, POSITION) for number in range(PARTITIONS)]
    for group in groups_of(name):
        member = Consumer({"bootstrap.servers": server.kafka, "group.id": group})
        producer.send_offsets_to_transaction(places, member.consumer_group_metadata(), PATIENCE)
        member.close()
    if outcome == COMMITTED:
        producer.commit_transaction(PATIENCE)
    elif outcome == ABORTED:
        producer.abort_transaction(PATIENCE)
    return producer


def write_by_pulsar(client: pulsar.PulsarClient, round_name: str) -> None:
    """Acks of a message of each partition, and one message in each, by each outcome."""
    orders = f"orders-{round_name}"
    consumer = client.subscribe(
        orders,
        SUBSCRIPTION,
        type=SubscriptionType.SHARED,
        initial_position=InitialPosition.EARLIEST,
    )
    for number in range(PARTITIONS):
        with client.producer(f"{orders}-partition-{number}") as producer:
            for outcome in OUTCOMES:
                producer.send(f"{number} {outcome}".encode())
    messages = [consumer.receive(PATIENCE) for _ in range(PARTITIONS * len(OUTCOMES))]
    for outcome in OUTCOMES:
        transaction = client.begin_transaction(timeout_s=TIMEOUT_S)
        for message in messages:
            if (message.value or b"").decode().endswith(outcome):
                consumer.ack(message, transaction=transaction)
        for number in range(PARTITIONS):
            with client.producer(f"{TOPIC}-partition-{number}") as producer:
                value = f"{round_name} pulsar {number} {outcome}"
                producer.send(value.encode(), transaction=transaction)
        if outcome == COMMITTED:
            transaction.commit()
        elif outcome == ABORTED:
            transaction.abort()


def keep(data: Path, name: str, expected: dict[str, object]) -> None:
    """Pack the directory, and write down what must be found."""
    archive = PLACE / f"{name}.tar.xz"
    assert not archive.exists(), f"{archive} is kept for ever"
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(data, "data", filter=plain)
    (PLACE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")
    size = archive.stat().st_size
    print(f"{archive.name}: {size} bytes")
    assert size < SIZE_MAX


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--nodes", type=int, default=1)
    chosen = parser.parse_args()
    make(chosen.name, chosen.nodes)
