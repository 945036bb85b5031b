"""Streaming queries over topics that change between two runs."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming import StreamingQuery

from tests.server import Server, start_server
from tests.spark.rooms import (
    make_topic,
    numbered,
    produce,
    reader,
    remove_topic,
    run_to_table,
    stream,
)
from tests.waiting import wait_until
from trilogue.spark import RunReport

EARLIEST = {"startingOffsets": "earliest", "columns": "value"}


def values(spark, folder) -> list[str]:
    table = spark.read.parquet(str(folder / "table"))
    return sorted(bytes(row.value).decode() for row in table.collect())


def written(*spans: range) -> list[str]:
    return sorted(f"v{number}" for span in spans for number in span)


def rows_in(query: StreamingQuery) -> list[int]:
    return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]


def until_removed(spark, server: Server, topic: str) -> None:
    """Come back when retention has removed what the topic holds."""

    def is_empty() -> bool:
        there = reader(spark, server, columns="offset", failOnDataLoss="false").load(topic)
        return there.count() == 0

    wait_until(is_empty, "the removal of all messages by retention")


def test_a_topic_that_was_made_again_is_an_error_or_read_from_its_beginning(
    spark, server, tmp_path
):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    run_to_table(stream(spark, server, subscribe=topic, **EARLIEST), tmp_path)
    remove_topic(server, topic)
    make_topic(server, 1, name=topic)
    produce(server, topic, numbered(8, first=100))

    with pytest.raises(Exception, match="made again"):
        run_to_table(stream(spark, server, subscribe=topic, **EARLIEST), tmp_path)
    again = stream(spark, server, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    query = run_to_table(again, tmp_path)

    assert rows_in(query) == [8]
    assert values(spark, tmp_path) == written(range(5), range(100, 108))


def test_a_topic_that_comes_later_is_read_from_its_beginning(spark, server, tmp_path):
    first = make_topic(server, 1, name="growing-1")
    produce(server, first, numbered(5))
    pattern = {"subscribePattern": "growing-.*", "columns": "value"}  # begins at the latest
    run_to_table(stream(spark, server, **pattern), tmp_path)
    second = make_topic(server, 2, name="growing-2")
    produce(server, second, numbered(7, first=10))
    produce(server, first, numbered(2, first=5))

    run_to_table(stream(spark, server, **pattern), tmp_path)

    assert values(spark, tmp_path) == written(range(5, 7), range(10, 17))


def test_records_removed_before_they_were_read_are_an_error_or_left_out(spark, tmp_path):
    """Kafka's rule too: failOnDataLoss decides; what is still there is read."""
    data = tmp_path / "data"
    keeps = {"retention.check-every": "1h"}
    removes = {"retention.check-every": "100ms", "journal.file-age": "100ms", "segments.grace": 0}
    with start_server(data, settings=keeps) as server:
        topic = make_topic(server, 1, retention_ms="1")
        options = {**EARLIEST, "subscribe": topic, "maxOffsetsPerTrigger": 3}
        produce(server, topic, numbered(3))
        run_to_table(stream(spark, server, **options), tmp_path)
        produce(server, topic, numbered(4, first=3))
        server.stop()
    with start_server(data, settings=removes) as server:
        until_removed(spark, server, topic)
        server.stop()
    with start_server(data, settings=keeps) as server:
        produce(server, topic, numbered(2, first=7))

        with pytest.raises(Exception, match=r"wanted, the log holds|DataLost"):
            run_to_table(stream(spark, server, **options), tmp_path)
        run_to_table(stream(spark, server, failOnDataLoss="false", **options), tmp_path)

    assert values(spark, tmp_path) == written(range(3), range(7, 9))


def test_a_server_that_restarts_under_a_query_costs_nothing(spark, tmp_path):
    first = start_server(tmp_path / "data")
    topic = make_topic(first, 1)
    produce(first, topic, numbered(50))
    query = (
        stream(spark, first, subscribe=topic, **EARLIEST).writeStream.format("memory")
        .queryName("restarted").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        first.kill9()
        with start_server(tmp_path / "data", listen={"kafka": first.kafka}) as second:
            produce(second, topic, numbered(5, first=50))
            query.processAllAvailable()
            found = [bytes(row.value).decode() for row in spark.table("restarted").collect()]
    finally:
        query.stop()

    assert sorted(found) == written(range(55))


def test_a_report_of_a_run_counts_rows_and_lag(spark, server, tmp_path):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(30))
    limited = stream(spark, server, subscribe=topic, maxOffsetsPerTrigger=10, **EARLIEST)
    query = run_to_table(limited, tmp_path)

    report = RunReport.of(query)
    report.write(tmp_path / "run.html")

    assert [each.rows for each in report.batches] == [10, 10, 10]
    assert [each.lag for each in report.batches] == [20, 10, 0]
    page = (tmp_path / "run.html").read_text()
    assert "3 micro-batches, 30 rows" in page
    assert page.count("<svg") == 4


def test_headers_and_nulls_come_through_a_stream(spark, server, tmp_path):
    topic = make_topic(server, 1)
    produce(server, topic, [{"value": None, "headers": [("a", None)]}, {"value": b"", "key": b"k"}])
    frame = stream(
        spark, server, subscribe=topic, startingOffsets="earliest", includeHeaders="true"
    )

    run_to_table(frame, tmp_path)

    table = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    first, second = [row.asDict(recursive=True) for row in table]
    assert (first["key"], first["value"]) == (None, None)
    assert first["headers"] == [{"key": "a", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (b"k", b"", None)
