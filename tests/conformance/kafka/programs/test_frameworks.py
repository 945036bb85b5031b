"""Frameworks over Kafka's clients, unmodified: Quix Streams, FastStream, Faust, Flink.

Each has an environment of its own, which the first run makes: 1.2 GB, most of it Flink's.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from tests.brokers import Broker
from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.building import BUILD, HERE, maven_jar, python_environment
from tests.conformance.clients.confluent import Confluent
from tests.tools import require_program

PROGRAMS = HERE / "python-frameworks"
COUNT = 1_000
COPIED, COPIED_EACH_S = 12_000, 500
KILLS = 3
CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0"
FLINK = "apache-flink==2.0.0"

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def python() -> Path:
    """An environment with all but Flink, which wants older packages."""
    packages = ("quixstreams==3.28.1", "faststream[kafka,confluent]==0.7.8")
    return python_environment(BUILD / "frameworks", *packages, "faust-streaming==0.15.3")


def run_program(python: Path, name: str, *arguments: object) -> None:
    command = [python, PROGRAMS / f"{name}.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def worker(python: Path, name: str, *arguments: object) -> Iterator[None]:
    """A program that runs until the context ends."""
    command = [python, PROGRAMS / f"{name}.py", *map(str, arguments)]
    with subprocess.Popen(command, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def values(address: str, topic: str, count: int, deadline_s: float = 60) -> list[Any]:
    """The committed values of a topic: until there are `count`, and for two seconds more."""
    consumer = Confluent.consumer(address, f"values-of-{topic}")
    consumer.subscribe([topic])
    found: list[Any] = []
    ends_s = time.monotonic() + deadline_s
    with closing(consumer):
        while time.monotonic() < ends_s:
            for message in consumer.consume(500, 0.5):
                if message.error() is None:
                    found.append(json.loads(message.value()))
                    if len(found) == count:
                        ends_s = time.monotonic() + 2
    return found


def test_quix_streams_sums_windows_exactly_once(
    python: Path, address: str, topic: str, tmp_path: Path
):
    run_program(python, "quix_streams", address, topic, topic + "-sums", COUNT, tmp_path)
    windows = Counter((number % 7, number // 100) for number in range(COUNT))
    sums = values(address, topic + "-sums", len(windows))
    assert len(sums) == len(windows)
    assert sum(sums) == sum(range(COUNT))


@pytest.mark.parametrize("library", ["aiokafka", "confluent"])
def test_faststream_subscribes_and_publishes(python: Path, address: str, topic: str, library: str):
    run_program(python, "fast_stream", library, address, topic, topic + "-doubled", COUNT)
    doubled = values(address, topic + "-doubled", COUNT)
    assert sorted(doubled) == [2 * number for number in range(COUNT)]


def test_faust_groups_by_another_key_and_counts_in_a_table(
    python: Path, address: str, topic: str, tmp_path: Path
):
    with worker(python, "faust_counts", address, topic, topic + "-counts", COUNT, tmp_path):
        counted = Counter(values(address, topic + "-counts", COUNT))
    assert counted == Counter(dict.fromkeys(range(1, COUNT // 5 + 1), 5))


def test_flink_copies_exactly_once_through_kills(own_broker: Broker, topic: str):
    require_program("java")
    require_program("mvn")
    address = own_broker.address
    python, jar = python_environment(BUILD / "flink", FLINK), maven_jar(CONNECTOR)
    for name in (topic, topic + "-copy"):
        CONFLUENT.create(address, name, 4)
    writer = threading.Thread(target=write_numbers, args=(address, topic), daemon=True)
    with worker(python, "flink_copy", address, topic, topic + "-copy", jar):
        writer.start()
        for _ in range(KILLS):
            time.sleep(COPIED / COPIED_EACH_S / KILLS)
            own_broker.kill9()
            own_broker.start()
        writer.join()
        copied = values(address, topic + "-copy", COPIED, 240)
    assert sorted(each["n"] for each in copied) == list(range(COPIED))


def write_numbers(address: str, topic: str) -> None:
    producer = Confluent.producer(
        address, {"enable.idempotence": True, "message.timeout.ms": 120_000}
    )
    for number in range(COPIED):
        producer.produce(topic, json.dumps({"n": number}))
        if number % COPIED_EACH_S == 0:
            producer.poll(1)
    assert not producer.flush(120)
