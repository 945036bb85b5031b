"""The sink's column `deliverAt`: Pulsar's consumers of shared subscriptions wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from tests.server import Server
from tests.spark.rooms import BEGAN_MS, make_topic, reader
from trilogue.entry.arrow import arrow_schema
from trilogue.entry.conversion.reserved_names import DELIVER_AT
from trilogue.spark.delivery_times import divide_by_time
from trilogue.spark.errors import RowError

HOUR_MS = 3_600_000
HEADERS = arrow_schema(("headers",)).field("headers").type
OWN: list[Any] = [[{"key": "x", "value": b"1"}], None, [], [{"key": DELIVER_AT, "value": None}]]


@pytest.fixture
def client(server: Server) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(server.pulsar, logger=quiet)
    yield made
    made.close()


def rows_of(times: list[int | None], headers: list[Any] | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array([b"%d" % number for number in range(len(times))])}
    if headers is not None:
        columns["headers"] = pa.array(headers, HEADERS)
    micros = [None if each is None else 1000 * each for each in times]
    return pa.record_batch(columns | {"deliverAt": pa.array(micros, pa.timestamp("us", "UTC"))})


def test_rows_of_each_time_are_together_and_have_it_before_their_headers():
    found = [each.to_pylist() for each in divide_by_time(rows_of([5, None, 5, 3], OWN))]

    values = [[row["value"] for row in rows] for rows in found]
    assert values == [[b"3"], [b"0", b"2"], [b"1"]]
    (last,), (first, third), (none,) = found
    at_5 = {"key": DELIVER_AT, "value": b"5"}
    assert first["headers"] == [at_5, *OWN[0]]
    assert third["headers"] == [at_5]
    assert last["headers"] == [{"key": DELIVER_AT, "value": b"3"}, *OWN[3]]
    assert not none["headers"]
    assert {frozenset(row) for rows in found for row in rows} == {frozenset({"value", "headers"})}


@pytest.mark.parametrize(
    ("times", "counts"), [([None, None], [2]), ([], []), ([7, 7], [2]), ([9, 8, 7], [1, 1, 1])]
)
def test_rows_without_headers_get_them_where_they_have_a_time(times, counts):
    found = [each.to_pylist() for each in divide_by_time(rows_of(times))]

    assert [len(rows) for rows in found] == counts
    headers = [row["headers"] for rows in found for row in rows]
    expected = [[{"key": DELIVER_AT, "value": b"%d" % each}] if each else [] for each in times]
    assert headers == sorted(expected, key=lambda each: each and each[0]["value"])


def test_a_slice_has_its_own_rows():
    (found,) = divide_by_time(rows_of([5, None, 5, 3], OWN).slice(2, 1))

    assert found.to_pylist() == [{"value": b"2", "headers": [{"key": DELIVER_AT, "value": b"5"}]}]


def test_times_before_1970_are_refused():
    with pytest.raises(RowError, match="column deliverAt: a time before 1970"):
        list(divide_by_time(rows_of([-1])))


def test_consumers_of_a_shared_subscription_get_rows_at_their_time(spark, server, client):
    topic = make_topic(server, 1)
    shared = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    soon_ms = int(time.time() * 1000) + 5_000
    times = [None, soon_ms, soon_ms + HOUR_MS, soon_ms + 500]
    at = f.element_at(f.array(*map(f.lit, times)), (f.col("id") % 4 + 1).cast("int"))
    rows = spark.range(40, numPartitions=1).select(
        f.concat(f.lit("k"), f.col("id") % 3).alias("key"),
        f.concat(f.lit("v"), "id").alias("value"),
        f.timestamp_millis(at).alias("deliverAt"),
    )

    writer = rows.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
    writer.mode("append").save(topic)

    found: dict[str, int] = {}
    while len(found) < 30:
        message = shared.receive(90_000)
        found[message.data().decode()] = int(time.time() * 1000)
        shared.acknowledge(message)
    assert len({*found}) == 30
    for value, got_ms in found.items():
        wanted_ms = times[int(value[1:]) % 4]
        assert wanted_ms is None or wanted_ms <= got_ms
    assert not [value for value in found if int(value[1:]) % 4 == 2]
    with pytest.raises(pulsar.Timeout):
        shared.receive(300)
    exclusive = client.create_reader(topic, pulsar.MessageId.earliest)
    assert len({exclusive.read_next(90_000).data() for _ in range(40)}) == 40
    assert reader(spark, server).load(topic).count() == 40


def test_a_column_of_another_type_is_refused_in_words(spark, server):
    rows = spark.range(1).select(f.lit("v").alias("value"), f.lit(BEGAN_MS).alias("deliverAt"))
    writer = rows.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)

    with pytest.raises(Exception, match="column 'deliverAt' must be timestamp"):
        writer.mode("append").save(make_topic(server, 1))
