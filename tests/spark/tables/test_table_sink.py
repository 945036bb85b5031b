"""Micro-batches of a real Spark in tables of Delta and Iceberg: each once, whatever ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from tests.cli.kafka_cli import Shell
from tests.server import Server
from tests.sharing import report, seed_of_the_run
from tests.spark.rooms import BEGAN, make_topic, numbered, produce, run_available, stream
from tests.spark.tables.place import Place
from tests.tools import require
from tests.waiting import wait_until
from trilogue.spark.errors import OptionError
from trilogue.spark.local_session import find_java
from trilogue.spark.tables.table_sink import TableSink
from trilogue.spark.tables.topic_table import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

FORMATS = ("delta", "iceberg")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
KILLS = 20
LONG = [pytest.mark.long, pytest.mark.timeout(9_000)]
Batch = Callable[["DataFrame", int], None]


@pytest.fixture(autouse=True)
def needed() -> None:
    require("deltalake", found=find_spec("deltalake"))
    require("pyiceberg", found=find_spec("pyiceberg"))


@pytest.fixture(params=FORMATS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


class Endings:
    """A table whose commit raises once, before it is made or after."""

    def __init__(self, place: Place, moment: str) -> None:
        self._table, self._moment = place.open(), moment
        self.read_batch, self.make_place = self._table.read_batch, self._table.make_place

    def add_files(self, *batch: object) -> None:
        moment, self._moment = self._moment, ""
        if moment == "before":
            raise RuntimeError("ended before the commit")
        self._table.add_files(*batch)
        if moment == "after":
            raise RuntimeError("ended after the commit")


def run(rows: DataFrame, place: Place, function: Batch) -> StreamingQuery:
    return run_available(
        rows.writeStream.foreachBatch(function).option(
            "checkpointLocation", str(place.folder / "checkpoint")
        )
    )


def values(table: pa.Table) -> list[bytes]:
    return sorted(table["value"].to_pylist())


def expected(count: int) -> list[bytes]:
    return sorted(b"v%d" % number for number in range(count))


def test_a_table_has_the_rows_of_a_stream_and_goes_on(spark, server: Server, place: Place):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(40))
    produce(server, topic, [{"value": None, "headers": [("a", b"1"), ("a", None)]}])
    rows = stream(
        spark, server, subscribe=topic, startingOffsets="earliest", includeHeaders="true",
        maxOffsetsPerTrigger=15, columns=",".join(COLUMNS),
    )  # fmt: skip
    sink = TableSink(place.open())

    batches = run(rows, place, sink).recentProgress
    table = place.read()

    assert len(batches) >= 3
    assert table.column_names == list(COLUMNS)
    found = {(row["partition"], row["offset"]): row for row in table.to_pylist()}
    assert len(found) == table.num_rows == 41
    assert sum(row["value"] is None for row in found.values()) == 1
    (headers,) = [row["headers"] for row in found.values() if row["headers"]]
    assert headers == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert {row["topic"] for row in found.values()} == {topic}
    assert min(row["timestamp"] for row in found.values()) == BEGAN

    produce(server, topic, numbered(9, first=40))
    run(rows, place, sink)
    more = rows.selectExpr("*", "length(value) AS size")
    produce(server, topic, numbered(1, first=49))
    run(more, place, sink)

    table = place.read()
    assert values(table.filter(pa.compute.is_valid(table["value"]))) == expected(50)
    assert sorted(table["size"].drop_null().to_pylist()) == [3]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_that_runs_again_is_in_the_table_once(spark, server: Server, place, moment):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(30))
    rows = stream(
        spark, server, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    sink = TableSink(Endings(place, moment))

    with pytest.raises(StreamingQueryException, match=f"ended {moment} the commit"):
        run(rows, place, sink)
    between = place.count_rows()
    run(rows, place, sink)

    assert (between > 0) == (moment == "after")
    assert values(place.read()) == expected(30)


def test_batches_are_counted_under_the_name_of_an_application(spark, server: Server, place: Place):
    """A second writer comes first with another name: both are there."""
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, name STRING")
    first, second = (TableSink(place.open(), name) for name in ("one", "two"))

    with pytest.raises(OptionError, match="TableSink needs an application"):
        TableSink(place.open())(rows, 0)
    for _ in range(2):
        first(rows, 7)
        second(rows, 7)
    first(rows.limit(0), 8)
    first(rows, 6)

    assert sorted(place.read()["id"].to_pylist()) == [1, 1, 2, 2]
    with pytest.raises(TableError, match=r"id.*(string|long)"):
        first(rows.selectExpr("name AS id", "name"), 9)
    assert place.count_rows() == 4


def test_another_commit_in_between_is_gone_on_from(spark, place: Place):
    rows = spark.range(3)
    table, other = place.open(), TableSink(place.open(), "other")
    add_files = table.add_files

    def add_after_another(*batch: object) -> None:
        table.add_files = add_files
        other(rows, 0)
        add_files(*batch)

    table.add_files = add_after_another
    TableSink(table, "one")(rows, 0)
    TableSink(place.open(), "one")(rows, 0)

    assert sorted(place.read()["id"].to_pylist()) == [0, 0, 1, 1, 2, 2]


def test_files_of_spark_are_compacted(spark, place: Place):
    sink = TableSink(place.open(), "one")
    for batch in range(3):
        sink(spark.range(batch * 10, batch * 10 + 10), batch)

    answer = Shell("127.0.0.1:1").run("table", "compact", *place.arguments)

    assert "replaced" in answer.stdout
    assert sorted(place.read()["id"].to_pylist()) == list(range(30))
    sink(spark.range(30, 31), 3)
    assert place.count_rows() == 31


def test_tables_that_are_divided_are_refused(spark, place: Place):
    with pytest.raises(TableError, match="not divided by columns"):
        TableSink(place.open("id"), "one")(spark.range(3), 0)


@pytest.mark.parametrize("kills", [pytest.param(KILLS, marks=LONG)])
def test_drivers_that_are_killed_lose_and_repeat_nothing(server, place, kills, request):
    """Counted by sequence numbers; each kill comes at a random moment after one more commit."""
    require("java", found=find_java(place.folder / "java"))
    topic, seed = make_topic(server, 2), seed_of_the_run(request.config)
    dice, produced, driver = random.Random(seed), 0, None
    log = place.folder / "driver.log"
    command = [sys.executable, "-m", "tests.spark.tables.driver", place.kind, server.kafka, topic,
               place.folder]  # fmt: skip

    def run_driver() -> subprocess.Popen:
        with log.open("ab") as output:
            return subprocess.Popen(command, start_new_session=True, stderr=output)

    for _ in range(kills):
        produce(server, topic, numbered(200, first=produced))
        produced += 200
        before = place.count_rows()

        def has_progress(least: int = before) -> bool:
            nonlocal driver
            if driver is None or driver.poll() is not None:
                driver = run_driver()
            return place.count_rows() > least

        wait_until(has_progress, lambda: log.read_text()[-4_000:], timeout_s=600, every=0.5)
        time.sleep(dice.uniform(0, 2))  # by design: at any moment of a micro-batch
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    for _ in range(5):
        driver = run_driver()
        if driver.wait(400) == 0:
            break

    assert values(place.read()) == expected(produced), seed
    report(request.node, f"{place.kind}, {kills} kills: {produced} rows, each once ({seed=})")
