"""Tables of topics that are sent to a topic: every row once and in order, whatever ends between."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.kafka_cli import Shell
from tests.spark.rooms import BEGAN_MS, make_topic, numbered, produce
from tests.spark.tables.test_tables import (
    Place,
    closed_links,
    each_format,
    needed,
    options,
    place,
    write,
)
from tests.spark.test_sink_exactly_once import committed
from trilogue.client.kafka.model import LATEST
from trilogue.spark.link import link
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.tables.table_backfill import TableBackfill
from trilogue.spark.tables.topic_table import TableError, make_condition
from trilogue.spark.write_options import WriteOptions

__all__ = ["closed_links", "needed", "place"]  # fixtures


def sink(server, topic: str) -> WriteOptions:
    return WriteOptions.parse({"kafka.bootstrap.servers": server.kafka, "topic": topic})


def messages(server, topic: str, partition: int) -> list[dict]:
    """All messages of a partition but their addresses, in order."""
    given = options(server, topic, includeHeaders="true", columns="key,value,timestamp")
    at = link(given)
    end = at.resolve({(topic, partition): LATEST})[topic, partition]
    found = read_range(given, Range(topic, partition, 0, end))
    return [row for batch in found for row in batch.to_pylist()]


@each_format
def test_a_table_is_sent_in_order_and_goes_on(server, place: Place):
    source, target = make_topic(server, 2), make_topic(server, 2)
    produce(server, source, numbered(80))
    produce(server, source, [{"value": b"h", "headers": [("a", b"1")], "timestamp": BEGAN_MS}])
    given = options(server, source, includeHeaders="true")
    write(given, place.open(), offsets=30)
    arguments = ("table", "send", target, *place.arguments, "--commit", "20", "--json")
    shell = Shell(server.kafka)

    assert json.loads(shell.run(*arguments).stdout) == {"rows": 81}
    assert json.loads(shell.run(*arguments).stdout) == {"rows": 0}
    produce(server, source, numbered(9, first=80))
    write(given, place.open())
    assert json.loads(shell.run(*arguments).stdout) == {"rows": 9}

    for partition in range(2):
        assert messages(server, target, partition) == messages(server, source, partition)


def test_a_backfill_that_ended_before_or_after_a_commit_goes_on(server, tmp_path):
    place = Place("delta", tmp_path)
    source, target = make_topic(server, 1), make_topic(server, 1)
    produce(server, source, numbered(50))
    write(options(server, source), place.open())
    given = sink(server, target)
    admin = link(given).admin
    commit = admin.commit_transactions

    async def end_before(*_: object, **__: object) -> None:
        raise ConnectionError

    async def end_after(*arguments: object, **named: object) -> None:
        await commit(*arguments, **named)
        raise ConnectionError

    for ending in (end_before, end_after, end_before):
        admin.commit_transactions = ending
        with pytest.raises(ConnectionError):
            TableBackfill(place.open(), "t", given, offsets=20).send_next()
    admin.commit_transactions = commit
    backfill = TableBackfill(place.open(), "t", given, offsets=20)

    assert list(iter(backfill.send_next, 0)) == [20, 10]
    assert committed(server, target, 1) == sorted(f"v{number}" for number in range(50))


class Rows:
    """A table in memory."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def read_rows(self, wanted=None, columns=None) -> pa.Table:
        found = self.table
        if wanted is not None:
            found = found.filter(make_condition(wanted))
        return found if columns is None else found.select(columns)


def table_of(*offsets: int, **columns: list) -> Rows:
    fixed = {
        "partition": pa.array([0] * len(offsets), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
    }
    return Rows(pa.table({**fixed, **columns}))


def test_typed_values_become_json_and_gaps_are_passed(server):
    target = make_topic(server, 1)
    values = [{"id": 2, "name": "ü", "raw": b"\0"}, None, {"id": 1, "name": None, "raw": None}]
    table = table_of(900, 950, 3, value=values)

    backfill = TableBackfill(table, "t", sink(server, target), offsets=10)

    assert list(iter(backfill.send_next, 0)) == [1, 1, 1]
    found = [row["value"] for row in messages(server, target, 0)]
    assert [None if each is None else json.loads(each) for each in found] == [
        {"id": 1, "name": None, "raw": None},
        {"id": 2, "name": "ü", "raw": "AA=="},
        None,
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [({"value": ["a", "b"], "topic": ["x", "y"]}, "several topics"), ({"k": [1, 2]}, "no column")],
)
def test_tables_without_an_order_or_values_are_refused(server, columns, message):
    with pytest.raises(TableError, match=message):
        TableBackfill(
            table_of(0, 1, **columns), "t", sink(server, make_topic(server, 1))
        ).send_next()


def test_a_folder_without_files_of_a_topic_is_refused(server, tmp_path: Path):
    topic = make_topic(server, 1)
    arguments = ("table", "send", topic, "--parquet", str(tmp_path / "none"))

    assert "no files of a topic" in Shell(server.kafka).run(*arguments, code=1).stderr
