"""A segment is missing when the server starts: it is named, and no reader waits in silence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pulsar
import pytest

from tests.brokers import OurServer, make_topic
from tests.waiting import wait_until
from trilogue.client.errors import ServerRefused
from trilogue.client.tubemq.sync import TubeClient

TOPIC = "orders"
MESSAGES = 20
ERROR_WITHIN_S = 60.0
READ_S = 10.0  # it is over before the error is raised


class Server(OurServer):
    """A server with all listeners, which looks for its files every 200 ms."""

    door_names = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One whose topic lost its only segment; its file is in `tmp_path`."""
    made = Server(tmp_path / "data", settings={"retention.check-every": "200ms"}).start()
    make_topic(made.address, TOPIC, 1)
    produce(made)
    assert made.stop() == 0  # everything is flushed to a segment
    (segment,) = (made.data / "segments").glob("*.segment")
    shutil.move(segment, tmp_path)
    made.start()
    yield made
    made.kill9()


def produce(server: Server) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.address})
    for number in range(MESSAGES):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(90) == 0


def health(server: Server) -> dict[str, object]:
    with urllib.request.urlopen(f"http://{server.doors['http']}/healthz", timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def consume(server: Server, group: str) -> confluent_kafka.Message:
    """Return the first message or error of a new group."""
    options = {
        "bootstrap.servers": server.address,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    with closing(confluent_kafka.Consumer(options)) as consumer:
        consumer.subscribe([TOPIC])
        message = consumer.poll(ERROR_WITHIN_S)
        assert message is not None, "the consumer waits in silence"
        return message


def probe(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.doors['http']}/{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_missing_segment_is_named_and_readers_get_an_error(server: Server, tmp_path: Path):
    (lost,) = tmp_path.glob("*.segment")

    # health, log, doctor
    assert health(server)["missing_segments"] == [lost.name]
    assert probe(server, "readyz") == (200, "ok")
    assert probe(server, "livez") == (200, "ok")
    assert "segment.missing" in server.output
    command = [sys.executable, "-m", "trilogue.cli.main", "doctor", "--server", server.address]
    done = subprocess.run(
        [*command, "--http", server.doors["http"]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert lost.name in done.stdout

    # readers of each protocol
    error = consume(server, "kafka-readers").error()
    assert error is not None
    assert error.name() == "_BAD_MSG" or error.code() == confluent_kafka.KafkaError.INVALID_MSG
    began = time.monotonic()
    with closing(
        pulsar.Client(f"pulsar://{server.doors['pulsar']}", operation_timeout_seconds=20)
    ) as client:
        with pytest.raises(pulsar.PulsarException):
            client.create_reader(TOPIC, pulsar.MessageId.earliest)
        with pytest.raises(pulsar.PulsarException):
            client.subscribe(TOPIC, "all", initial_position=pulsar.InitialPosition.Earliest)
    assert time.monotonic() - began < ERROR_WITHIN_S
    with (
        TubeClient(server.doors["tubemq-master"]) as tubes,
        tubes.consumer(TOPIC, group="tubes") as reader,
        pytest.raises(ServerRefused, match="missing") as refused,
    ):
        reader.get(READ_S)
    assert str(server.data) not in str(refused.value)

    # others are served, and readers go on when the file is back
    produce(server)
    shutil.move(lost, server.data / "segments")
    wait_until(lambda: not health(server)["missing_segments"], "the file")
    assert probe(server, "readyz") == (200, "ok")
    assert consume(server, "kafka-readers-again").value() == b"0"
    with closing(pulsar.Client(f"pulsar://{server.doors['pulsar']}")) as client:
        again = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        assert again.read_next(60_000).data() == b"0"
    assert server.stop() == 0
