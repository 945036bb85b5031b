"""The example of a declared pipeline, over flights: every figure is the data set's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from tests.demo.data_set import unpack_weeks
from tests.server import clean_environment, command_line, start_server
from tests.tools import require
from trilogue.demo.check import Message, find_differences
from trilogue.demo.data import PARTITIONS, closing_events, read_events
from trilogue.demo.replay import KafkaReplay, create_topics
from trilogue.spark.local_session import find_java
from trilogue.spark.pipelines.flights import RESULTS

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(4_000)]
FILE = Path(__file__).parents[3] / "examples/pipelines/flights.py"


def run_pipeline(servers: str, folder: Path, *engine: str) -> None:
    """Run it; again where Spark's planner of a Python source had no 10 s to start (gaps.md)."""
    for _ in range(4):
        done = subprocess.run(
            command_line(
                "pipeline", "run", str(FILE), "--storage", str(folder),
                "-c", f"trilogue.servers={servers}", *engine,
            ),
            env=clean_environment(), capture_output=True, text=True, timeout=1_500, check=False,
        )  # fmt: skip
        if "failed to connect back" not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("flights: up to date\n")


def read_committed(servers: str, topic: str, partitions: int) -> list[Message]:
    """Return all committed messages up to the present end of a topic, which has markers, too."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.partition.eof": True,
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
    found, ends = [], 0
    while ends < partitions:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(Message(message.key(), message.value(), message.timestamp()[1]))
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    return found


def link_tables(folder: Path) -> Path:
    """Return a folder with the tables where the check of the demo looks for them."""
    parquet = folder / "parquet"
    for result in RESULTS:
        link = parquet / result.name / "table"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(folder / "run" / "tables" / result.name.replace("-", "_"))
    return parquet


@pytest.mark.parametrize("engine", [(), ("--streaming",)], ids=["declarative", "streaming"])
def test_the_declared_flights_give_the_figures_of_the_data_set(tmp_path, engine):
    """A second run finds nothing new, and repeats nothing."""
    require("java", found=find_java(tmp_path / "java"))
    paths = unpack_weeks(tmp_path / "csv")
    with start_server(tmp_path / "data") as server:
        results = {result.name: result.partitions for result in RESULTS}
        create_topics(server.kafka, PARTITIONS | results)
        replay = KafkaReplay(server.kafka)
        streams = read_events(paths, ("weather", "flights"))
        replay.send_all(read_events(paths, ("airlines", "airports", "planes")), lambda _: None)
        replay.send_all(streams, lambda _: None)
        for partition, event in closing_events(streams[-1].time_ms):
            replay.send(event, partition)
        replay.finish()

        for _ in range(2):
            run_pipeline(server.kafka, tmp_path / "run", *engine)
            messages = {
                name: read_committed(server.kafka, name, count) for name, count in results.items()
            }
            wrong, compared = find_differences(paths, link_tables(tmp_path), messages)

            assert wrong == []
            assert compared > 1_000
