"""Topics in tables of Delta, Iceberg and Parquet: each offset once, whatever ends in between."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from tools.servers.probe import free_port

from tests.cli.kafka_cli import Shell
from tests.server import Server, clean_environment, command_line, start_server
from tests.sharing import report, seed_of_the_run
from tests.spark.rooms import close_links, make_topic, numbered, produce, remove_topic
from tests.spark.tables.place import Place
from tests.tools import require
from tests.waiting import wait_until
from trilogue.spark.errors import DataLost
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.tables.parquet_table import ParquetTopicTable
from trilogue.spark.tables.table_writer import CommitLimits, TableWriter
from trilogue.spark.tables.topic_table import OffsetRange, TableChanged, TableError, TopicTable

LONG = [pytest.mark.long, pytest.mark.timeout(3_000)]
FORMATS = ("delta", "iceberg", "parquet")
WITH_COMMITS = FORMATS[:2]
KILLS = [("delta", 2), ("iceberg", 2), *(pytest.param(each, 20, marks=LONG) for each in FORMATS)]


@pytest.fixture(autouse=True)
def needed() -> None:
    require("deltalake", found=find_spec("deltalake"))
    require("pyiceberg", found=find_spec("pyiceberg"))


@pytest.fixture(autouse=True)
def closed_links(server: Server) -> Iterator[None]:
    yield
    close_links(server.kafka)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(getattr(request, "param", "delta"), tmp_path)


each_format = pytest.mark.parametrize("place", FORMATS, indirect=True)
each_with_commits = pytest.mark.parametrize("place", WITH_COMMITS, indirect=True)


def options(server: Server, topic: str, **more: str) -> ReadOptions:
    return ReadOptions.parse({"kafka.bootstrap.servers": server.kafka, "subscribe": topic, **more})


def write(given: ReadOptions, table: TopicTable, **limits: int) -> list[int]:
    """Write all there is; return the offsets of each commit."""
    writer = TableWriter(given, table, CommitLimits(**limits))
    found = []
    while count := writer.write_next():
        found.append(count)
    table.close()
    return found


def in_partition(partition: int, count: int, first: int) -> list[dict[str, object]]:
    return [{**row, "partition": partition} for row in numbered(count, first)]


def places(rows: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


@each_format
def test_a_table_has_the_rows_of_its_topic_and_goes_on(server, place):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(100))
    given = options(server, topic, includeHeaders="true")

    commits = write(given, place.open(), offsets=30)
    assert max(commits) <= 30
    assert sum(commits) == 100
    assert write(given, place.open()) == []
    produce(server, topic, [{"headers": [("a", b"1")]}, *numbered(9, first=100)])
    assert write(given, place.open()) == [10]

    rows = place.read()
    found = {value for value in rows["value"].to_pylist() if value is not None}
    assert found == {row["value"] for row in numbered(109)}
    assert len(set(places(rows))) == rows.num_rows == 110
    assert [one for one in rows["headers"].to_pylist() if one] == [[{"key": "a", "value": b"1"}]]


@each_with_commits
def test_a_commit_whose_writer_ended_before_it_knew_is_not_repeated(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(50))
    given = options(server, topic)
    table = place.open()
    commit = table.append

    def commit_and_end(*arguments: object) -> None:
        commit(*arguments)
        raise ConnectionError

    table.append = commit_and_end
    with pytest.raises(ConnectionError):
        TableWriter(given, table, CommitLimits(20)).write_next()

    assert write(given, place.open(), offsets=20) == [20, 10]
    assert places(place.read()) == [(0, number) for number in range(50)]


@each_with_commits
def test_of_two_writers_at_once_one_commits(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(50))
    given = options(server, topic)
    write(given, place.open(), offsets=10)
    produce(server, topic, numbered(10))
    slow, quick = place.open(), place.open()
    commit = slow.append
    attempts = []

    def commit_late(*arguments: object) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            assert write(given, quick) == [10]
        commit(*arguments)

    slow.append = commit_late

    assert write(given, slow) == []
    assert len(attempts) == 1
    assert places(place.read()) == [(0, number) for number in range(60)]


def test_a_writer_gives_up_when_another_one_is_always_first(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(1))
    table = place.open()

    def lose(*_: object) -> None:
        raise TableChanged("another")

    table.append = lose
    with pytest.raises(TableChanged):
        write(options(server, topic), table)


@each_with_commits
def test_typed_columns_are_added_to_a_table(server, place):
    topic = make_topic(server, 1)
    typed = {"payload": "json", "mode": "DROPMALFORMED", "columns": "value,partition,offset"}
    produce(server, topic, [{"value": b'{"a": 1}'}, {"value": b"oops"}])
    write(options(server, topic, payloadSchema="a BIGINT", **typed), place.open())
    produce(server, topic, [{"value": b'{"a": 2, "b": "x"}'}])
    more = {**typed, "columns": "value,partition,offset,timestamp"}
    write(options(server, topic, payloadSchema="a BIGINT, b STRING", **more), place.open())

    rows = sorted(place.read().to_pylist(), key=lambda row: row["offset"])

    assert [row["value"] for row in rows] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert [row["timestamp"] is None for row in rows] == [True, False]


@each_with_commits
def test_a_table_is_divided_by_a_column_and_compacted_within_its_parts(server, place):
    topic = make_topic(server, 2)
    for first in (0, 5):
        for partition in (0, 1):
            produce(server, topic, in_partition(partition, 5, first))
        write(options(server, topic), place.open("partition"), offsets=4)

    files = place.find_parts()
    assert set(files) == {"partition=0", "partition=1"}
    assert place.open().compact() == sum(files.values())
    produce(server, topic, in_partition(1, 1, 10))
    write(options(server, topic), place.open())  # the table knows its columns

    assert places(place.read()) == [(0, n) for n in range(10)] + [(1, n) for n in range(11)]
    assert set(place.find_parts()) == {"partition=0", "partition=1"}
    one = place.open().read_rows(OffsetRange(1, 0, 100), ["offset"])
    assert sorted(one["offset"].to_pylist()) == list(range(11))


@each_with_commits
def test_a_column_that_is_not_there_divides_no_table(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(1))

    with pytest.raises(TableError, match="partition by: day"):
        write(options(server, topic), place.open("day"))

    assert place.count_rows() == 0


@each_with_commits
def test_rows_are_appended_to_a_table_that_others_write(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    own = pa.table({"offset": pa.array([-1], pa.int64()), "partition": pa.array([0], pa.int32())})
    if place.kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(place.folder / "delta", own)
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("c", **place.catalog)
        catalog.create_namespace("space")
        catalog.create_table("space.t", own.schema).append(own)

    write(options(server, topic), place.open())

    assert places(place.read()) == [(0, number) for number in range(-1, 5)]


@each_format
def test_a_part_of_aborted_messages_moves_the_position(server, place):
    import confluent_kafka

    topic = make_topic(server, 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": f"{place.kind}-{topic}"}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(90)
    producer.abort_transaction(20)
    given = options(server, topic)

    assert write(given, place.open()) == [2]
    assert write(given, place.open()) == []
    produce(server, topic, numbered(1))
    write(given, place.open())
    assert places(place.read()) == [(0, 2)]


def test_a_commit_ends_at_its_limit_of_bytes(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, ({"value": bytes(20_000)} for _ in range(3_000)))
    commits = write(options(server, topic), place.open(), size=1)

    assert len(commits) == 2
    assert sum(commits) == 3_000
    assert places(place.read()) == [(0, number) for number in range(3_000)]


@each_format
def test_compaction_keeps_rows_and_positions(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(60))
    given = options(server, topic)
    write(given, place.open(), offsets=10)
    files = place.count_files()

    compacted = Shell(server.kafka).run("table", "compact", *place.arguments, "--json")

    assert json.loads(compacted.stdout) == {"files_replaced": files}
    assert files >= 6
    assert write(given, place.open()) == []
    produce(server, topic, numbered(5, first=60))
    assert write(given, place.open()) == [5]
    rows = place.read()
    assert places(rows) == [(0, number) for number in range(65)]
    assert set(rows["value"].to_pylist()) == {row["value"] for row in numbered(65)}
    table = place.open()
    assert table.compact() == 2
    assert table.compact() == 0
    table.close()


@pytest.mark.long
@each_format
def test_files_of_old_versions_are_removed(server, place):
    """Rows, positions and the newest version stay; so does all that is not old enough."""
    topic = make_topic(server, 1)
    produce(server, topic, numbered(60))
    given = options(server, topic)
    write(given, place.open(), offsets=10)
    table = place.open()
    table.compact()
    table.close()
    command = ["table", "vacuum", *place.arguments, "--json"]
    files = place.count_files()
    kept = json.loads(Shell(server.kafka).run(*command).stdout)
    assert kept == {"files_removed": 0}
    assert place.count_files() == files

    removed = json.loads(Shell(server.kafka).run(*command, "--hours", "0").stdout)

    assert place.count_files() == 1
    assert removed["files_removed"] >= files - 1
    produce(server, topic, numbered(5, first=60))
    assert write(given, place.open()) == [5]
    assert places(place.read()) == [(0, number) for number in range(65)]


def test_of_a_compaction_and_a_writer_of_iceberg_one_commits(server, tmp_path):
    place = Place("iceberg", tmp_path)
    topic = make_topic(server, 1)
    produce(server, topic, numbered(20))
    given = options(server, topic)
    write(given, place.open(), offsets=10)
    produce(server, topic, numbered(10, first=20))
    table = place.open()
    replace = table._replace_files

    def replace_late(*arguments: object) -> None:
        assert write(given, place.open()) == [10]
        replace(*arguments)

    table._replace_files = replace_late
    with pytest.raises(TableChanged):
        table.compact()

    assert places(place.read()) == [(0, number) for number in range(30)]
    assert place.open().compact() == 3
    assert places(place.read()) == [(0, number) for number in range(30)]


def test_files_of_a_killed_compaction_are_removed(server, tmp_path):
    place = Place("parquet", tmp_path)
    topic = make_topic(server, 1)
    produce(server, topic, numbered(30))
    given = options(server, topic)
    write(given, place.open(), offsets=10)
    old = {path: path.read_bytes() for path in (tmp_path / "parquet").glob("*.parquet")}
    table = place.open()
    assert table.compact() == 3
    table.close()
    for path, content in old.items():
        path.write_bytes(content)

    place.open().close()

    assert places(place.read()) == [(0, number) for number in range(30)]


def test_a_topic_that_was_created_again_is_appended_from_its_beginning(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    write(options(server, topic), place.open())
    remove_topic(server, topic)
    make_topic(server, 1, topic)
    produce(server, topic, numbered(2, first=5))
    close_links(server.kafka)

    assert write(options(server, topic), place.open()) == [2]
    assert place.read().num_rows == 7


def test_a_folder_has_one_writer(tmp_path):
    first = ParquetTopicTable(tmp_path)
    draft = tmp_path / ".draft-left"
    draft.touch()

    with pytest.raises(TableError, match="another writer"):
        ParquetTopicTable(tmp_path)
    first.close()
    ParquetTopicTable(tmp_path).close()

    assert not draft.exists()


def test_a_position_beyond_the_log_is_data_loss(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(3))
    table = place.open()
    known = table.read_positions
    table.read_positions = lambda names: dict.fromkeys(names, 9) or known(names)

    with pytest.raises(DataLost, match="the table is at offset 9"):
        write(options(server, topic), table)


@pytest.mark.parametrize(("place", "kills"), KILLS, indirect=["place"])
def test_writers_that_are_killed_lose_and_repeat_nothing(server, place, kills, request):
    """Counted by sequence numbers; each kill comes at a random moment after one more commit."""
    topic = make_topic(server, 2)
    seed = seed_of_the_run(request.config)
    dice, produced = random.Random(seed), 0
    command = command_line(
        "table", "write", topic, *place.arguments, "--commit", "10", "--server", server.kafka
    )
    for _ in range(kills):
        produce(server, topic, numbered(200, first=produced))
        produced += 200
        rows = place.count_rows()
        writer = subprocess.Popen(command, env=clean_environment({}), stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: place.count_rows() > rows, "no commit", timeout_s=240)  # noqa: B023
            time.sleep(dice.uniform(0, 0.3))  # by design: at any moment of a commit
        finally:
            writer.kill()
            writer.wait()

    body = Shell(server.kafka).run("table", "write", topic, *place.arguments, "--json")
    state = Shell(server.kafka).run("table", "status", topic, *place.arguments, "--json")

    assert json.loads(body.stdout)["offsets"] < produced
    assert {one["lag"] for one in json.loads(state.stdout)} == {0}
    rows = place.read()
    assert sorted(rows["value"].to_pylist()) == sorted(b"v%d" % one for one in range(produced)), (
        seed
    )
    assert len(set(places(rows))) == produced


@pytest.mark.long
@pytest.mark.timeout(3_000)
@each_format
def test_tables_through_twenty_kills_of_writer_and_server_have_each_message_once(
    place, tmp_path_factory, request
):
    """A writer that has ended, of a kill or because the server was away, starts again."""
    data = tmp_path_factory.mktemp("killed") / "data"
    address = {"kafka": f"127.0.0.1:{free_port()}"}
    server = start_server(data, listen=address)
    topic = make_topic(server, 2)
    seed = seed_of_the_run(request.config)
    dice, produced, writer = random.Random(seed), 0, None
    kills = dict.fromkeys(("writer", "server"), 0)
    command = command_line(
        "table", "write", topic, *place.arguments, "--commit", "10", "--follow", "--every", "0.1",
        "--server", server.kafka,
    )  # fmt: skip
    for _ in range(20):
        produce(server, topic, numbered(200, first=produced))
        produced += 200
        rows = place.count_rows()

        def has_committed(before: int = rows) -> bool:
            nonlocal writer
            if writer is None or writer.poll() is not None:
                writer = subprocess.Popen(
                    command, env=clean_environment({}), stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )  # fmt: skip
            return place.count_rows() > before

        wait_until(has_committed, f"a commit (seed {seed}, {kills})", timeout_s=240)
        time.sleep(dice.uniform(0, 0.5))  # by design: at any moment of a commit
        victim = dice.choice(list(kills))
        kills[victim] += 1
        if victim == "writer":
            writer.kill()
            writer.wait()
        else:
            server.kill9()
            server = start_server(data, listen=address, timeout=120)
    writer.kill()
    writer.wait()

    body = Shell(server.kafka).run("table", "write", topic, *place.arguments, "--json")
    rows = place.read()

    assert json.loads(body.stdout)["offsets"] < produced
    assert sorted(rows["value"].to_pylist()) == sorted(b"v%d" % one for one in range(produced)), (
        seed
    )
    assert len(set(places(rows))) == produced
    report(request.node, f"{place.kind}, kills of {kills}: {produced} rows, each once ({seed=})")
    close_links(server.kafka)
    server.stop()


def test_a_follower_appends_until_it_is_terminated(server, place):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(3))
    follower = subprocess.Popen(
        command_line("table", "write", topic, *place.arguments, "--follow", "--every", "0.1",
                     "--server", server.kafka, "--json"),
        env=clean_environment({}), stdout=subprocess.PIPE,
    )  # fmt: skip
    wait_until(lambda: place.count_files() == 1, "no commit")
    produce(server, topic, numbered(4))
    wait_until(lambda: place.count_files() == 2, "no second commit")
    follower.terminate()
    output, _ = follower.communicate(timeout=90)

    assert follower.returncode == 0
    assert json.loads(output) == {"offsets": 7}
    assert places(place.read()) == [(0, number) for number in range(7)]


def test_a_table_is_named_once_on_the_command_line(server, tmp_path):
    shell = Shell(server.kafka)

    assert "one of --delta" in shell.run("table", "write", "t", code=2).stderr
    assert (
        "unknown option"
        in shell.run(
            "table", "write", "t", "--delta", str(tmp_path), "-o", "colour=red", code=2
        ).stderr
    )


@each_format
@pytest.mark.parametrize("command", ["compact", "vacuum"])
def test_a_table_that_is_not_there_is_an_error(server, place, command):
    """A path that is misspelt: "0 files replaced" would look like success."""
    refused = Shell(server.kafka).run("table", command, *place.arguments, code=1).stderr

    assert re.search(r"is no Delta table|there is no such table|has no files of a topic", refused)
    assert "Traceback" not in refused
