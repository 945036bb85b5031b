"""Micro-batches planned against a real server: sizes, isolation, positions of a group."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from tests.server import Server
from tests.spark.rooms import close_links, make_topic, numbered, produce
from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.stream_reader import StreamReader


@pytest.fixture(autouse=True)
def _no_links_left(server: Server) -> Iterator[None]:
    yield
    close_links(server.kafka)


def parse(server: Server, topic: str, **options: str) -> ReadOptions:
    names = {key.replace("__", "."): value for key, value in options.items()}
    return ReadOptions.parse(
        {"kafka.bootstrap.servers": server.kafka, "subscribe": topic,
         "startingOffsets": "earliest", **names}
    )  # fmt: skip


def large(count: int) -> list[dict[str, object]]:
    return [{"value": b"x" * 1_000, "partition": number % 2} for number in range(count)]


def test_a_limit_in_bytes_admits_offsets_by_their_mean_size(server):
    topic = make_topic(server, 2)
    produce(server, topic, large(200))
    reader = StreamReader(parse(server, topic, maxBytesPerTrigger="20000"))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(20_000)

    start, counts = reader.initialOffset(), []
    while True:
        end = reader.latestOffset(start, limit)
        if end == start:
            break
        counts.append(sum(end[topic][each] - start[topic][each] for each in "01"))
        start = end

    assert sum(counts) == 200
    assert all(16 <= count <= 20 for count in counts[:-1])


def test_both_limits_hold_where_both_are_given(server):
    topic = make_topic(server, 2)
    produce(server, topic, large(100))
    for rows, size, expected in (("10", "50000", 10), ("80", "10000", 10)):
        reader = StreamReader(
            parse(server, topic, maxOffsetsPerTrigger=rows, maxBytesPerTrigger=size)
        )
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        assert expected - 3 <= sum(end[topic][each] for each in "01") <= expected
        everything = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert sum(everything[topic][each] for each in "01") == 100


@pytest.mark.parametrize(
    ("level", "expected"), [("read_committed", [b"a"]), ("read_uncommitted", [b"a", b"b", b"c"])]
)
def test_open_and_aborted_transactions_are_read_where_they_are_wanted(server, level, expected):
    topic = make_topic(server, 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": topic}
    )
    producer.init_transactions(20)
    ends = (producer.commit_transaction, producer.abort_transaction, None)
    for value, end in zip((b"a", b"b", b"c"), ends, strict=True):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(90)
        if end is not None:
            end(20)
    options = parse(server, topic, kafka__isolation__level=level, columns="value")
    reader = StreamReader(options)

    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    batches = read_range(options, Range(topic, 0, 0, end[topic]["0"]))

    assert [row["value"] for batch in batches for row in batch.to_pylist()] == expected
    producer.abort_transaction(20)


def test_positions_are_published_for_a_group(server):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(10))
    reader = StreamReader(parse(server, topic, kafka__group__id=f"lag-of-{topic}"))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    reader.commit(end)

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.kafka, "group.id": f"lag-of-{topic}"}
    )
    partitions = [confluent_kafka.TopicPartition(topic, number) for number in (0, 1)]
    committed = consumer.committed(partitions, timeout=90)
    assert [each.offset for each in committed] == [end[topic]["0"], end[topic]["1"]]

    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    with pytest.raises(OptionError, match="takes no positions of a query"):
        reader.commit(end)
    consumer.close()
