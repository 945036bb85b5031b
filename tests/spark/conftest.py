"""One Spark session for all modules, and a real server to read from and write to."""

from __future__ import annotations

import gc
import os
import shutil
import warnings
from collections.abc import Generator, Iterator
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

NOT_CONNECTED = "failed to connect back"
"""Spark gives a Python process that plans a source 10 s to connect, which no setting changes."""
ATTEMPTS = 4
CONNECT_S = 300
"""Of this process and Spark's JVM to each other; 15 by default."""
SQL_KAFKA = Path(__file__).parents[2] / "build/jars/spark-kafka-4.2.0"
"""Spark's own connector, where `tools/get-jars.sh spark-kafka-4.2.0` has put it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What Spark's own Python code warns about is not for us to mend."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test again whose Python process had no 10 s to connect, on a machine that is busy.

    The test may have waited for another error: then its failure shows this one. What it left in
    its folder is removed; topics have other names in each attempt.
    """
    try:
        return (yield)
    except BaseException as error:
        if "spark" not in pyfuncitem.fixturenames or NOT_CONNECTED not in str(error):
            raise
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    for attempt in range(2, ATTEMPTS + 1):
        if folder := arguments.get("tmp_path"):
            shutil.rmtree(folder)
            folder.mkdir()
        try:
            pyfuncitem.obj(**arguments)
        except BaseException as error:
            if NOT_CONNECTED not in str(error) or attempt == ATTEMPTS:
                raise
        else:
            break
    return True


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from trilogue.spark.local_session import find_java, session

    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = str(CONNECT_S)
    require("java", found=find_java(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session(
            "tests",
            cache=folder,
            settings={
                **QUICK_SETTINGS,
                "spark.python.authenticate.socketTimeout": f"{CONNECT_S}s",
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
