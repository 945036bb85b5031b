"""The exactly-once sink without a Spark: attempts of tasks, and the driver that commits a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.server import Server
from tests.spark.rooms import close_links, make_topic
from trilogue.spark import link as links
from trilogue.spark import transactions
from trilogue.spark.errors import NotStored, OptionError, RowError
from trilogue.spark.transactions import BatchName, TaskCommit, abort_batch, commit_batch
from trilogue.spark.write_options import DeliveryGuarantee, WriteOptions
from trilogue.spark.writer import StreamWriter, write_in_transaction

VALUES = StructType([StructField("value", BinaryType())])


class Task:
    """The part of Spark's TaskContext that the sink uses."""

    def __init__(self, partition: int, attempt: int, properties: dict[str, str]) -> None:
        self.partition, self.attempt, self.properties = partition, attempt, properties

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)


@pytest.fixture
def options(server: Server) -> Iterator[WriteOptions]:
    topic = make_topic(server, 2)
    yield WriteOptions(servers=server.kafka, topic=topic, guarantee=DeliveryGuarantee.EXACTLY_ONCE)
    close_links(server.kafka)


def batches(*values: str, size: int = 2) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(values), size):
        some = values[first : first + size]
        keys = pa.array([each.encode() for each in some])
        yield pa.record_batch([keys, keys], names=["key", "value"])


def run_task(
    monkeypatch: pytest.MonkeyPatch,
    options: WriteOptions,
    name: BatchName,
    rows: Iterator[pa.RecordBatch],
    *,
    task: int = 0,
    attempt: int = 0,
) -> TaskCommit:
    context = Task(task, attempt, {})
    monkeypatch.setattr(transactions.TaskContext, "get", lambda: context)
    return write_in_transaction(options, rows, name)


def committed(options: WriteOptions) -> list[str]:
    """All messages that a reader of committed messages gets up to the end of the log."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": options.servers, "group.id": "g", "enable.partition.eof": True,
         "isolation.level": "read_committed"}
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(options.topic, each, 0) for each in (0, 1)])
    found, ends = [], 0
    while ends < 2:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(message.value().decode())
        else:
            ends += 1
    consumer.close()
    return sorted(found)


def assert_no_open_transactions(options: WriteOptions) -> None:
    """Readers of committed messages would wait for them."""
    at = links.link(options)
    pattern = f"q-{options.topic}-.*"
    assert at.run(at.admin.list_transactions(states=["Ongoing"], pattern=pattern)) == []


def test_rows_are_visible_when_the_driver_commits_all_tasks(options, monkeypatch):
    name = BatchName(f"q-{options.topic}", 0)
    commits = [
        run_task(monkeypatch, options, name, batches("a", "b", "c"), task=0),
        run_task(monkeypatch, options, name, batches("d"), task=1),
        run_task(monkeypatch, options, name, iter(()), task=2),
    ]
    assert [each.rows for each in commits] == [3, 1, 0]
    assert committed(options) == []

    commit_batch(options, commits, 0)

    assert committed(options) == ["a", "b", "c", "d"]


def test_a_batch_that_is_committed_is_not_written_again(options, monkeypatch):
    name = BatchName(f"q-{options.topic}", 0)
    commit_batch(options, [run_task(monkeypatch, options, name, batches("a"))], 0)

    again = run_task(monkeypatch, options, name, batches("a"))
    commit_batch(options, [again], 0)
    later = run_task(monkeypatch, options, name._replace(batch_id=1), batches("b"))
    commit_batch(options, [later], 1)

    assert (again.rows, again.transaction) == (0, None)
    assert committed(options) == ["a", "b"]


def test_a_driver_that_ended_before_its_commit_leaves_nothing(options, monkeypatch):
    """The tasks of the next driver have the same transactional ids, which fences those before."""
    name = BatchName(f"q-{options.topic}", 0)
    old = run_task(monkeypatch, options, name, batches("a"))
    new = run_task(monkeypatch, options, name, batches("a"))

    commit_batch(options, [new], 0)
    commit_batch(options, [old], 0)  # the first driver still runs

    assert committed(options) == ["a"]
    assert_no_open_transactions(options)


def test_transactions_of_two_drivers_never_commit_in_part(options, monkeypatch):
    name = BatchName(f"q-{options.topic}", 0)
    old = [run_task(monkeypatch, options, name, batches(f"old{n}"), task=n) for n in (0, 1)]
    run_task(monkeypatch, options, name, batches("new"), task=1)

    with pytest.raises(NotStored, match=r"batch 0 of q-.* run it again"):
        commit_batch(options, old, 0)

    assert committed(options) == []


@pytest.mark.parametrize("winner", [0, 1])
def test_one_of_two_attempts_of_a_task_is_committed(options, monkeypatch, winner):
    """A speculative attempt beside the first one: Spark counts one of them."""
    name = BatchName(f"q-{options.topic}", 0)
    attempts = [
        run_task(monkeypatch, options, name, batches("a", "b"), attempt=each) for each in (0, 1)
    ]

    commit_batch(options, [attempts[winner]], 0)

    assert committed(options) == ["a", "b"]
    assert_no_open_transactions(options)


def test_an_attempt_that_fails_aborts_what_it_wrote(options, monkeypatch):
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches("a", "b")
        raise RowError("a row that cannot be written")

    name = BatchName(f"q-{options.topic}", 0)
    with pytest.raises(RowError):
        run_task(monkeypatch, options, name, failing())
    assert_no_open_transactions(options)

    commit_batch(options, [run_task(monkeypatch, options, name, batches("c"), attempt=1)], 0)

    assert committed(options) == ["c"]


def test_a_batch_that_fails_is_aborted(options, monkeypatch):
    name = BatchName(f"q-{options.topic}", 0)
    done = run_task(monkeypatch, options, name, batches("a"))
    run_task(monkeypatch, options, name, batches("b"), task=1)  # its message never came

    abort_batch(options, [done, None], name.application_id)

    assert_no_open_transactions(options)
    assert committed(options) == []


def test_the_micro_batch_is_known_from_the_context_of_the_task(options, monkeypatch):
    writer = StreamWriter(options, VALUES)
    context = Task(0, 0, {transactions.QUERY_ID: "query", transactions.BATCH_ID: "0"})
    monkeypatch.setattr(transactions.TaskContext, "get", lambda: context)
    commit = writer.write(batches("a"))
    assert commit.transaction.transactional_id.startswith("spark-query-0-0")

    writer.commit([commit], 0)

    assert committed(options) == ["a"]
    context.properties.clear()
    with pytest.raises(OptionError, match="does not name the query"):
        writer.write(batches("b"))


def test_a_time_out_that_the_server_does_not_allow_is_named(options, monkeypatch):
    long = replace(options, transaction_timeout_s=86_400.0)
    with pytest.raises(OptionError, match=r"transactionTimeout.*less than 86400 s"):
        run_task(monkeypatch, long, BatchName(f"q-{options.topic}", 0), batches("a"))


def test_ids_are_chosen_that_the_application_s_coordinator_has(options, monkeypatch):
    """Several nodes share transactional ids; one decision is of one node."""
    nodes = {"app": 7, "app-0-0": 1, "app-0-0.3": 7}
    at = links.link(options)
    monkeypatch.setattr(
        links.Link, "coordinators", lambda _, names: {each: nodes.get(each, 2) for each in names}
    )
    monkeypatch.setattr(transactions.TaskContext, "get", lambda: Task(0, 0, {}))

    assert transactions._transactional_id(at, "app") == "app-0-0.3"
    nodes["app-0-0"] = 7
    assert transactions._transactional_id(at, "app") == "app-0-0"
