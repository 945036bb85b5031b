"""Spark's own Kafka connector and ours: the same rows of chance's topics by chance's options."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.server import Server, start_server
from tests.sharing import seed_of_the_run
from tests.spark.chance.random_topics import (
    RandomTopic,
    choose_division,
    choose_end,
    choose_partitions,
    choose_readers,
    choose_start,
    choose_topics,
    make_random_topic,
)
from tests.spark.conftest import SQL_KAFKA
from tests.spark.rooms import close_links
from tests.spark.test_sql_kafka import FORMATS, OFTEN, collect, read, run_both
from tests.tools import require

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
BATCHES, STREAMS = 30, 8


class World(NamedTuple):
    """A server with topics, and the seed by which they and their queries were chosen."""

    server: Server
    topics: list[RandomTopic]
    seed: int


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[World]:
    require("spark-kafka-4.2.0", found=SQL_KAFKA.exists())
    seed = seed_of_the_run(request.config)
    dice = random.Random(seed)
    with start_server(tmp_path_factory.mktemp("server") / "data", settings=OFTEN) as server:
        types = ["LogAppendTime", *["CreateTime"] * 3]
        topics = [make_random_topic(server, dice, message_timestamp_type=each) for each in types]
        yield World(server, topics, seed)
        close_links(server.kafka)


def choose_query(dice: random.Random, topics: list[RandomTopic], *, is_batch: bool):
    options = choose_topics(dice, topics)
    wanted = choose_partitions(options, topics)
    ends = {each.name: each.ends for each in topics}
    if is_batch:
        options |= choose_end(dice, wanted, ends)
    else:
        options["maxOffsetsPerTrigger"] = str(dice.randint(20, 200))
    return {
        **options,
        **choose_start(dice, wanted, ends),
        **choose_division(dice),
        **choose_readers(dice),
    }


def collect_or_fail(spark, server: Server, kind: str, options) -> list | str:
    try:
        return collect(read(spark, server, kind, **options))
    except (PySparkException, Py4JJavaError) as failed:
        return str(failed)


@pytest.mark.parametrize("number", range(BATCHES))
def test_a_batch_has_the_same_rows(spark, world, number):
    """Or both refuse it."""
    server, topics, seed = world
    options = choose_query(random.Random(f"{seed} {number}"), topics, is_batch=True)

    theirs, ours = (collect_or_fail(spark, server, kind, options) for kind in FORMATS)

    assert isinstance(ours, str) == isinstance(theirs, str), (seed, options, ours, theirs)
    if isinstance(ours, list):
        assert ours == theirs, (seed, options)
        if options["kafka.isolation.level"] == "read_committed":
            path = str(server.data)
            assert collect(read(spark, server, "trilogue", path=path, **options)) == theirs


@pytest.mark.parametrize("number", range(STREAMS))
def test_a_stream_has_the_same_rows(spark, world, tmp_path, number):
    server, topics, seed = world
    options = choose_query(random.Random(f"{seed} stream {number}"), topics, is_batch=False)

    found = run_both(spark, server, tmp_path, **options)

    assert found["trilogue"] == found["kafka"], (seed, options)
