"""What a user of Spark sees when something is wrong: a sentence, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType
from tools.servers.probe import free_port

from tests.server import Server
from tests.spark.rooms import close_links
from trilogue.spark.source import DefaultSource

Read = Callable[[SparkSession, str, Path], object]


def read_batch(spark: SparkSession, address: str, _: Path, **options: str) -> object:
    reader = spark.read.format("trilogue").option("kafka.bootstrap.servers", address)
    return reader.options(**options).load("missing").count()


def read_stream(spark: SparkSession, address: str, folder: Path) -> object:
    reader = spark.readStream.format("trilogue").option("kafka.bootstrap.servers", address)
    query = (
        reader.load("missing")
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    return query.awaitTermination()


def write_batch(spark: SparkSession, address: str, _: Path) -> object:
    rows = spark.range(1).selectExpr("string(id) value")
    writer = rows.write.format("trilogue").option("kafka.bootstrap.servers", address)
    return writer.option("topic", "missing").mode("append").save()


def message_of(work: Callable[[], object]) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the text is what counts
        work()
    return re.sub(r"\n\s*at [\w.$]+.*|\n\t\.\.\. .*", "", str(raised.value))  # Java's own frames


@pytest.mark.parametrize("read", [read_batch, read_stream, write_batch])
def test_a_server_that_is_down_is_reported_soon_and_in_a_sentence(spark, tmp_path, read: Read):
    address = f"127.0.0.1:{free_port()}"

    message = message_of(lambda: read(spark, address, tmp_path))

    assert f"no server answered at {address}" in message
    assert "check that the server is running" in message
    assert "Traceback" not in message
    assert 'File "' not in message


def test_no_task_of_a_write_begins_at_a_server_that_is_down():
    """On a cluster each task is tried four times."""
    address = f"127.0.0.1:{free_port()}"
    source = DefaultSource({"kafka.bootstrap.servers": address, "topic": "missing"})

    with pytest.raises(Exception, match=f"no server answered at {address}"):
        source.writer(StructType([StructField("value", StringType())]), overwrite=False)
    close_links(address)


def test_an_unknown_option_names_the_one_that_was_meant(spark, server: Server, tmp_path):
    """Or all, where none is like it. Spark hands names on in lower case."""

    def refuse(**options: str) -> str:
        return message_of(lambda: read_batch(spark, server.kafka, tmp_path, **options))

    message = refuse(strtingOffsets="latest")
    assert "unknown option 'strtingoffsets'; did you mean 'startingOffsets'?" in message
    assert "Traceback" not in message
    message = refuse(colour="red")
    assert "unknown option 'colour'; known: " in message
    assert "startingOffsets" in message


@pytest.mark.parametrize("read", [read_batch, read_stream])
def test_a_missing_topic_is_named(spark, server: Server, tmp_path, read: Read):
    message = message_of(lambda: read(spark, server.kafka, tmp_path))

    assert "topic missing: UNKNOWN_TOPIC_OR_PARTITION" in message
    assert "trilogue topics create" in message
    assert "admin." not in message
    assert "Traceback" not in message
