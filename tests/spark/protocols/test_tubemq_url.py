"""`url=tubemq://`: topics by TubeMQ's own protocol, with the rows that the others give."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient, PartitionMetadata
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.server import Server, start_server
from tests.spark.protocols.rows import (
    Row,
    assert_partitions_that_come_are_read,
    make_stream,
    read_batch,
    read_next,
    read_partitions,
    write_all,
    write_transactions,
)
from tests.spark.rooms import close_links, make_topic, numbered, produce
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.message import Message
from trilogue.client.tubemq.partition_state import Batch
from trilogue.spark.errors import DataLost, OptionError
from trilogue.spark.protocols.tubemq_link import number_partitions
from trilogue.spark.protocols.tubemq_range import find_offsets
from trilogue.spark.read_options import ReadOptions


@pytest.fixture(scope="module")
def topic(server: Server) -> str:
    return write_all(server)


def url(server: Server) -> str:
    return f"tubemq://{server.tubemq}"


def test_rows_are_those_of_the_other_protocols_and_of_segments(server, topic):
    """Keys, values, nulls, headers and compressions of clients of three protocols."""
    given = {"subscribe": topic, "includeHeaders": "true"}
    wanted = read_batch(url=f"kafka://{server.kafka}", **given)

    found = read_batch(url=url(server), **given)

    assert len(found) == 2 * 5 * 20 + 20 + 6
    assert [without_publish_time(row) for row in wanted] == [
        row if row["timestamp"] is not None else without_publish_time(row) for row in found
    ]
    assert read_batch(url=server.pulsar, **given) == wanted
    from_segments = {"path": str(server.data), "kafka.bootstrap.servers": server.kafka}
    only = {"subscribePattern": topic, "includeHeaders": "true"}
    assert read_batch(**from_segments, **only) == wanted
    close_links(server.kafka)


def without_publish_time(row: Row) -> Row:
    """TubeMQ does not transmit the publish time, which is a row's where it has no event time."""
    is_publish_time = row["value"].startswith(b"pulsar") if row["value"] else False
    number = int(row["value"].split()[1]) if is_publish_time else 1
    return row if number % 3 else {**row, "timestamp": None}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_three_nodes_have_the_same_rows_by_kafkas_and_pulsars_protocol(tmp_path):
    """By TubeMQ's they are refused: broker ids change when slots move, and offsets with them."""
    listen = dict.fromkeys(("kafka", "pulsar", "tubemq-master", "tubemq-broker"), "127.0.0.1:0")
    with start_server(tmp_path / "data", listen=listen, nodes=3) as several:
        topic = write_all(several, 6)
        given = {"subscribe": topic, "includeHeaders": "true"}

        wanted = read_batch(url=f"kafka://{several.kafka}", **given)

        assert len(wanted) == 6 * 5 * 20 + 20 + 6
        assert {row["partition"] for row in wanted} == set(range(6))
        assert len({row.leader for row in find_partitions(several, topic)}) == 3
        assert read_batch(url=several.pulsar, **given) == wanted
        stream = make_stream(url=several.pulsar, startingOffsets="latest", **given)
        start = stream.initialOffset()
        produce(several, topic, numbered(30))
        rows, end = read_next(stream, start)
        assert sorted(row["value"] for row in rows) == sorted(b"v%d" % one for one in range(30))
        assert read_next(stream, end)[0] == []
        with pytest.raises(OptionError, match="several nodes stand for slots"):
            read_batch(url=f"tubemq://{several.tubemq}", **given)
        close_links(several.kafka)


def find_partitions(server: Server, topic: str) -> list[PartitionMetadata]:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    return list(admin.list_topics(topic, timeout=60).topics[topic].partitions.values())


def test_aborted_messages_are_left_out(server):
    topic = write_transactions(server)

    found = read_batch(url=url(server), subscribe=topic)

    assert found == read_batch(url=f"kafka://{server.kafka}", subscribe=topic)
    assert len(found) == 20
    close_links(server.kafka)


def test_offsets_bound_a_batch(server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(100))
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 17}}),
        "endingOffsets": json.dumps({topic: {"0": 31}}),
    }

    found = read_batch(url=url(server), assign=json.dumps({topic: [0]}), **bounds)

    assert [row["offset"] for row in found] == list(range(17, 31))
    gone = {"startingOffsets": json.dumps({topic: {"0": 101}})}
    with pytest.raises(DataLost, match=r"offset 101 is wanted, the log holds \[0, 100\)"):
        read_batch(url=url(server), subscribe=topic, **gone)


def test_a_stream_goes_on_at_the_offsets_of_its_checkpoint(server):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(40))
    given = {"url": url(server), "subscribe": topic, "startingOffsets": "earliest"}
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
    assert_partitions_that_come_are_read(server, url(server))


def test_a_limit_divides_what_is_there_into_micro_batches(server):
    topic = make_topic(server, 2)
    rows = [{**row, "partition": row["value"][-1] % 2} for row in numbered(40)]
    produce(server, topic, rows)
    given = {"url": url(server), "subscribe": topic, "startingOffsets": "earliest"}
    stream = make_stream(**given, maxOffsetsPerTrigger=15)
    at, found = stream.initialOffset(), []

    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found.append(read_partitions(stream, stream.partitions(at, end)))
        at = end

    assert [len(each) for each in found] == [14, 14, 12]
    values = sorted(row["value"] for each in found for row in each)
    assert values == sorted(row["value"] for row in rows)
    few = make_stream(**given, minOffsetsPerTrigger=50)
    few.latestOffset(few.initialOffset(), ReadAllAvailable())
    assert few.latestOffset(few.initialOffset(), ReadAllAvailable()) == few.initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "tubemq://"}, "begins with one of kafka://"),
        ({"url": "tubemq://h:p"}, "port"),
        ({"url": "tubemq://h:1", "kafka.group.id": "g"}, "'kafka.group.id' means nothing with"),
        ({"url": "tubemq://h:1", "pulsar.client.authParams": "x"}, "means nothing with url=tubemq"),
        ({"kafka.bootstrap.servers": "h:2", "tubemq.user": "x"}, "needs url=tubemq"),
        ({"url": "tubemq://h:1", "tubemq.user": "x"}, "user and password are given together"),
        ({"url": "tubemq://h:1", "tubemq.tls": "maybe"}, "'tubemq.tls' takes"),
        ({"url": "tubemq://h:1", "maxBytesPerTrigger": "5"}, "is not for url=tubemq"),
        ({"url": "tubemq://h:1", "startingTimestamp": "5"}, "is not for url=tubemq"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse({"subscribe": "t", **options})


def test_a_password_is_in_no_text():
    given = {"url": "tubemq://h:1", "subscribe": "t", "tubemq.user": "u"}
    options = ReadOptions.parse({**given, "tubemq.password": "hunter2"})

    assert options.service is not None
    assert options.service.client_options()["password"] == "hunter2"
    assert "hunter2" not in repr(options)


class ConsumerOfBrokers:
    """A consumer that sees these partitions."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def available(self) -> list[str]:
        return sorted(self._keys)


def test_partitions_keep_their_numbers_when_a_broker_comes():
    """A checkpoint has an offset under each number."""
    before = number_partitions(ConsumerOfBrokers("2:t:0", "2:t:1", "2:other:2", "3:t:0"), "t")
    after = number_partitions(ConsumerOfBrokers("1:t:0", "2:t:0", "2:t:1", "3:t:0"), "t")

    assert before == {2_000_000: "2:t:0", 2_000_001: "2:t:1", 3_000_000: "3:t:0"}
    assert after == {0: "1:t:0", **before}
    with pytest.raises(OptionError, match="broker ids end at 2146"):
        number_partitions(ConsumerOfBrokers("2147:t:999999"), "t")
    with pytest.raises(OptionError, match="there is no topic 'gone'"):
        number_partitions(ConsumerOfBrokers("1:t:0"), "gone")


@pytest.mark.parametrize(
    ("ids", "offsets"),
    [
        ([3 << 44 | 28, 3 << 44 | 31], [28, 31]),
        ([3 << 44 | 28, 4 << 44 | 31], None),  # of two partitions
        ([3 << 44 | 31, 3 << 44 | 28], None),  # backwards
        ([3 << 44 | 28, 3 << 44 | 112], None),  # beyond the end
        ([28, 31], None),
        ([1_356_998_400_000 << 22 | 1, 1_356_998_400_000 << 22 | 2], None),  # a time and a number
    ],
)
def test_offsets_are_taken_only_from_ids_that_have_them(ids, offsets):
    messages = [Message("t", b"", message_id=one) for one in ids]

    assert find_offsets(Batch(None, messages, 28, 112, 0)) == offsets


def test_topics_and_partitions_that_are_not_there_are_named(server):
    topic = make_topic(server, 1)
    with pytest.raises(TubeError, match=r"nothing-of-this-name.* not deployed"):
        read_batch(url=url(server), subscribe="nothing-of-this-name")
    with pytest.raises(OptionError, match=f"names {topic}-1, which does not exist"):
        read_batch(url=url(server), assign=json.dumps({topic: [1]}))
