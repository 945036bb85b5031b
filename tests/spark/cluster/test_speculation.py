"""Attempts of a task that Spark's own scheduler runs at once: one of them counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.server import Server
from tests.spark.cluster.driver import Job
from tests.spark.cluster.slow_tasks import WINNERS, mark_path
from tests.spark.cluster.speculative_driver import PER_BATCH
from tests.spark.cluster.standalone import StandaloneCluster
from tests.spark.rooms import make_topic, numbered, produce
from tests.spark.tables.place import Place
from tests.spark.test_sink_exactly_once import assert_end_is_stable, committed, read_values
from tests.tools import require
from trilogue.spark.local_session import find_java

TASKS = 4
COUNT = PER_BATCH * len(WINNERS)
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Two hosts: Spark runs no two attempts of a task on one."""
    folder = tmp_path_factory.mktemp("cluster")
    java_home = find_java(folder / "java")
    require("java", found=java_home)
    assert java_home is not None
    made = StandaloneCluster(
        folder, java_home, Path(sys.executable), workers=("127.0.0.1", "127.0.0.2")
    )
    try:
        yield made
    finally:
        made.stop()


def copy(cluster: StandaloneCluster, server: Server, kind: str, folder: Path) -> tuple[str, str]:
    """Copy a topic of as many partitions as tasks; return it and the topic it is copied to."""
    source, target = make_topic(server, TASKS), make_topic(server, 1)
    produce(
        server, source, ({**row, "partition": at % TASKS} for at, row in enumerate(numbered(COUNT)))
    )
    (folder / kind).mkdir()
    job = Job(
        master=cluster.master, python=str(cluster.python), archive="", servers=server.kafka,
        source=source, target=target, folder=str(folder),
    )  # fmt: skip
    arguments = [kind, json.dumps(job._asdict())]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster.speculative_driver", *arguments],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4_000:]
    for batch_id in range(len(WINNERS)):
        assert all(mark_path(folder / kind, batch_id, attempt).exists() for attempt in (0, 1))
    return source, target


def test_of_two_attempts_in_transactions_one_is_committed(cluster, server, tmp_path):
    source, target = copy(cluster, server, "topic", tmp_path)

    assert committed(server, target, 1) == sorted(f"v{number}" for number in range(COUNT))
    assert_end_is_stable(server, target)
    written = Counter(read_values(server, target, 1, "read_uncommitted"))
    twice = {f"v{number}" for number in range(0, COUNT, TASKS)}
    assert {value for value, times in written.items() if times == 2} >= twice
    assert source != target


def test_of_two_attempts_that_write_files_one_is_in_the_table(cluster, server, tmp_path):
    require("deltalake", found=find_spec("deltalake"))

    copy(cluster, server, "delta", tmp_path)

    table = Place("delta", tmp_path / "delta").read()
    assert sorted(table["value"].to_pylist()) == sorted(b"v%d" % each for each in range(COUNT))
