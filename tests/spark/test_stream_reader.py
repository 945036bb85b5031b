"""Planning of micro-batches: what is admitted, what waits, and what was lost in between."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.client.scripted import Part, ScriptedKafka
from trilogue.client.errors import ServerRefused
from trilogue.spark.errors import DataLost
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.stream_reader import StreamReader

ALL = ReadAllAvailable()
ID, OTHER = b"1" * 16, b"2" * 16


@pytest.fixture
def kafka(scripted_kafka: ScriptedKafka) -> ScriptedKafka:
    scripted_kafka.parts = {("t", 0): Part(end=10), ("t", 1): Part(end=100)}
    scripted_kafka.topic_ids["t"] = ID
    return scripted_kafka


def stream(kafka: ScriptedKafka, now=lambda: 0.0, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": kafka.address, "subscribe": "t", **options}
    if "subscribePattern" in given:
        del given["subscribe"]
    return StreamReader(ReadOptions.parse(given), monotonic=now)


def at(*offsets: int, topic_id: bytes = ID) -> dict[str, dict[str, object]]:
    parts = {str(number): offset for number, offset in enumerate(offsets)}
    return {"t": {**parts, "id": topic_id.hex()}}


def planned(reader: StreamReader, start: object, end: object) -> list[tuple[int, int, int]]:
    return [tuple(one.value[1:]) for one in reader.partitions(start, end)]


def test_new_query_starts_at_starting_offsets(kafka):
    assert stream(kafka).initialOffset() == at(10, 100)
    assert stream(kafka, startingOffsets="earliest").initialOffset() == at(0, 0)
    explicit = stream(kafka, startingOffsets='{"t": {"0": 3, "1": -1}}')
    assert explicit.initialOffset() == at(3, 100)


def test_an_explicit_start_that_the_log_has_not_is_lost_data(kafka):
    beyond = {"startingOffsets": '{"t": {"0": 11, "1": 0}}'}

    with pytest.raises(DataLost, match=r"t-0: offset 11 is wanted, the log holds \[0, 10\)"):
        stream(kafka, **beyond).initialOffset()
    assert stream(kafka, failOnDataLoss="false", **beyond).initialOffset() == at(10, 0)


def test_all_that_is_there_is_read_without_a_limit(kafka):
    assert stream(kafka).latestOffset(at(0, 0), ALL) == at(10, 100)
    assert stream(kafka).getDefaultReadLimit() == ALL


def test_a_limit_is_shared_by_lag(kafka):
    reader = stream(kafka, maxOffsetsPerTrigger="22")

    assert reader.latestOffset(at(0, 0), reader.getDefaultReadLimit()) == at(2, 20)


def test_available_now_reads_what_was_there_when_it_began(kafka):
    reader = stream(kafka)
    reader.prepareForTriggerAvailableNow()
    kafka.parts["t", 0].end = 50

    assert reader.latestOffset(at(0, 0), ALL) == at(10, 100)


def test_a_partition_that_is_new_is_read_from_its_beginning(kafka):
    kafka.parts["t", 2] = Part(start=3, end=9)
    reader = stream(kafka)
    end = reader.latestOffset(at(10, 100), ALL)

    assert end == at(10, 100, 9)
    assert planned(reader, at(10, 100), end) == [(2, 3, 9)]


def test_a_checkpoint_without_topic_ids_is_gone_on_with(kafka):
    """Spark's own Kafka connector writes such."""
    reader = stream(kafka)

    assert reader.latestOffset({"t": {"0": 4, "1": 100}}, ALL) == at(10, 100)
    assert planned(reader, {"t": {"0": 4, "1": 100}}, at(10, 100)) == [(0, 4, 10)]


@pytest.mark.parametrize("ends", [(5, 100), (500, 500)], ids=["shorter", "longer"])
def test_a_topic_that_was_made_again_is_noticed_by_its_id(kafka, ends):
    """Offsets alone do not show it: it may have more by now than was read of the old one."""
    kafka.topic_ids["t"] = OTHER
    for number, end in enumerate(ends):
        kafka.parts["t", number] = Part(end=end)
    after = at(*ends, topic_id=OTHER)

    with pytest.raises(DataLost, match="made again"):
        stream(kafka).latestOffset(at(10, 100), ALL)
    allowed = stream(kafka, failOnDataLoss="false")
    assert allowed.latestOffset(at(10, 100), ALL) == after
    expected = [(number, 0, end) for number, end in enumerate(ends)]
    assert planned(allowed, at(10, 100), after) == expected


def test_a_limit_counts_from_the_beginning_of_a_topic_that_was_made_again(kafka):
    kafka.topic_ids["t"] = OTHER
    reader = stream(kafka, failOnDataLoss="false")

    end = reader.latestOffset(at(500, 500), ReadMaxRows(11))

    assert end == at(1, 10, topic_id=OTHER)


def test_a_log_that_lost_its_end_is_noticed_without_ids(kafka):
    kafka.topic_ids.clear()
    start = {"t": {"0": 10, "1": 101}}

    with pytest.raises(DataLost, match="t-1 was made again, or lost its end"):
        stream(kafka).latestOffset(start, ALL)


def test_a_topic_that_is_gone_is_lost_data(kafka):
    kafka.parts["u", 0] = Part(end=3)
    start = {**at(10, 100), "u": {"0": 3}}
    del kafka.parts["u", 0]

    with pytest.raises(DataLost, match="u-0 is gone"):
        stream(kafka, subscribePattern="t|u").latestOffset(start, ALL)
    allowed = stream(kafka, subscribePattern="t|u", failOnDataLoss="false")
    assert allowed.latestOffset(start, ALL) == start
    with pytest.raises(ServerRefused, match="topic u: UNKNOWN_TOPIC"):
        stream(kafka, subscribe="t,u").latestOffset(start, ALL)


def test_a_pattern_finds_topics_that_come_later_and_no_others(kafka):
    kafka.internal.add("t-internal")
    kafka.parts["t-internal", 0] = Part(end=1)
    kafka.parts["other", 0] = Part(end=1)
    reader = stream(kafka, subscribePattern="t.*")
    start = reader.initialOffset()
    kafka.parts["t2", 0] = Part(end=7)

    assert reader.latestOffset(start, ALL) == {**at(10, 100), "t2": {"0": 7}}


def test_few_offsets_wait_for_more_or_for_the_delay(kafka):
    clock = [1000.0]
    limits = {"minOffsetsPerTrigger": "20", "maxTriggerDelay": "60s"}
    reader = stream(kafka, now=lambda: clock[0], **limits)

    def next_end(start: object) -> object:
        return reader.latestOffset(start, ALL)

    assert next_end(at(0, 95)) == at(10, 100)  # the first never waits
    kafka.parts["t", 1].end = 119
    assert next_end(at(10, 100)) == at(10, 100)
    kafka.parts["t", 1].end = 120
    assert next_end(at(10, 100)) == at(10, 120)
    kafka.parts["t", 1].end = 121
    clock[0] += 59
    assert next_end(at(10, 120)) == at(10, 120)
    clock[0] += 1
    assert next_end(at(10, 120)) == at(10, 121)


def test_available_now_does_not_wait_for_more(kafka):
    reader = stream(kafka, minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()

    assert reader.latestOffset(at(0, 0), ALL) == at(10, 100)
    assert reader.latestOffset(at(9, 100), ALL) == at(10, 100)


def test_tasks_are_split_by_options(kafka):
    reader = stream(kafka, maxRecordsPerPartition="40")

    pieces = planned(reader, at(0, 0), at(10, 100))

    assert pieces == [(0, 0, 10), (1, 0, 33), (1, 33, 66), (1, 66, 100)]


def test_the_backlog_is_reported(kafka):
    assert stream(kafka).reportLatestOffset() == at(10, 100)


def test_a_planner_imports_no_decoder():
    program = (
        "import sys, trilogue.spark.source, trilogue.spark.stream_reader\n"
        "print(*(name for name in sys.modules if name.startswith('trilogue.')))"
    )

    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    imported = output.stdout.split()
    assert "trilogue.spark.stream_reader" in imported
    assert {
        "trilogue.client.kafka.producer.batch_writer",
        "trilogue.entry.arrow",
        "trilogue.spark.payload.avro_decoder",
        "trilogue.spark.payload.confluent_registry",
        "trilogue.spark.payload.json_decoder",
    }.isdisjoint(imported)
