"""A real Apache Pulsar and a real Apache TubeMQ, read by the source: no message twice or never."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

import pulsar
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tools.servers.pulsar import RealPulsar
from tools.servers.tubemq import RealTubeMQ

from tests.brokers import TubeBroker, make_tubemq
from tests.spark.protocols.rows import (
    assert_each_message_once_where_chunks_are_cut,
    make_stream,
    read_batch,
    read_by_limit,
    read_partitions,
)
from tests.spark.rooms import BEGAN_MS
from tests.tools import require_pulsar_jars, require_real_tubemq
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

pytestmark = [
    pytest.mark.java,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CHUNKED = bytes(range(256)) * (7 << 12)


@pytest.fixture(scope="module")
def pulsar_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPulsar]:
    require_pulsar_jars()
    server = RealPulsar(tmp_path_factory.mktemp("pulsar"))
    server.start()
    yield server
    server.kill9()


@pytest.fixture(scope="module")
def real_pulsar(pulsar_server: RealPulsar) -> str:
    return f"pulsar://{pulsar_server.address}"


@pytest.fixture(scope="module")
def real_tubemq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TubeBroker]:
    server = make_tubemq("tubemq", tmp_path_factory.mktemp("tubemq"))
    server.start()
    yield server
    server.kill9()


def write_pulsar(url: str, topic: str, numbers: range, **options: object) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, **options)
    for number in numbers:
        producer.send_async(
            b"v%d" % number, lambda *_: None, partition_key=f"k{number % 3}",
            properties={"a": str(number)}, event_timestamp=BEGAN_MS + number,
        )  # fmt: skip
    producer.flush()
    client.close()


def assert_micro_batches_have_each_message_once(
    options: dict[str, object], write: Callable[[range], None]
) -> None:
    """What is written after a micro-batch was planned comes in the next one."""
    stream = make_stream(startingOffsets="earliest", **options)
    write(range(100))
    middle = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    write(range(100, 150))
    first = read_partitions(stream, stream.partitions(stream.initialOffset(), middle))

    after = make_stream(startingOffsets="earliest", **options)
    end = after.latestOffset(middle, ReadAllAvailable())
    second = read_partitions(after, after.partitions(middle, end))

    assert sorted(row["value"] for row in first) == sorted(b"v%d" % one for one in range(100))
    assert sorted(row["value"] for row in second) == sorted(b"v%d" % one for one in range(100, 150))
    assert after.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize("in_batches", [True, False], ids=["batches", "single"])
def test_micro_batches_of_a_pulsar_have_each_message_once(real_pulsar, in_batches):
    topic = f"stream-{in_batches}".lower()
    options = {"url": real_pulsar, "subscribe": topic}

    assert_micro_batches_have_each_message_once(
        options,
        lambda numbers: write_pulsar(real_pulsar, topic, numbers, batching_enabled=in_batches),
    )

    rows = read_batch(**options, includeHeaders="true")
    of_one = next(row for row in rows if row["value"] == b"v7")
    assert (of_one["key"], of_one["headers"]) == (b"k1", [{"key": "a", "value": b"7"}])
    assert of_one["timestamp"].timestamp() * 1000 == BEGAN_MS + 7
    assert {row["offset"] for row in rows} == {None}
    assert len(rows) == 150


def test_messages_of_a_pulsar_in_chunks_and_compressed_are_read(real_pulsar):
    client = pulsar.Client(real_pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    in_chunks = client.create_producer("chunks", chunking_enabled=True, batching_enabled=False)
    for value in (b"first", CHUNKED, b"last"):
        in_chunks.send(value)
    client.close()
    for codec in ("LZ4", "ZLib", "ZSTD", "SNAPPY"):
        kind = getattr(pulsar.CompressionType, codec)
        write_pulsar(real_pulsar, "codecs", range(10), compression_type=kind)

    chunked = read_batch(url=real_pulsar, subscribe="chunks", columns="topic,partition,value")
    of_codecs = read_batch(url=real_pulsar, subscribe="codecs")

    assert [row["value"] for row in chunked] == [b"first", CHUNKED, b"last"]
    stream = make_stream(url=real_pulsar, subscribe="chunks", startingOffsets="earliest")
    assert_each_message_once_where_chunks_are_cut(stream, "chunks", [b"first", CHUNKED, b"last"])
    values = [b"v%d" % one for one in range(10)]
    assert sorted(row["value"] for row in of_codecs) == sorted(values * 4)


def subscribe(url: str, topic: str) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(topic, "keeps", initial_position=pulsar.InitialPosition.Earliest)
    client.close()


def begin_ledger(server: RealPulsar, topic: str) -> None:
    """Unload a topic: its next message is in a ledger of its own."""
    url = f"{server.http}/admin/v2/persistent/public/default/{topic}/unload"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60):
        pass


def test_limits_count_entries_of_a_pulsar_over_ledgers(pulsar_server, real_pulsar):
    """40 entries in each of three ledgers, and none behind the last of them."""
    topic = "ledgers"
    subscribe(real_pulsar, topic)  # else the broker removes each ledger that has its end
    for first in range(0, 120, 40):
        write_pulsar(real_pulsar, topic, range(first, first + 40), batching_enabled=False)
        begin_ledger(pulsar_server, topic)
    options = {"url": real_pulsar, "subscribe": topic}

    by_rows = read_by_limit({**options, "maxOffsetsPerTrigger": 15})
    by_bytes = read_by_limit(
        {**options, "maxBytesPerTrigger": 1_000, "admin.url": pulsar_server.http}
    )
    tasks = [
        row["value"]
        for row in read_batch(**options, minPartitions=4, columns="topic,partition,value")
    ]

    for found in (by_rows, by_bytes):
        assert [value for part in found for value in part] == [b"v%d" % one for one in range(120)]
        assert len(found) > 3
    assert sorted(tasks) == sorted(b"v%d" % one for one in range(120))
    assert max(map(len, by_rows)) == 15
    assert [len(part) for part in by_rows] == [15, 15, 10] * 3


def test_a_subscription_of_a_pulsar_has_the_position_of_a_query(real_pulsar):
    write_pulsar(real_pulsar, "shown", range(12), batching_enabled=False)
    stream = make_stream(
        url=real_pulsar, subscribe="shown", startingOffsets="earliest",
        predefinedSubscription="lag", maxOffsetsPerTrigger=8,
    )  # fmt: skip
    stream.commit(stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit()))

    client = pulsar.Client(real_pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found = client.subscribe("shown", "lag").receive(60_000).data()
    client.close()

    assert found == b"v8"


def write_tubemq(address: str, topic: str, numbers: range) -> None:
    with TubeClient(address) as client, client.producer(topic) as producer:
        messages = [Message(topic, b"v%d" % one, {"a": str(one)}) for one in numbers]
        for sent in producer.submit_many(messages):
            sent.result(60)


def test_micro_batches_of_a_tubemq_have_each_message_once(real_tubemq):
    """Both partitions share one index, and a pack goes beyond the end of a micro-batch."""
    with real_tubemq.inside():
        topic = real_tubemq.topic(2)
        options = {"url": f"tubemq://{real_tubemq.address}", "subscribe": topic}

        assert_micro_batches_have_each_message_once(
            options, partial(write_tubemq, real_tubemq.address, topic)
        )
        rows = read_batch(**options, includeHeaders="true")
        limited = make_stream(**options, startingOffsets="earliest", maxOffsetsPerTrigger=1_001)
        at, parts = limited.initialOffset(), []
        while (end := limited.latestOffset(at, limited.getDefaultReadLimit())) != at:
            parts.append(read_partitions(limited, limited.partitions(at, end)))
            at = end

    assert max(map(len, parts)) <= 1_001 // 28
    values = sorted(row["value"] for part in parts for row in part)
    assert values == sorted(row["value"] for row in rows)
    assert len(rows) == 150
    assert {row["partition"] for row in rows} == {0, 1}
    assert {(row["offset"], row["timestamp"]) for row in rows} == {(None, None)}
    of_one = next(row for row in rows if row["value"] == b"v7")
    assert of_one["headers"] == [{"key": "a", "value": b"7"}]


def test_partitions_of_several_brokers_of_a_tubemq_have_each_message_once(tmp_path):
    """Partition ids begin at 0 at each broker, and one broker ends between two micro-batches."""
    require_real_tubemq()
    server = RealTubeMQ(tmp_path, broker_ids=(1, 2))
    with server.start({"spread": 2}).inside():
        options = {"url": f"tubemq://{server.address}", "subscribe": "spread"}
        write = partial(write_tubemq, server.address, "spread")

        assert_micro_batches_have_each_message_once(options, write)
        rows = read_batch(**options)
        stream = make_stream(startingOffsets="earliest", **options)
        end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        server.brokers[2].stop()
        server.start_broker()
        server.wait_for_topics({"spread": 2})
        write(range(150, 250))
        after = make_stream(**options)
        more = read_partitions(
            after, after.partitions(end, after.latestOffset(end, ReadAllAvailable()))
        )
    server.kill9()

    assert {row["partition"] for row in rows} == {0, 1, 2_000_000, 2_000_001}
    assert sorted(row["value"] for row in rows) == sorted(b"v%d" % one for one in range(150))
    assert sorted(row["value"] for row in more) == sorted(b"v%d" % one for one in range(150, 250))
