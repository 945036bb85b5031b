"""A data directory as a table: the same rows as through the broker, beside a broker that works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import AdminClient

from tests.node.test_serve_objects import SETTINGS, Store, fill
from tests.server import Server, start_server
from tests.spark.rooms import (
    BEGAN_MS,
    close_links,
    make_topic,
    numbered,
    produce,
    run_to_table,
)
from tests.waiting import wait_until
from trilogue.spark.errors import DataLost, OptionError, UnreadableSegments
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.reader import BatchReader
from trilogue.spark.segments import segment_lookup
from trilogue.spark.segments.segment_lookup import SegmentLookup
from trilogue.spark.topic_lookup import find_lookup, find_partition_ids

OFTEN = {
    "journal.file-size": "64KiB",
    "journal.file-age": "100ms",
    "retention.check-every": "100ms",
    "segments.grace": "0",
    "disk.reserve": "0",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that moves messages to segments at once, and merges them."""
    folder = tmp_path_factory.mktemp("server") / "data"
    with start_server(folder, settings=OFTEN) as running:
        yield running
        close_links(running.kafka)


@pytest.fixture(autouse=True)
def closed_logs() -> Iterator[None]:
    yield
    while segment_lookup._logs:
        segment_lookup._logs.popitem()[1].close()


def ends(data: Path, topic: str) -> dict[int, int]:
    """Where the part of a topic ends that is in segments, by partition."""
    place = ReadOptions.parse({"subscribe": topic, "path": str(data)}).segments
    topics = segment_lookup.find_topics(place)
    if topic not in topics:
        return {}
    known = segment_lookup.open_log(place).manifest.partitions
    ids = topics[topic].partitions
    return {number: known[one].stable_end for number, one in enumerate(ids) if one in known}


def wait_sealed(server: Server, topic: str, count: int) -> None:
    wait_until(lambda: sum(ends(server.data, topic).values()) >= count, "not in segments")


def read(**options: str) -> list[dict[str, object]]:
    given = {name.replace("__", "."): value for name, value in options.items()}
    batches = BatchReader(ReadOptions.parse({"includeHeaders": "true", **given}))
    return [
        row
        for partition in batches.partitions()
        for batch in batches.read(partition)
        for row in batch.to_pylist()
    ]


def read_both(server: Server, topic: str, **more: str) -> list[dict[str, object]]:
    """The rows from segments, which are those that the broker sends."""
    found = read(subscribe=topic, path=str(server.data), **more)
    assert found == read(subscribe=topic, kafka__bootstrap__servers=server.kafka, **more)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_from_segments_are_those_of_the_broker(server, codec):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(500), **{"compression.type": codec, "batch.num.messages": 50})
    produce(server, topic, [{"headers": [("a", b"1"), ("a", None)]}, {"key": b"", "value": None}])
    wait_sealed(server, topic, 502)

    assert len(read_both(server, topic)) == 502
    assert len(read_both(server, topic, minPartitions="5", fetchBytes="1000")) == 502


def test_aborted_transactions_are_no_rows(server):
    topic = make_topic(server, 1)
    kept = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": topic}
    )
    producer.init_transactions(20)
    for number in range(8):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(90)
        produce(server, topic, [{"value": b"beside %d" % number}])
        kept.append(b"beside %d" % number)
        if number % 3:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            kept.append(b"%d" % number)
    wait_sealed(server, topic, 24)

    assert {row["value"] for row in read_both(server, topic)} == set(kept)
    for start in range(24):
        at = f'{{"{topic}": {{"0": {start}}}}}'
        read_both(server, topic, startingOffsets=at)


def test_an_open_transaction_ends_what_is_read(server):
    topic = make_topic(server, 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": topic}
    )
    produce(server, topic, numbered(3))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(90)
    produce(server, topic, numbered(3))
    wait_sealed(server, topic, 3)

    assert len(read_both(server, topic)) == 3
    producer.commit_transaction(20)
    wait_sealed(server, topic, 8)
    assert len(read_both(server, topic)) == 7


def test_messages_of_pulsar_clients_are_converted(server):
    topic = make_topic(server, 1)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.pulsar, logger=quiet)
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZSTD)
    for number in range(50):
        producer.send_async(
            b"pulsar %d" % number, lambda *_: None, partition_key="k", properties={"a": "1"}
        )
    producer.flush()
    client.close()
    produce(server, topic, numbered(50))
    wait_sealed(server, topic, 100)

    found = read_both(server, topic)

    assert sum(row["value"].startswith(b"pulsar") for row in found) == 50


def test_times_and_offsets_bound_a_read_of_segments(server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(300), **{"batch.num.messages": 20})
    wait_sealed(server, topic, 300)
    times = {"startingTimestamp": str(BEGAN_MS + 31), "endingTimestamp": str(BEGAN_MS + 50)}

    assert [row["offset"] for row in read_both(server, topic, **times)] == list(range(31, 50))
    with pytest.raises(OptionError, match="is as late"):
        read(subscribe=topic, path=str(server.data), startingTimestamp=str(BEGAN_MS + 300))


def test_the_broker_has_what_is_in_no_segment(tmp_path):
    """Live messages follow those of segments, and those alone come from the broker."""
    settings = {**OFTEN, "journal.file-age": "1h"}
    with start_server(tmp_path / "data", settings=settings) as running:
        topic = make_topic(running, 1)
        produce(running, topic, ({"value": bytes(1000)} for _ in range(300)))
        wait_until(lambda: ends(running.data, topic).get(0, 0) > 100, "nothing in segments")
        produce(running, topic, numbered(5))

        found = read(
            subscribe=topic, path=str(running.data), kafka__bootstrap__servers=running.kafka
        )

        assert [row["offset"] for row in found] == list(range(305))
        assert 100 < ends(running.data, topic)[0] < 305
        close_links(running.kafka)


def test_segments_of_several_nodes_are_found_by_the_one_manifest(tmp_path):
    """With and without the nodes, which own the partitions and write segments of them in turns."""
    listen = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
    with start_server(tmp_path / "data", settings=OFTEN, listen=listen, nodes=3) as several:
        topic = make_topic(several, 6)
        produce(several, topic, numbered(600), **{"batch.num.messages": 20})
        wait_sealed(several, topic, 600)
        produce(several, topic, numbered(60, first=600))

        at = {"kafka__bootstrap__servers": several.kafka}
        both = read(subscribe=topic, path=str(several.data), **at)
        assert sorted(row["value"] for row in both) == sorted(b"v%d" % one for one in range(660))
        wait_sealed(several, topic, 660)
        assert len(read_both(several, topic)) == 660
        close_links(several.kafka)
        several.stop()


def test_a_topic_that_was_created_again_is_not_read_from_old_segments(server):
    """The manifest is older than the broker's answer: the id of the topic tells them apart."""
    topic = make_topic(server, 1)
    produce(server, topic, numbered(3))
    wait_sealed(server, topic, 3)
    options = ReadOptions.parse({"subscribe": topic, "path": str(server.data)})
    ids = find_lookup(options).ids([(topic, 0)])

    assert find_partition_ids(options, [(topic, 0)], ids)
    assert not find_partition_ids(options, [(topic, 0)], {topic: "0" * 32})
    assert not find_partition_ids(options, [(topic, 1)], ids)


def test_offsets_that_retention_removed_are_lost_or_left_out(server):
    topic = make_topic(server, 1)
    produce(server, topic, ({"value": bytes(1000)} for _ in range(100)))
    wait_sealed(server, topic, 100)
    options = ReadOptions.parse({"subscribe": topic, "path": str(server.data)})
    planned = BatchReader(options).partitions()
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 60)])
    place = options.segments
    wait_until(lambda: SegmentLookup(place).resolve({(topic, 0): -2})[topic, 0] == 60)

    with pytest.raises(DataLost, match=r"offsets \[0, 100\) are wanted, the log holds \[60, 100"):
        list(BatchReader(options).read(planned[0]))
    lenient = ReadOptions.parse(
        {"subscribe": topic, "path": str(server.data), "failOnDataLoss": "false"}
    )
    batches = BatchReader(lenient).read(planned[0])
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(60, 100))


def test_directories_and_options_that_cannot_be_read_are_named(server, tmp_path):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(1))
    wait_sealed(server, topic, 1)
    given = {"subscribe": topic, "path": str(server.data)}
    for options, message in [
        ({"subscribe": "t", "path": str(tmp_path)}, "there is no manifest"),
        ({**given, "subscribe": "never-made"}, "there is no topic 'never-made'"),
        ({**given, "subscribe": "", "assign": f'{{"{topic}": [4]}}'}, f"{topic}-4, which does not"),
    ]:
        with pytest.raises((OptionError, UnreadableSegments), match=message):
            BatchReader(ReadOptions.parse({k: v for k, v in options.items() if v})).partitions()


def test_segments_in_object_storage_are_read_there(tmp_path):
    store = Store(tmp_path / "store")
    with start_server(tmp_path / "data", settings={**SETTINGS, **store.settings}) as running:
        sent = fill(running)
    given = {"subscribe": "t", "path": str(running.data)}

    found = read(**given, **store.settings)
    with pytest.raises(UnreadableSegments, match=r"objects\.url is not set"):
        read(**given)

    assert [row["value"] for row in found] == sent


def test_a_damaged_segment_is_an_error(tmp_path):
    with start_server(tmp_path / "data", settings=OFTEN) as running:
        topic = make_topic(running, 1)
        produce(running, topic, ({"value": bytes(1000)} for _ in range(100)))
        wait_sealed(running, topic, 100)
        running.kill9()
    for path in (running.data / "segments").glob("*.segment"):
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)

    with pytest.raises(UnreadableSegments, match="does not match its checksum"):
        read(subscribe=topic, path=str(running.data))


def test_a_stream_goes_on_in_segments_and_then_at_the_broker(spark, server, tmp_path):
    """Spark reads the directory, with a broker for what follows and without one."""
    topic = make_topic(server, 2)
    produce(server, topic, numbered(100))
    wait_sealed(server, topic, 100)

    def run(**options: str) -> list[tuple[str, int]]:
        made = spark.readStream.format("trilogue").option("subscribe", topic)
        for name, value in {"startingOffsets": "earliest", **options}.items():
            made = made.option(name, value)
        run_to_table(made.load(str(server.data)), tmp_path)
        table = spark.read.parquet(str(tmp_path / "table"))
        return sorted(bytes(row.value) for row in table.collect())

    assert run(maxOffsetsPerTrigger="60") == sorted(row["value"] for row in numbered(100))
    produce(server, topic, numbered(20, first=100))
    found = run(**{"kafka.bootstrap.servers": server.kafka})
    assert found == sorted(row["value"] for row in numbered(120))
    wait_sealed(server, topic, 120)
    count = spark.read.format("trilogue").option("subscribePattern", f"{topic}")
    assert count.load(f"file://{server.data}").count() == 120
