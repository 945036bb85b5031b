"""Kafka Connect, unmodified: a file into a topic and the topic into a file, alone and distributed.

Its positions are in a file (standalone, sources), in our groups (sinks), in compacted topics
(distributed). At least once is what these connectors promise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tools.servers.probe import free_port

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_apps import App, properties, wait
from tests.conformance.clients.kafka_connect import INTERNAL, PLAIN, ConnectWorker

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
TOPIC = "file-lines"

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def source(root: Path) -> dict[str, object]:
    return {
        "name": "source",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": 1,
        "file": root / "source.txt",
        "topic": TOPIC,
    }


def sink(root: Path) -> dict[str, object]:
    return {
        "name": "sink",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": 1,
        "file": root / "sink.txt",
        "topics": TOPIC,
        "consumer.override.session.timeout.ms": 6000,
    }


def append(root: Path, first: int, last: int) -> None:
    """In ASCII: the source counts characters and skips bytes."""
    with (root / "source.txt").open("a") as file:
        file.writelines(f"line {number} as plain as it was\n" for number in range(first, last))


def lines(root: Path) -> list[str]:
    path = root / "sink.txt"
    return path.read_text().splitlines() if path.exists() else []


def arrived(root: Path) -> bool:
    return len(lines(root)) >= len((root / "source.txt").read_text().splitlines())


def equal(root: Path) -> None:
    wait("the lines in the second file", lambda: arrived(root))
    assert (root / "sink.txt").read_text() == (root / "source.txt").read_text()


def standalone(broker: Broker, root: Path, version: str) -> App:
    worker = {
        **PLAIN,
        "bootstrap.servers": broker.address,
        "offset.storage.file.filename": root / "offsets",
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    files = [
        properties(root / "worker.properties", worker),
        properties(root / "source.properties", source(root)),
        properties(root / "sink.properties", sink(root)),
    ]
    return App(root / "connect", version, STANDALONE, files, level="warn")


@pytest.mark.parametrize("version", ["3.9.1", pytest.param("4.3.1", marks=pytest.mark.long)])
def test_a_file_goes_through_a_topic_into_a_file(own_broker: Broker, tmp_path: Path, version: str):
    """Stopped and started again it goes on where it was: nothing is lost, nothing comes twice."""
    append(tmp_path, 0, 500)
    with standalone(own_broker, tmp_path, version) as connect:
        equal(tmp_path)
        connect.stop()

    append(tmp_path, 500, 700)
    with standalone(own_broker, tmp_path, version) as connect:
        equal(tmp_path)
        connect.stop()

    read = Confluent().read(own_broker.address, TOPIC, 700)
    assert [each.value.decode() for each in read] == lines(tmp_path)


@pytest.mark.long
def test_a_file_goes_on_over_a_kill_of_the_server(own_broker: Broker, tmp_path: Path):
    append(tmp_path, 0, 500)
    with standalone(own_broker, tmp_path, "3.9.1") as connect:
        equal(tmp_path)
        own_broker.kill9()
        append(tmp_path, 500, 1000)
        own_broker.start()
        append(tmp_path, 1000, 1500)
        wanted = (tmp_path / "source.txt").read_text().splitlines()
        wait("every line", lambda: set(wanted) <= set(lines(tmp_path)))
        assert in_order(lines(tmp_path)) == wanted
        connect.stop()


def in_order(found: list[str]) -> list[str]:
    """Without what came again."""
    return list(dict.fromkeys(found))


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_a_distributed_worker_keeps_what_it_is_in_three_compacted_topics(
    own_broker: Broker, tmp_path: Path, version: str
):
    append(tmp_path, 0, 300)
    with ConnectWorker(own_broker.address, tmp_path, version) as worker:
        wait("the worker", worker.serves)
        for connector in (source(tmp_path), sink(tmp_path)):
            name = connector.pop("name")
            worker.request("/connectors", {"name": name, "config": connector}, "POST")
        equal(tmp_path)
        wait("both run", lambda: worker.runs("source") and worker.runs("sink"))
        worker.stop()

    admin = AdminClient({"bootstrap.servers": own_broker.address, "log_level": 2})
    topics = admin.list_topics(timeout=DEADLINE).topics
    for name, partitions in INTERNAL.items():
        assert len(topics[f"connect-{name}s"].partitions) == partitions
        resource = ConfigResource(ResourceType.TOPIC, f"connect-{name}s")
        (response,) = admin.describe_configs([resource]).values()
        assert response.result(DEADLINE)["cleanup.policy"].value == "compact"

    own_broker.kill9()
    own_broker.start()
    append(tmp_path, 300, 500)
    with ConnectWorker(own_broker.address, tmp_path, version) as worker:
        wait("the worker", worker.serves)
        assert sorted(worker.request("/connectors")) == ["sink", "source"]  # type: ignore[call-overload]
        equal(tmp_path)
        worker.request("/connectors/sink/pause", method="PUT")
        worker.request("/connectors/source", method="DELETE")
        wait("one is gone", lambda: worker.request("/connectors") == ["sink"])
        worker.stop()
