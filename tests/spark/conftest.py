"""One Spark session for all modules, and a real server to read from and write to."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.client.scripted import ScriptedKafka, scripted
from tests.server import Server, start_server
from tests.spark.quick import QUICK_SETTINGS
from tests.spark.rooms import close_links
from tests.tools import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_KAFKA = Path(__file__).parents[2] / "build/jars/spark-kafka-4.2.0"
"""Spark's own connector, where `tools/get-jars.sh spark-kafka-4.2.0` has put it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What Spark's own Python code warns about is not for us to mend."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from trilogue.spark.local_session import find_java, session

    folder = tmp_path_factory.mktemp("spark")
    require("java", found=find_java(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session(
            "tests",
            cache=folder,
            settings={
                **QUICK_SETTINGS,
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.jars": ",".join(map(str, SQL_KAFKA.glob("*.jar"))),
            },
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
    with scripted({}) as running:
        yield running
        close_links(running.address)
