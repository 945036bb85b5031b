"""Our client and the Spark reader on a real Kafka, which does things that ours does not yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tools.servers.kafka import RealKafka

from tests.spark.rooms import close_links
from tests.tools import require_jars
from tests.waiting import run_ready_tasks
from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.producer.batch_writer import BatchWriter
from trilogue.entry.kafka.record_batch import Record, build_batch
from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.stream_reader import StreamReader
from trilogue.spark.write_options import WriteOptions
from trilogue.spark.writer import StreamWriter

VERSION = "4.3.1"
pytestmark = [pytest.mark.java, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_jars(VERSION)
    server = RealKafka(tmp_path_factory.mktemp("kafka"), version=VERSION, heap="512m")
    server.start()
    yield server.address
    close_links(server.address)
    server.kill9()


def rows(address: str, topic: str, start: int, end: int) -> list[tuple[int, bytes]]:
    options = ReadOptions(servers=address, topics=(topic,), columns=("offset", "value"))
    batches = list(read_range(options, Range(topic, 0, start, end)))
    return [(row["offset"], row["value"]) for one in batches for row in one.to_pylist()]


def test_aborted_transactions_and_their_markers_are_gaps(kafka):
    """Kafka keeps both in the log; a reader of committed data passes over them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka, "transactional.id": "t"})
    producer.init_transactions(30)
    for value, end in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction),
                       (b"c", producer.commit_transaction)):  # fmt: skip
        producer.begin_transaction()
        producer.produce("transactions", value, partition=0)
        producer.flush(30)
        end(30)
    reader = StreamReader(
        ReadOptions.parse(
            {"kafka.bootstrap.servers": kafka, "subscribe": "transactions",
             "startingOffsets": "earliest"}
        )
    )  # fmt: skip

    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert end["transactions"]["0"] == 6
    assert rows(kafka, "transactions", 0, 6) == [(0, b"a"), (4, b"c")]
    assert rows(kafka, "transactions", 1, 4) == []


@pytest.mark.parametrize("codec", range(5))
def test_a_foreign_server_takes_our_batches_and_gives_them_back(kafka, codec):
    async def write() -> None:
        cluster = KafkaCluster(kafka)
        await Admin(cluster).create_topic(f"codec-{codec}", 1)
        records = [Record(one, 1_700_000_000_000, None, b"v%d" % one, (), 0) for one in range(50)]
        await BatchWriter(cluster).send(f"codec-{codec}", 0, build_batch(records, codec=codec))
        await cluster.close()
        await run_ready_tasks()

    asyncio.run(write())

    assert rows(kafka, f"codec-{codec}", 0, 50) == [(one, b"v%d" % one) for one in range(50)]


def test_exactly_once_is_refused_where_the_server_commits_one_transaction_at_a_time(kafka):
    options = WriteOptions.parse(
        {"kafka.bootstrap.servers": kafka, "topic": "t", "deliveryGuarantee": "exactly-once"}
    )
    with pytest.raises(OptionError, match=r"cannot commit several .* use at-least-once there"):
        StreamWriter(options, StructType([StructField("value", BinaryType())]))
