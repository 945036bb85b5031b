"""`kafka-transactions` of 3.9.1 and 4.3.1 on transactions that a producer has open, and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE
from tests.conformance.clients.kafka_tools import TOOLS, TOOLS_4, Tools
from tests.conformance.kafka.test_transactions import producer, read, write
from tests.server import Server, start_server
from tests.waiting import wait_until

MAIN = "org.apache.kafka.tools.TransactionsCommand"
HOUR_MS = 3_600_000
NODES = 3
Rows = list[dict[str, str]]
Ask = Callable[..., Rows]

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(params=TOOLS, ids=lambda tools: tools.version)
def ask(request: pytest.FixtureRequest, broker: Broker) -> Ask:
    return make_ask(request.param, broker.address)


def make_ask(tools: Tools, address: str) -> Ask:
    """Return what runs a verb of the tool; it returns the table, by the names of its columns."""
    tools.require()

    def run(*words: object) -> Rows:
        output = tools.run(MAIN, "--bootstrap-server", address, *words)
        assert output.status == 0, output.text
        rows = [line.split("\t") for line in output.text.splitlines() if "\t" in line]
        lines = [[cell.strip() for cell in row] for row in rows]
        return [dict(zip(lines[0], row, strict=False)) for row in lines[1:]]

    return run


@pytest.fixture
def opened(broker: Broker, topic: str) -> Producer:
    """A producer, whose id is the topic, with a message in an open transaction."""
    made = producer(broker.address, topic)
    made.begin_transaction()
    write(made, topic, b"open")
    return made


def test_an_open_transaction_is_listed_and_described(opened: Producer, topic: str, ask: Ask):
    (listed,) = [row for row in ask("list") if row["TransactionalId"] == topic]
    (described,) = ask("describe", "--transactional-id", topic)
    (writer,) = ask("describe-producers", "--topic", topic, "--partition", 0)

    assert listed["TransactionState"] == described["TransactionState"] == "Ongoing"
    assert listed["ProducerId"] == described["ProducerId"] == writer["ProducerId"]
    assert described["TopicPartitions"] == f"{topic}-0"
    assert int(described["TransactionDurationMs"]) < HOUR_MS
    assert writer["CurrentTransactionStartOffset"] == "0"
    assert ask("find-hanging", "--topic", topic, "--max-transaction-timeout", 0) == []
    opened.abort_transaction(DEADLINE)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_start_of_a_transaction_is_shown_after_its_end(
    opened: Producer, topic: str, ask: Ask, commits: bool
):
    (before,) = ask("describe", "--transactional-id", topic)
    state = "CompleteCommit" if commits else "CompleteAbort"

    def ended() -> dict[str, str] | None:
        (row,) = ask("describe", "--transactional-id", topic)
        return row if row["TransactionState"] == state else None

    if commits:
        opened.commit_transaction(DEADLINE)
    else:
        opened.abort_transaction(DEADLINE)
    after = wait_until(ended, "the end")
    (writer,) = ask("describe-producers", "--topic", topic, "--partition", 0)

    assert after["CurrentTransactionStartTimeMs"] == before["CurrentTransactionStartTimeMs"]
    assert after["TopicPartitions"] == ""
    assert writer["CurrentTransactionStartOffset"] == "None"


def test_ids_are_filtered_by_the_age_of_their_last_transaction(
    opened: Producer, topic: str, ask: Ask
):
    def listed(age_ms: int) -> bool:
        rows = ask("list", "--duration-filter", age_ms)
        return topic in {row["TransactionalId"] for row in rows}

    assert listed(0)
    assert not listed(HOUR_MS)
    opened.commit_transaction(DEADLINE)
    assert listed(0)
    assert not listed(HOUR_MS)


def test_an_id_without_a_transaction_is_older_than_any(broker: Broker, topic: str, ask: Ask):
    producer(broker.address, topic)

    rows = ask("list", "--duration-filter", HOUR_MS)

    assert topic in {row["TransactionalId"] for row in rows}


def test_an_aborted_partition_lets_readers_go_on(
    broker: Broker, opened: Producer, topic: str, ask: Ask
):
    """The tool aborts at the partition, as if the coordinator did not know the transaction."""
    plain = Producer({"bootstrap.servers": broker.address})
    write(plain, topic, b"behind it")
    assert read(broker.address, topic, 0) == []

    ask("abort", "--topic", topic, "--partition", 0, "--start-offset", 0)

    assert read(broker.address, topic, 1) == [b"behind it"]
    opened.abort_transaction(DEADLINE)


def test_a_terminated_transaction_is_aborted_and_its_producer_fenced(
    broker: Broker, opened: Producer, topic: str
):
    ask = make_ask(TOOLS_4, broker.address)
    ask("forceTerminateTransaction", "--transactionalId", topic)

    assert read(broker.address, topic, 0) == []
    with pytest.raises(KafkaException) as caught:
        opened.commit_transaction(DEADLINE)
    assert caught.value.args[0].fatal()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Three nodes of one directory."""
    with start_server(tmp_path / "data", listen={"kafka": "127.0.0.1:0"}, nodes=NODES) as started:
        yield started
        assert started.stop() == 0


@pytest.mark.parametrize("tools", TOOLS, ids=lambda tools: tools.version)
def test_every_node_describes_the_producers_of_a_partition(server: Server, tools: Tools):
    """As replicas of Kafka do; `--broker-id` names one."""
    topic, address = "topic", server.kafka
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(topic, NODES)])[topic].result(DEADLINE)
    opened = producer(address, topic)
    opened.begin_transaction()
    write(opened, topic, b"open")
    ask = make_ask(tools, address)

    for partition in range(NODES):
        place = ("--topic", topic, "--partition", partition)
        found = [ask("describe-producers", *place, "--broker-id", each) for each in (1, 2, 3)]

        assert found[0] == found[1] == found[2]
        assert len(found[0]) == (partition == 0)
    for each in (1, 2, 3):
        hanging = ("find-hanging", "--broker-id", each, "--max-transaction-timeout", 0)
        assert ask(*hanging) == []
    opened.abort_transaction(DEADLINE)
