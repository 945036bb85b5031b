"""The exactly-once sink in a real Spark: drivers, tasks and servers that end at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from tools.servers.probe import free_port

from tests.node.supervisor.test_nodes import leaders, pids_of_nodes
from tests.server import Server, start_server
from tests.sharing import report, seed_of_the_run
from tests.spark.rooms import make_topic, numbered, produce, run_available, stream
from tests.tools import require
from tests.waiting import wait_until
from trilogue.spark.local_session import find_java
from trilogue.spark.processes import descendants
from trilogue.spark.source import DefaultSource
from trilogue.spark.write_options import WriteOptions
from trilogue.spark.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

KILLS = 20
EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once"}


def committed(server: Server, topic: str, partitions: int) -> list[str]:
    """All messages that a reader of committed messages gets up to the end of the log."""
    return read_values(server, topic, partitions, "read_committed")


def read_values(server: Server, topic: str, partitions: int, isolation: str) -> list[str]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "g", "enable.partition.eof": True,
         "isolation.level": isolation}
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
    found, ends = [], 0
    while ends < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(message.value().decode())
        else:
            ends += 1
    consumer.close()
    return sorted(found)


def count_committed_offsets(server: Server, topic: str, partitions: int) -> int:
    """How many offsets a reader of committed messages may read."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "g", "isolation.level": "read_committed"}
    )
    ends = [
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, each), timeout=60)[1]
        for each in range(partitions)
    ]
    consumer.close()
    return sum(ends)


def assert_end_is_stable(server: Server, topic: str) -> None:
    """No open transaction keeps readers of committed messages from the end."""
    first, last = find_ends(server, topic)
    assert first == last


def find_ends(server: Server, topic: str) -> list[int]:
    """Return where readers of committed messages end, and where the log ends."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": server.kafka, "group.id": "g", "isolation.level": isolation}
        )
        partition = confluent_kafka.TopicPartition(topic, 0)
        ends.append(consumer.get_watermark_offsets(partition, timeout=90)[1])
        consumer.close()
    return ends


def batch_writer(frame: DataFrame, server: Server, **options: object) -> DataFrameWriter:
    writer = frame.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
    for name, value in {**EXACTLY_ONCE, **options}.items():
        writer = writer.option(name, value)
    return writer.mode("append")


class Dying(DefaultSource):
    """The sink with a driver that ends at its commit where a file of this name exists."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        options = dict(self.options)
        writer = DyingWriter(WriteOptions.parse(without_folder(options)), schema)
        writer.folder = next(Path(options[key]) for key in options if key.lower() == "folder")
        return writer


def without_folder(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.lower() != "folder"}


class DyingWriter(StreamWriter):
    folder: Path

    def commit(self, messages: list, batchId: int) -> None:  # noqa: N803
        self._end_at("before")
        super().commit(messages, batchId)
        self._end_at("after")

    def _end_at(self, name: str) -> None:
        file = self.folder / name
        if file.exists():
            file.unlink()
            os._exit(9)


def stream_writer(frame: DataFrame, server: Server, state: Path, **options) -> DataStreamWriter:
    writer = (
        frame.select("key", "value").writeStream.format("trilogue")
        .option("kafka.bootstrap.servers", server.kafka)
        .option("checkpointLocation", str(state / "checkpoint"))
    )  # fmt: skip
    for name, value in {**EXACTLY_ONCE, **options}.items():
        writer = writer.option(name, value)
    return writer


def wait_for_batches(query: StreamingQuery, count: int) -> None:
    """Come back when the query has run so many micro-batches, or has ended."""
    wait_until(
        lambda: len(query.recentProgress) >= count or not query.isActive,
        "a micro-batch",
        timeout_s=200,
    )


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_micro_batch_is_committed_once_when_its_driver_ends(spark, server, tmp_path, moment):
    spark.dataSource.register(Dying)
    source, target = make_topic(server, 2), make_topic(server, 1)
    produce(server, source, numbered(50))
    rows = stream(spark, server, subscribe=source, startingOffsets="earliest")
    (tmp_path / moment).touch()

    def run() -> None:
        writer = stream_writer(rows, server, tmp_path, topic=target, folder=str(tmp_path))
        run_available(writer.format("dying"))

    with pytest.raises(Exception, match=r"(?i)sink|exit|crash|EOF"):
        run()
    expected = sorted(f"v{number}" for number in range(50))
    assert committed(server, target, 1) == ([] if moment == "before" else expected)

    run()

    assert committed(server, target, 1) == expected
    assert_end_is_stable(server, target)


def test_a_failed_task_leaves_nothing_of_the_job(spark, server):
    target = make_topic(server, 1)
    rows = spark.range(20_000, numPartitions=2).select(
        f.when(f.col("id") == 19_999, f.raise_error(f.lit("a broken row")))
        .otherwise(f.concat(f.lit("v"), "id")).cast("string").alias("value")
    )  # fmt: skip

    with pytest.raises(Exception, match="a broken row"):
        batch_writer(rows, server, transactionTimeout="10s").save(target)

    # A task that Spark kills while it writes leaves its transaction to the time-out.
    wait_until(lambda: len(set(find_ends(server, target))) == 1, "the end of all transactions")
    assert committed(server, target, 1) == []


def test_a_batch_with_a_version_is_written_once(spark, server):
    """As Delta's options of these names: what foreachBatch needs for exactly once."""
    target = make_topic(server, 1)

    def write(text: str, version: int) -> None:
        rows = spark.range(3).select(f.concat(f.lit(text), "id").alias("value"))
        batch_writer(rows, server, txnAppId="loads", txnVersion=version).save(target)

    write("a", 0)
    write("a", 0)
    write("b", 1)

    assert committed(server, target, 1) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_stream_through_kills_of_the_server_repeats_and_loses_nothing(spark, tmp_path):
    """Micro-batches go on while the server is killed; a query that fails is started again."""
    address = {"kafka": f"127.0.0.1:{free_port()}"}
    server = start_server(tmp_path / "data", listen=address)
    source, target = make_topic(server, 2), make_topic(server, 2)
    produce(server, source, numbered(1_200))
    rows = stream(
        spark, server, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=300
    )

    def start() -> StreamingQuery:
        writer = stream_writer(rows, server, tmp_path, topic=target)
        return writer.trigger(availableNow=True).start()

    query = start()
    for kill in range(2):
        wait_for_batches(query, kill + 1)
        server.kill9()
        server = start_server(tmp_path / "data", listen=address)
        if not query.isActive:
            query = start()
    for _ in range(5):
        try:
            if query.awaitTermination(120):
                break
        except StreamingQueryException:
            query = start()

    assert committed(server, target, 2) == sorted(f"v{number}" for number in range(1_200))
    server.stop()


@pytest.mark.long
def test_a_stream_through_kills_of_nodes_repeats_and_loses_nothing(spark, tmp_path, request):
    """One node of three is killed at a time; its supervisor starts it again."""
    seed = seed_of_the_run(request.config)
    dice, count, kills = random.Random(seed), 3_000, 5
    listen = {"kafka": "127.0.0.1:0"}
    with start_server(tmp_path / "data", listen=listen, nodes=3, timeout=300) as server:
        source, target = make_topic(server, 6), make_topic(server, 6)
        produce(server, source, numbered(count))
        rows = stream(
            spark, server, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=300
        )

        def start() -> StreamingQuery:
            writer = stream_writer(rows, server, tmp_path, topic=target)
            return writer.trigger(availableNow=True).start()

        query = start()
        for _ in range(kills):
            wait_for_batches(query, len(query.recentProgress) + 1)
            time.sleep(dice.uniform(0, 1))  # by design: at any moment of a micro-batch
            os.kill(dice.choice(pids_of_nodes(server)), signal.SIGKILL)
            if not query.isActive:
                query = start()
        for _ in range(5):
            try:
                if query.awaitTermination(300):
                    break
            except StreamingQueryException:
                query = start()

        written = committed(server, target, 6)
        assert written == sorted(f"v{number}" for number in range(count)), seed
        assert set(leaders(server, target).values()) == {1, 2, 3}


def kill_one_worker(driver: subprocess.Popen, dice: random.Random) -> None:
    """Kill one of Spark's Python processes: a task's worker, their parent, or the planner."""
    found = []
    for pid in sorted(descendants(driver.pid)):
        with contextlib.suppress(OSError):
            program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"python" in program and any(b"pyspark" in each for each in arguments):
                found.append(pid)
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(dice.choice(found), signal.SIGKILL)


def with_malformed(count: int, first: int) -> list[dict[str, object]]:
    """Messages in JSON, of which each tenth is none."""
    return [
        {"key": b"k%d" % one, "value": b'{"n": %d}' % one if one % 10 else b"malformed %d" % one}
        for one in range(first, first + count)
    ]


def wanted_numbers(produced: int, dead_letters: str) -> list[int]:
    return [each for each in range(produced) if not dead_letters or each % 10]


def assert_each_message_once(
    server: Server, target: str, dead_letters: str, produced: int, seed: int
) -> None:
    """Those that cannot be decoded are in their topic at least once."""
    wanted = wanted_numbers(produced, dead_letters)
    assert committed(server, target, 2) == sorted(f"v{each}" for each in wanted), seed
    if dead_letters:
        malformed = {f"malformed {each}" for each in range(0, produced, 10)}
        assert set(committed(server, dead_letters, 1)) == malformed, seed


@pytest.mark.long
@pytest.mark.timeout(9_000)
@pytest.mark.parametrize("has_dead_letters", [False, True], ids=["rows", "dead letters"])
def test_a_stream_through_twenty_kills_repeats_and_loses_nothing(
    tmp_path, request, has_dead_letters
):
    """At random moments the driver with all its processes, one worker, or the server is killed.

    A driver that has ended starts again from its checkpoint. Counted by sequence numbers.
    """
    require("java", found=find_java(tmp_path / "java"))
    address = {"kafka": f"127.0.0.1:{free_port()}"}
    server = start_server(tmp_path / "data", listen=address)
    source, target = make_topic(server, 2), make_topic(server, 2)
    dead_letters = make_topic(server, 1) if has_dead_letters else ""
    make_messages = with_malformed if has_dead_letters else numbered
    command = [sys.executable, "-m", "tests.spark.driver", server.kafka, source, target, tmp_path,
               dead_letters]  # fmt: skip
    seed = seed_of_the_run(request.config)
    dice, produced, driver = random.Random(seed), 0, None
    kills = dict.fromkeys(("driver", "worker", "server"), 0)

    log = tmp_path / "driver.log"

    def run_driver() -> subprocess.Popen:
        with log.open("ab") as output:
            return subprocess.Popen(command, start_new_session=True, stderr=output)

    def describe_wait() -> str:
        return f"a micro-batch (seed {seed}, {kills}); the driver wrote {log.read_text()[-4_000:]}"

    for _ in range(KILLS):
        produce(server, source, make_messages(200, first=produced))
        produced += 200
        before = count_committed_offsets(server, target, 2)

        def has_progress(least: int = before, at: Server = server) -> bool:
            nonlocal driver
            if driver is None or driver.poll() is not None:
                driver = run_driver()
            return count_committed_offsets(at, target, 2) > least

        wait_until(has_progress, describe_wait, timeout_s=600, every=0.5)
        time.sleep(dice.uniform(0, 2))  # by design: at any moment of a micro-batch
        victim = dice.choice(list(kills))
        kills[victim] += 1
        if victim == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        elif victim == "worker":
            kill_one_worker(driver, dice)
        else:
            server.kill9()
            server = start_server(tmp_path / "data", listen=address, timeout=120)
    count = len(wanted_numbers(produced, dead_letters))
    for _ in range(5):  # what is running may still fail of the last kill
        if driver.wait(400) == 0 and len(committed(server, target, 2)) == count:
            break
        driver = run_driver()

    assert_each_message_once(server, target, dead_letters, produced, seed)
    report(request.node, f"kills of {kills}: {produced} messages, each once (seed {seed})")
    server.stop()
