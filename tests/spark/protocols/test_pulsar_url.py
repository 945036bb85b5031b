"""`url=pulsar://`: topics by Pulsar's own protocol, with the rows that Kafka's gives."""

from __future__ import annotations

import asyncio
import json
import threading

import pulsar
import pytest

from tests.server import Server
from tests.spark.protocols.rows import (
    make_stream,
    read_batch,
    read_next,
    write_all,
    write_transactions,
)
from tests.spark.rooms import BEGAN_MS, make_topic, numbered, produce
from trilogue.spark.errors import OptionError
from trilogue.spark.protocols.pulsar_lookup import pulsar_client
from trilogue.spark.read_options import ReadOptions


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


def test_a_new_stream_begins_at_the_end(server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    stream = make_stream(url=server.pulsar, subscribe=topic)
    start = stream.initialOffset()
    produce(server, topic, numbered(1, first=5))

    rows, _ = read_next(stream, start)

    assert [row["value"] for row in rows] == [b"v5"]


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://h:1"}, "begins with one of kafka://"),
        ({"url": "pulsar://"}, "begins with one of kafka://"),
        ({"url": "pulsar://h:1", "kafka.bootstrap.servers": "h:2"}, "give one of url and"),
        ({"url": "pulsar://h:1", "kafka.group.id": "g"}, "'kafka.group.id' means nothing with"),
        ({"kafka.bootstrap.servers": "h:2", "pulsar.client.authParams": "x"}, "needs url=pulsar"),
        ({"url": "kafka://h:1", "pulsar.client.authParams": "x"}, "means nothing with url=kafka"),
        ({"url": "pulsar://h:1", "maxOffsetsPerTrigger": "5"}, "is not for url=pulsar"),
        ({"url": "pulsar://h:1", "minPartitions": "5"}, "is not for url=pulsar"),
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
