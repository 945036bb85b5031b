"""One Spark session for all modules, and a real server to read from and write to."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.client.scripted import ScriptedKafka, scripted
from tests.server import Server, start_server
from tests.tools import require
from tests.waiting import run_ready_tasks
from trilogue.client.kafka.connection import IN_CLEAR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What Spark's own Python code warns about is not for us to mend."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from trilogue.spark.session import find_java, session

    folder = tmp_path_factory.mktemp("spark")
    require("java", found=find_java(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session(
            "tests", cache=folder, settings={"spark.sql.warehouse.dir": str(folder / "warehouse")}
        )
        made.sparkContext.setLogLevel("OFF")
        yield made
        made.stop()
        gc.collect()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def scripted_kafka() -> Iterator[ScriptedKafka]:
    """A server with scripted responses; this process's link to it is closed afterwards."""
    from trilogue.spark import link as links

    with scripted({}) as running:
        yield running
        at = links._links.pop((os.getpid(), running.address, IN_CLEAR), None)
        if at is not None:
            at.run(at.cluster.close())
            at.run(run_ready_tasks())  # closed transports take a turn to go
            at.loop.close()
