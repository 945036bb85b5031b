"""TubeMQ's own Java client at several nodes: one active master, a broker for each node."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import Process
from tests.conformance.clients.tubemq import (
    Consumer,
    Out,
    Producer,
    Read,
    connect,
    driver_process,
)
from tests.server import Server, run_trilogue, start_server

pytestmark = pytest.mark.java
LISTEN = dict.fromkeys(("kafka", "tubemq-master", "tubemq-broker", "http"), "127.0.0.1:0")
PARTITIONS = 4
WAIT_S = 60.0


@pytest.fixture(scope="module")
def driver() -> Iterator[Process]:
    process = driver_process()
    yield process
    process.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "data", listen=LISTEN, nodes=2) as started:
        yield started
        started.stop()


def doors_of_nodes(server: Server) -> dict[int, dict[str, str]]:
    listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)
    return {row["id"]: row["doors"] for row in json.loads(listed.stdout)}


def masters(server: Server) -> str:
    """Return the masters of both nodes, the standby first."""
    doors = doors_of_nodes(server)
    return ",".join(doors[node_id]["tubemq-master"] for node_id in (2, 1))


def create(server: Server, topic: str) -> None:
    run_trilogue(
        "topics", "create", topic, "--partitions", str(PARTITIONS), "--server", server.kafka
    )


def numbered(topic: str, first: int, count: int) -> list[Out]:
    return [Out(topic, b"%d" % number) for number in range(first, first + count)]


def values(reads: list[Read]) -> list[int]:
    return sorted(int(each.body) for each in reads)


def pids_of_nodes(server: Server) -> dict[int, int]:
    listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)
    return {row["id"]: row["pid"] for row in json.loads(listed.stdout)}


def send_all(producer: Producer, messages: list[Out]) -> None:
    """Send each message until it is accepted."""
    deadline = Deadline("all messages are accepted", WAIT_S)
    while messages:
        deadline.check()
        results = producer.send(*messages)
        messages = [each for each, sent in zip(messages, results, strict=True) if not sent.ok]


def read_all(consumer: Consumer, count: int) -> set[int]:
    """Get and confirm until there are so many different messages; some may come twice."""
    found: set[int] = set()
    deadline = Deadline(f"{count} messages", WAIT_S)
    while len(found) < count:
        deadline.check(sorted(found))
        got = consumer.get()
        found.update(int(each.body) for each in got.messages)
        if got.context:
            consumer.confirm(got)
    return found


def test_a_producer_and_a_group_use_the_brokers_of_both_nodes(server: Server, driver: Process):
    create(server, "orders")
    client = connect(driver, masters(server))
    filler = client.producer("orders")
    filler.wait_for("orders")
    sent = filler.sent(*numbered("orders", 0, 40))
    consumer = client.pull("billing", {"orders": []})

    assert values(consumer.receive(40)) == [*range(40)]
    places = consumer.wait_for_partitions(PARTITIONS)
    assert len({each.partition(":")[0] for each in places}) == 2
    assert {each.rpartition(":")[2] for each in places} == {"0", "1"}
    assert len({each.id for each in sent}) == 40


def test_positions_and_brokers_stay_when_nodes_are_started_again(server: Server, driver: Process):
    create(server, "orders")
    client = connect(driver, masters(server))
    filler = client.producer("orders")
    filler.wait_for("orders")
    filler.sent(*numbered("orders", 0, 20))
    consumer = client.pull("billing", {"orders": []})
    assert values(consumer.receive(20)) == [*range(20)]
    places = consumer.wait_for_partitions(PARTITIONS)

    for node_id, pid in pids_of_nodes(server).items():
        os.kill(pid, signal.SIGKILL)
        send_all(filler, numbered("orders", 100 * node_id, 20))
        read = read_all(consumer, 20)
        assert read >= {*range(100 * node_id, 100 * node_id + 20)}
        assert min(read) >= 100, "what was confirmed does not come again"
    assert consumer.wait_for_partitions(PARTITIONS) == places


def test_consumers_that_balance_themselves_find_all_brokers(server: Server, driver: Process):
    create(server, "orders")
    client = connect(driver, masters(server))
    filler = client.producer("orders")
    filler.wait_for("orders")
    filler.sent(*numbered("orders", 0, 20))
    consumer = client.balance("search", {"orders": []})
    places = consumer.wait_for_meta()

    assert len(places) == PARTITIONS
    for place in places:
        assert consumer.attach(place, 0).ok
    assert values(consumer.receive(20)) == [*range(20)]


def test_the_web_api_of_the_master_is_at_its_node(server: Server):
    doors = doors_of_nodes(server)
    query = "/webapi.htm?type=op_query&method=admin_query_consume_group_detail&groupName=billing"

    first = httpx.get(f"http://{doors[1]['http']}{query}")
    second = httpx.get(f"http://{doors[2]['http']}{query}")

    assert first.status_code == 200
    assert second.status_code == 307
    assert second.headers["location"] == f"http://{doors[1]['http']}{query}"


def test_clients_follow_slots_that_move(tmp_path: Path, driver: Process):
    data = tmp_path / "data"
    with start_server(data, listen=LISTEN, nodes=3) as server:
        create(server, "orders")
        client = connect(driver, doors_of_nodes(server)[1]["tubemq-master"])
        filler = client.producer("orders")
        filler.wait_for("orders")
        consumer = client.pull("billing", {"orders": []})
        filler.sent(*numbered("orders", 0, 20))
        assert read_all(consumer, 20) == {*range(20)}

        run_trilogue("nodes", "move", *slots_of_node(server, 3), "--to", "2", "--data", str(data))
        send_all(filler, numbered("orders", 100, 20))
        read = read_all(consumer, 20)

        assert read >= {*range(100, 120)}
        assert min(read) >= 100, "what was confirmed does not come again"
        places = consumer.wait_for_partitions(PARTITIONS)
        assert len({each.partition(":")[0] for each in places}) == 2
        assert server.stop() == 0


def slots_of_node(server: Server, node_id: int) -> list[str]:
    listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)
    rows = json.loads(listed.stdout)
    return next([*map(str, row["slots"])] for row in rows if row["id"] == node_id)
