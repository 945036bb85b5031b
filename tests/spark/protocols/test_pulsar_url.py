"""`url=pulsar://`: topics by Pulsar's own protocol, with the rows that Kafka's gives."""

from __future__ import annotations

import asyncio
import json
import threading

import pulsar
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.server import Server
from tests.spark.protocols.rows import (
    assert_each_message_once_where_chunks_are_cut,
    assert_partitions_that_come_are_read,
    make_stream,
    read_batch,
    read_by_limit,
    read_next,
    read_partitions,
    read_ranges,
    write_all,
    write_transactions,
)
from tests.spark.rooms import BEGAN_MS, make_topic, numbered, produce
from tests.waiting import wait_until
from trilogue.client.pulsar import Producer, PulsarClient
from trilogue.client.pulsar.producer.topic_producer import PendingSend
from trilogue.spark.errors import OptionError
from trilogue.spark.protocols import pulsar_range
from trilogue.spark.protocols.administration import Administration
from trilogue.spark.protocols.positions import parse_position, split_position
from trilogue.spark.protocols.pulsar_lookup import pulsar_client
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.reader import BatchReader, FilteredBatchReader
from trilogue.spark.stream_reader import StreamReader


@pytest.fixture(scope="module")
def topic(server: Server) -> str:
    return write_all(server)


def test_rows_are_those_of_kafkas_protocol(server, topic):
    """Keys, values, nulls, headers, times and compressions of clients of three protocols."""
    wanted = read_batch(url=f"kafka://{server.kafka}", subscribe=topic, includeHeaders="true")

    found = read_batch(url=server.pulsar, subscribe=topic, includeHeaders="true")

    assert len(wanted) == 2 * 5 * 20 + 20 + 6
    assert found == wanted
    some = {"subscribe": topic, "columns": "offset,value,topic,partition"}
    assert read_batch(url=server.pulsar, **some) == read_batch(
        url=f"kafka://{server.kafka}", **some
    )


def test_aborted_messages_are_left_out(server):
    topic = write_transactions(server)

    found = read_batch(url=server.pulsar, subscribe=topic, pollTimeoutMs=60_000)

    assert found == read_batch(url=f"kafka://{server.kafka}", subscribe=topic)
    assert len(found) == 20


def test_a_stream_goes_on_at_the_position_of_its_checkpoint(server):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(40))
    given = {"url": server.pulsar, "subscribe": topic, "startingOffsets": "earliest"}
    stream = make_stream(**given)
    first, middle = read_next(stream, stream.initialOffset())
    produce(server, topic, numbered(30, first=40))

    after = make_stream(**given)  # another process, after a restart
    second, end = read_next(after, json.loads(json.dumps(middle)))
    third, _ = read_next(after, end)

    values = sorted(row["value"] for row in [*first, *second])
    assert values == sorted(b"v%d" % number for number in range(70))
    assert len(first) == 40
    assert third == []
    assert after.reportLatestOffset() == end


def test_partitions_that_come_during_a_query_are_read(server):
    assert_partitions_that_come_are_read(server, server.pulsar)


def test_a_new_stream_begins_at_the_end(server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    stream = make_stream(url=server.pulsar, subscribe=topic)
    start = stream.initialOffset()
    produce(server, topic, numbered(1, first=5))

    rows, _ = read_next(stream, start)

    assert [row["value"] for row in rows] == [b"v5"]


def produce_single(server: Server, topic: str, rows: list[dict[str, object]]) -> None:
    """One message an entry: of entries, which are batches, no part is read."""
    produce(server, topic, rows, **{"batch.num.messages": 1})


def test_limits_divide_what_is_there_into_micro_batches(server):
    """Entries, or bytes by the mean size of an entry, which the administration has."""
    topic = make_topic(server, 2)
    produce_single(server, topic, [{**row, "partition": 0} for row in numbered(60)])
    produce_single(server, topic, [{**row, "partition": 1} for row in numbered(30, first=60)])
    options = {"url": server.pulsar, "subscribe": topic}

    by_rows = read_by_limit({**options, "maxOffsetsPerTrigger": 30})
    administration = Administration(server.http)
    name = f"persistent://public/default/{topic}-partition-"
    size = sum(
        (administration.mean_entry_size(f"{name}{number}") or 0) * count
        for number, count in ((0, 60), (1, 30))
    )
    by_bytes = read_by_limit(
        {**options, "maxBytesPerTrigger": int(size / 2), "admin.url": server.http}
    )

    for found in (by_rows, by_bytes):
        values = sorted(value for part in found for value in part)
        assert values == sorted(b"v%d" % number for number in range(90))
    assert [len(part) for part in by_rows] == [30, 30, 30]
    assert len(by_bytes) in {2, 3}
    assert max(map(len, by_bytes)) <= 46


def test_a_micro_batch_waits_for_enough_offsets(server):
    topic = make_topic(server, 1)
    produce_single(server, topic, numbered(5))
    given = {"url": server.pulsar, "subscribe": topic, "startingOffsets": "latest"}
    stream = make_stream(**given, minOffsetsPerTrigger=10)
    start = stream.initialOffset()
    _ = stream.latestOffset(start, ReadAllAvailable())  # the delay begins
    produce_single(server, topic, numbered(9, first=5))
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    produce_single(server, topic, numbered(1, first=14))

    rows, _ = read_next(stream, start)

    assert len(rows) == 10


def test_partitions_are_split_into_tasks(server):
    topic = make_topic(server, 2)
    produce_single(server, topic, numbered(40))
    options = {"url": server.pulsar, "subscribe": topic}
    whole = read_batch(**options)
    for limit, least in (({"minPartitions": 6}, 6), ({"maxRecordsPerPartition": 7}, 6)):
        reader = BatchReader(
            ReadOptions.parse({key: str(one) for key, one in (options | limit).items()})
        )
        tasks = reader.partitions()
        assert len(tasks) >= least
        assert read_partitions(reader, tasks) == whole


def test_conditions_on_topic_and_partition_leave_tasks_out(server):
    """Those on offsets and times are Spark's: the first may be null, the others are not ordered."""
    topic = make_topic(server, 3)
    produce(server, topic, [{"value": b"v", "partition": number} for number in range(3)])
    given = {"url": server.pulsar, "subscribe": topic, "pushFilters": "true"}
    reader = FilteredBatchReader(ReadOptions.parse(given))
    by_offset = GreaterThan(("offset",), 7)

    assert list(reader.pushFilters([EqualTo(("partition",), 1), by_offset])) == [by_offset]
    assert [row["partition"] for row in read_partitions(reader, reader.partitions())] == [1]


def test_positions_are_published_for_a_subscription(server):
    topic = make_topic(server, 1)
    produce_single(server, topic, numbered(12))
    given = {"url": server.pulsar, "subscribe": topic, "predefinedSubscription": "lag"}
    stream = make_stream(**given, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    start = stream.initialOffset()
    stream.commit(stream.latestOffset(start, stream.getDefaultReadLimit()))

    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "lag")
    assert consumer.receive(60_000).data() == b"v8"
    with pytest.raises(OptionError, match="subscription lag takes no positions"):
        stream.commit(stream.latestOffset(start, ReadAllAvailable()))
    client.close()


def test_topics_without_partitions_and_patterns(server):
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.pulsar, logger=quiet)
    for name in ("plain-a", "plain-b", "other"):
        client.create_producer(name).send(name.encode())
    client.close()
    make_topic(server, 3, "plain-c")

    rows = read_batch(url=server.pulsar, subscribePattern="plain-.*")
    assert [(row["topic"], row["partition"], row["value"]) for row in rows] == [
        ("plain-a", 0, b"plain-a"),
        ("plain-b", 0, b"plain-b"),
    ]
    stream = make_stream(url=server.pulsar, subscribePattern="plain-.*", startingOffsets="earliest")
    assert {topic: sorted(parts) for topic, parts in stream.initialOffset().items()} == {
        "plain-a": ["0"],
        "plain-b": ["0"],
        "plain-c": ["0", "1", "2"],
    }
    assert [row["value"] for row in read_batch(url=server.pulsar, assign='{"other": [0]}')] == [
        b"other"
    ]


def test_times_are_those_of_the_publication(server):
    topic = make_topic(server, 1)
    for number in range(3):
        produce(server, topic, [{"value": b"%d" % number, "timestamp": BEGAN_MS + number * 1_000}])

    rows = read_batch(url=server.pulsar, subscribe=topic, startingTimestamp=BEGAN_MS + 1_000)
    before = read_batch(url=server.pulsar, subscribe=topic, endingTimestamp=BEGAN_MS + 2_000)

    assert [row["value"] for row in rows] == [b"1", b"2"]
    assert [row["value"] for row in before] == [b"0", b"1"]
    with pytest.raises(OptionError, match="no record of"):
        read_batch(url=server.pulsar, subscribe=topic, startingTimestamp=BEGAN_MS + 9_000_000)


def test_micro_batches_that_end_between_chunks_have_each_message_once(server):
    topic, large = make_topic(server, 1), bytes(range(256)) * (6 << 12)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.pulsar, logger=quiet)
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    for value in (b"first", large, b"last"):
        producer.send(value)
    client.close()
    stream = make_stream(url=server.pulsar, subscribe=topic, startingOffsets="earliest")

    assert_each_message_once_where_chunks_are_cut(stream, topic, [b"first", large, b"last"])


IN_CHUNKS = bytes(1_000)


class InterruptedProducer:
    """A producer that keeps back the second of two chunks."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        (self._part,) = producer._parts
        self._add = self._part._add
        self._kept: list[PendingSend] = []

    @classmethod
    async def open(cls, client: PulsarClient, topic: str) -> InterruptedProducer:
        return cls(await client.producer(topic, batching=None, chunking=True, chunk_size=600))

    async def send_first_chunk(self) -> None:
        def send(op: PendingSend) -> None:
            (self._kept if op.futures else sent).append(op)

        sent: list[PendingSend] = []
        self._part._add = send
        await self._producer.submit(IN_CHUNKS)
        self._part._add = self._add
        assert (len(sent), len(self._kept)) == (1, 1)
        self._add(sent[0])

    async def send_second_chunk(self) -> None:
        self._add(self._kept.pop())
        await self._producer.flush()

    async def send(self, value: bytes) -> None:
        await self._producer.submit(value)


async def wait_for_end(stream: StreamReader, topic: str, entry: int) -> int:
    """Return the position of the topic's end as soon as it is this entry."""

    def find_end() -> int:
        found = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        return parse_position(found[topic]["0"])

    def is_there() -> bool:
        return split_position(find_end())[1] == entry

    await asyncio.to_thread(wait_until, is_there, f"the end at entry {entry}")
    return find_end()


def test_chunks_that_come_after_the_planning_are_awaited(server):
    topic = make_topic(server, 1)
    stream = make_stream(url=server.pulsar, subscribe=topic, startingOffsets="earliest")

    async def work() -> None:
        async with PulsarClient(server.pulsar) as client:
            producer = await InterruptedProducer.open(client, topic)
            await producer.send_first_chunk()
            end = await wait_for_end(stream, topic, 1)
            reading = asyncio.create_task(
                asyncio.to_thread(read_ranges, stream, topic, [end - 1, end])
            )
            await (await client.producer(topic)).send(b"of another producer")
            await producer.send_second_chunk()

            assert await reading == [IN_CHUNKS]
            last = await wait_for_end(stream, topic, 3)
            after = await asyncio.to_thread(read_ranges, stream, topic, [end, last])
            assert after == [b"of another producer"]

    asyncio.run(work())


@pytest.mark.parametrize("goes_on", [True, False], ids=["another message", "silence"])
def test_messages_whose_last_chunks_do_not_come_are_left_out(server, monkeypatch, caplog, goes_on):
    """At once where their producer has sent something else, else after the time-out."""
    monkeypatch.setattr(pulsar_range, "QUIET_S", 0.05)
    topic = make_topic(server, 1)
    stream = make_stream(
        url=server.pulsar, subscribe=topic, startingOffsets="earliest",
        pollTimeoutMs=600_000 if goes_on else 1,
    )  # fmt: skip

    async def work() -> None:
        async with PulsarClient(server.pulsar) as client:
            producer = await InterruptedProducer.open(client, topic)
            await producer.send_first_chunk()
            end = await wait_for_end(stream, topic, 1)
            if goes_on:
                await producer.send(b"another")
                await wait_for_end(stream, topic, 2)
            assert await asyncio.to_thread(read_ranges, stream, topic, [end - 1, end]) == []
            if goes_on:
                both = await asyncio.to_thread(read_ranges, stream, topic, [end - 1, end + 1])
                assert both == [b"another"]

    asyncio.run(work())
    assert ("spark.chunks-left-out" in caplog.text) is not goes_on


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://h:1"}, "begins with one of kafka://"),
        ({"url": "pulsar://"}, "begins with one of kafka://"),
        ({"url": "pulsar://h:1", "kafka.bootstrap.servers": "h:2"}, "give one of url and"),
        ({"url": "pulsar://h:1", "kafka.group.id": "g"}, "'kafka.group.id' means nothing with"),
        ({"kafka.bootstrap.servers": "h:2", "pulsar.client.authParams": "x"}, "needs url=pulsar"),
        ({"url": "kafka://h:1", "pulsar.client.authParams": "x"}, "means nothing with url=kafka"),
        (
            {"url": "pulsar://h:1", "maxBytesPerTrigger": "5"},
            "with url=pulsar:// option 'admin.url'",
        ),
        ({"url": "pulsar://h:1", "admin.url": "h:2"}, "'admin.url' takes http://host:port"),
        (
            {
                "kafka.bootstrap.servers": "h:2",
                "kafka.group.id": "g",
                "predefinedSubscription": "h",
            },
            "give one of kafka.group.id and predefinedSubscription",
        ),
        ({"url": "pulsar://h:1", "pulsar.client.authPluginClassName": "Kerberos"}, "authPlugin"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse({"subscribe": "t", **options})


def test_a_token_is_in_no_error_and_no_text(server):
    given = {
        "url": "pulsar://127.0.0.1:1", "subscribe": "t",
        "pulsar.client.authPluginClassName": "AuthenticationToken",
        "pulsar.client.authParams": "hunter2",
    }  # fmt: skip
    options = ReadOptions.parse(given)

    assert options.service is not None
    assert options.service.client_options()["token"] == "hunter2"
    assert "hunter2" not in repr(options)


def test_a_client_answers_its_broker_between_two_tasks(server):
    """Spark keeps workers: what a client's loop has to do goes on while no task waits for it."""
    options = ReadOptions.parse({"url": server.pulsar, "subscribe": "t"})
    assert options.service is not None
    kept = pulsar_client(options.service)
    happened = threading.Event()

    async def do_later() -> None:
        asyncio.get_running_loop().call_later(0.01, happened.set)

    kept.run(do_later())

    assert happened.wait(60)
