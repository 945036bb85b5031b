"""Reading one range: what comes, what skips, what is lost, and what a server does to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.client.scripted import FETCH, HANG_UP, METADATA, Part, ScriptedKafka
from trilogue.client.errors import ServerRefused
from trilogue.entry.entry import EntryTooLarge
from trilogue.entry.kafka.record_batch import Record, build_batch
from trilogue.spark.errors import DataLost
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import AbortedTransaction


def batch(*offsets: int, value: bytes = b"v", **more: object) -> bytes:
    """A batch whose offsets may skip, as a compacted one's do."""
    return build_batch([Record(one, 0, b"k", value, (), 0) for one in offsets], **more)


@pytest.fixture
def kafka(scripted_kafka: ScriptedKafka) -> ScriptedKafka:
    scripted_kafka.parts["t", 0] = Part([batch(*range(10))], 0, 10)
    return scripted_kafka


def read(kafka: ScriptedKafka, start: int, end: int, **more: object) -> list[int]:
    options = ReadOptions(servers=kafka.address, topics=("t",), columns=("offset",), **more)
    rows = read_range(options, Range("t", 0, start, end))
    return [one for found in rows for one in found.column("offset").to_pylist()]


def test_a_range_is_read_to_its_bounds_within_batches(kafka):
    assert read(kafka, 3, 7) == [3, 4, 5, 6]


def test_offsets_that_skip_are_no_loss(kafka):
    kafka.parts["t", 0] = Part([batch(2, 5), batch(40, 41)], 0, 50)

    assert read(kafka, 0, 6) == [2, 5]
    assert read(kafka, 6, 41) == [40]
    assert read(kafka, 6, 30) == []


def test_aborted_transactions_and_markers_are_not_rows(kafka):
    own = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    kafka.parts["t", 0] = Part(
        [batch(0, 1, **own), batch(2), batch(3, **{**own, "producer_id": 8})],
        0, 4, [AbortedTransaction(producer_id=7, first_offset=0)],
    )  # fmt: skip

    assert read(kafka, 0, 4) == [2, 3]


def test_leader_change_and_lost_connection_are_retried(kafka):
    kafka.next_up[FETCH].extend([ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP])
    kafka.next_up[METADATA].extend([lambda: None, ErrorCode.LEADER_NOT_AVAILABLE])

    assert read(kafka, 0, 10) == list(range(10))


def test_error_of_the_server_raises_server_refused(kafka):
    kafka.next_up[FETCH].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(ServerRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        read(kafka, 0, 10)


def test_deleted_topic_raises_server_refused_at_once(kafka):
    def vanish() -> None:
        kafka.next_up[FETCH].append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        kafka.parts["other", 0] = kafka.parts.pop(("t", 0))

    kafka.next_up[FETCH].append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    kafka.next_up[METADATA].extend([lambda: None, vanish])

    with pytest.raises(ServerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        read(kafka, 0, 10)


def test_offsets_that_retention_removed_are_lost_or_left_out(kafka):
    kafka.parts["t", 0] = Part([batch(*range(6, 10))], 6, 10)

    with pytest.raises(DataLost, match=r"t-0: offsets \[2, 8\) are wanted, the log holds \[6, 10"):
        read(kafka, 2, 8)
    assert read(kafka, 2, 8, fail_on_data_loss=False) == [6, 7]
    assert read(kafka, 2, 5, fail_on_data_loss=False) == []


def test_offsets_that_never_come_are_lost_or_left_out(kafka):
    """A log that was cut, or a topic made again, between planning and reading."""
    impatient = {"patience_ms": 1}

    with pytest.raises(DataLost, match=r"offsets \[10, 20\) are wanted"):
        read(kafka, 8, 20, **impatient)
    assert read(kafka, 8, 20, fail_on_data_loss=False, **impatient) == [8, 9]
    assert read(kafka, 15, 20, fail_on_data_loss=False, **impatient) == []


def test_offset_found_on_retry_is_no_data_loss(kafka):
    """A new leader may be behind for a moment."""
    kafka.next_up[FETCH].append(ErrorCode.OFFSET_OUT_OF_RANGE)

    assert read(kafka, 0, 10) == list(range(10))


def test_a_batch_may_decompress_to_what_the_option_allows_and_no_more(kafka):
    kafka.parts["t", 0] = Part([batch(0, value=bytes(40 << 20), codec=4)], 0, 1)

    assert read(kafka, 0, 1) == [0]
    with pytest.raises(EntryTooLarge):
        read(kafka, 0, 1, decompressed_limit=32 << 20)


def test_a_reader_that_is_left_early_leaves_nothing_behind(kafka):
    """As `limit` does; the worker's next task uses the same connection."""
    kafka.parts["t", 0] = Part([batch(*range(one, one + 9)) for one in range(0, 900, 9)], 0, 900)
    options = ReadOptions(servers=kafka.address, topics=("t",), columns=("offset",))
    rows = read_range(options, Range("t", 0, 0, 900))

    first = next(rows)
    rows.close()

    assert first.num_rows
    assert read(kafka, 0, 900) == list(range(900))


def test_the_next_fetch_is_requested_before_this_one_is_handed_over(kafka):
    kafka.parts["t", 0] = Part([batch(*range(one, one + 9)) for one in range(0, 27, 9)], 0, 27)

    assert read(kafka, 4, 27) == list(range(4, 27))

    fetches = [
        one.topics[0].partitions[0].fetch_offset for key, one in kafka.requests if key == FETCH
    ]
    assert fetches == [4, 9, 18]


WORKER = """
import gc
from trilogue.spark.processes import exempt_modules
exempt_modules()
found = gc.get_freeze_count()
exempt_modules()
print(found, gc.get_freeze_count() - found)
"""


@pytest.mark.parametrize("module", ["pyspark.daemon", "pyspark"])
def test_only_workers_of_spark_exempt_their_modules_from_collections(tmp_path, module):
    """They collect garbage after each task; the process of a user keeps its own ways."""
    package = tmp_path / "pyspark"
    package.mkdir()
    for name in ("__init__", "__main__", "daemon"):
        (package / f"{name}.py").write_text(WORKER if name != "__init__" else "")
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    found, more = map(int, done.stdout.split())

    assert (found > 1_000) == (module == "pyspark.daemon")
    assert more == 0
