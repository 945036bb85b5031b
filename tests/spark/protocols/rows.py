"""Rows of the source without a Spark: what the planner and the tasks would do, in this process."""

from __future__ import annotations

import itertools
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.server import Server
from tests.spark.rooms import BEGAN_MS, make_topic, produce
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient
from trilogue.spark.protocols.positions import format_position, parse_position, split_position
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.reader import BatchReader
from trilogue.spark.stream_reader import StreamReader

Row = dict[str, Any]
ROWS = (
    {"key": b"k", "value": b"one", "timestamp": BEGAN_MS},
    {"key": None, "value": b"two", "timestamp": BEGAN_MS + 1},
    {"key": b"", "value": None, "timestamp": BEGAN_MS + 2},
    {"key": b"\xff\xfe", "value": b"", "timestamp": BEGAN_MS + 3},
    {"key": b"k", "value": b"\x00\xff", "timestamp": 5,
     "headers": [("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("none", None), ("empty", b"")]},
)  # fmt: skip
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def read_batch(**options: object) -> list[Row]:
    """Rows of a batch, in the order of partitions and offsets."""
    reader = BatchReader(ReadOptions.parse({key: str(one) for key, one in options.items()}))
    return read_partitions(reader, reader.partitions())


def read_next(reader: StreamReader, start: Any) -> tuple[list[Row], Any]:
    """Rows of one micro-batch, and the offsets where it ended."""
    end = reader.latestOffset(start, ReadAllAvailable())
    return read_partitions(reader, reader.partitions(start, end)), end


def make_stream(**options: object) -> StreamReader:
    return StreamReader(ReadOptions.parse({key: str(one) for key, one in options.items()}))


def read_by_limit(options: dict[str, object]) -> list[list[bytes]]:
    """Values of the micro-batches until there are no more."""
    stream = make_stream(**options, startingOffsets="earliest")
    at, found = stream.initialOffset(), []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        rows = read_partitions(stream, stream.partitions(at, end))
        found.append([row["value"] for row in rows])
        at = end
    return found


def read_partitions(reader: BatchReader | StreamReader, partitions: Any) -> list[Row]:
    rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row.get("offset") or 0))


def assert_partitions_that_come_are_read(server: Server, url: str) -> None:
    """A query goes on with the messages of a partition that is new, from its beginning."""
    topic = make_topic(server, 1)
    produce(server, topic, [{"value": b"old", "partition": 0}])
    stream = make_stream(url=url, subscribe=topic, startingOffsets="latest")
    start = stream.initialOffset()
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(90)
    produce(server, topic, [{"value": b"v%d" % each, "partition": each} for each in range(3)])

    rows, end = read_next(stream, start)

    assert [(row["partition"], row["value"]) for row in rows] == [
        (0, b"v0"),
        (1, b"v1"),
        (2, b"v2"),
    ]
    produce(server, topic, [{"value": b"more", "partition": 2}])
    rows, _ = read_next(make_stream(url=url, subscribe=topic), end)
    assert [row["value"] for row in rows] == [b"more"]


def read_ranges(stream: StreamReader, topic: str, cuts: list[int]) -> list[bytes]:
    """Values of the micro-batches that end at these positions, one after the other."""
    found: list[Row] = []
    for each in itertools.pairwise(cuts):
        start, end = ({topic: {"0": format_position(position)}} for position in each)
        found += read_partitions(stream, stream.partitions(start, end))
    return [row["value"] for row in found]


def assert_each_message_once_where_chunks_are_cut(
    stream: StreamReader, topic: str, values: list[bytes]
) -> None:
    """Of three messages the second is in two chunks: entries 1 and 2 of a new topic."""
    ends = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    end = parse_position(ends[topic]["0"])
    begin = end - 4

    assert split_position(end)[1] == 4
    for cuts in ([begin, end], [begin, begin + 2, end], list(range(begin, end + 1))):
        assert read_ranges(stream, topic, cuts) == values
    assert read_ranges(stream, topic, [begin, begin + 2]) == values[:2]
    assert read_ranges(stream, topic, [begin + 2, end]) == values[2:]


def write_all(server: Server, partitions: int = 2) -> str:
    """A topic with messages of clients of all protocols, in every compression of Kafka."""
    import pulsar

    topic = make_topic(server, partitions)
    for codec in CODECS:
        for number in range(partitions):
            more = [{**row, "partition": number} for row in ROWS * 4]
            produce(server, topic, more, **{"compression.type": codec})
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, compression_type=pulsar.CompressionType.ZSTD, batching_max_publish_delay_ms=20
    )
    for number in range(20):
        producer.send_async(
            b"pulsar %d" % number, lambda *_: None, partition_key=f"k{number}",
            properties={"a": "1", "b": "ü"}, ordering_key="o" if number % 2 else None,
            event_timestamp=BEGAN_MS + number if number % 3 else None,
        )  # fmt: skip
    producer.flush()
    client.close()
    with TubeClient(server.tubemq) as tubes, tubes.producer(topic) as sender:
        for number in range(6):
            message = Message(topic, b"tube %d" % number, {"trilogue.key": "k", "b": "2"})
            message.put_system_header("kind", "201301010000")
            sender.send(message)
    return topic


def write_transactions(server: Server) -> str:
    """A topic whose committed messages stand between aborted ones; an aborted one is the last."""
    topic = make_topic(server, 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": f"t-{topic}"}
    )
    producer.init_transactions(60)
    for number, ends in enumerate(("commit", "abort", "commit", "abort")):
        producer.begin_transaction()
        for row in range(10):
            producer.produce(topic, value=b"%s %d %d" % (ends.encode(), number, row))
        if ends == "commit":
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    return topic
