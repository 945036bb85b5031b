"""`trilogue pipeline run` on a small pipeline: a topic to a table, and the table to a topic."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.server import Server, clean_environment, command_line
from tests.spark.rooms import make_topic, numbered, produce
from tests.spark.test_sink_exactly_once import committed
from tests.tools import require
from trilogue.spark.local_session import find_java
from trilogue.spark.pipelines.loading import shorten_message
from trilogue.spark.pipelines.streaming import ATTEMPTS, NOT_STARTED, run_to_end

pytestmark = pytest.mark.timeout(1_500)
PIPELINE = """
from pyspark import pipelines
from pyspark.sql import functions as f

servers = spark.conf.get("trilogue.servers")
pipelines.create_sink(
    "target",
    "trilogue",
    {"kafka.bootstrap.servers": servers, "topic": "TARGET", "deliveryGuarantee": "exactly-once"},
)


@pipelines.append_flow(target="target")
def copied():
    return spark.readStream.table("copy").select("key", "value")


@pipelines.table
def copy():
    return spark.readStream.table("loud")


@pipelines.temporary_view
def loud():
    rows = (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest").load("SOURCE")
    )
    return rows.select("key", f.upper(f.col("value").cast("string")).alias("value"))


@pipelines.materialized_view
def counted():
    return spark.read.table("copy").groupBy().count()
"""


def run(file: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("pipeline", "run", str(file), "--storage", str(folder), *arguments),
        env=clean_environment(), capture_output=True, text=True, timeout=1_000, check=False,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("engine", [(), ("--streaming",)], ids=["declarative", "streaming"])
def test_a_pipeline_is_brought_up_to_date_and_repeats_nothing(server: Server, tmp_path, engine):
    """Whatever the order of the definitions; a second run reads only what is new."""
    require("java", found=find_java(tmp_path / "java"))
    source, target = make_topic(server, 2), make_topic(server, 1)
    file = tmp_path / "small.py"
    file.write_text(PIPELINE.replace("SOURCE", source).replace("TARGET", target))
    arguments = (*engine, "-c", f"trilogue.servers={server.kafka}")

    for added, count in (((30,), 30), ((20, 30), 50)):
        produce(server, source, numbered(*added))
        done = run(file, tmp_path / "run", *arguments)

        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("small: up to date\n")
        assert committed(server, target, 1) == sorted(f"V{number}" for number in range(count))
    other = run(file, tmp_path / "run", *(() if engine else ("--streaming",)))
    assert other.returncode == 1
    assert "was updated by the" in other.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.py", "x = 1 +", "a.py:1: invalid syntax"),
        ("b.py", "import nothing_of_this_name", "b.py:1: ModuleNotFoundError: No module named"),
    ],
)
@pytest.mark.long
def test_an_error_of_a_file_is_one_line(tmp_path, name, text, message):
    require("java", found=find_java(tmp_path / "java"))
    file = tmp_path / name
    file.write_text(text)

    done = run(file, tmp_path / "run", "--streaming", "--dry-run")

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_without_a_pipeline_is_refused_before_spark_starts(tmp_path):
    (tmp_path / "x.txt").write_text("")
    (tmp_path / "spark-pipeline.yml").write_text("name: x\n")
    for name, message in (
        ("nothing.py", "no such file"),
        ("x.txt", "a pipeline is a file of one of these kinds: .py, .sql, .yml, .yaml"),
        ("spark-pipeline.yml", "missing required field `storage`"),
    ):
        done = run(tmp_path / name, tmp_path / "run")
        assert done.returncode == 1
        assert message in done.stderr
    assert not (tmp_path / "run").exists()
    file = tmp_path / "x.py"
    file.write_text("")
    refused = run(file, tmp_path / "run", "--full-refresh-all", "--refresh", "x")
    assert refused.returncode == 2
    assert "--full-refresh-all already names" in refused.stderr
    refused = run(file, tmp_path / "run", "--streaming", "--refresh", "x")
    assert refused.returncode == 2
    assert "--streaming takes no --refresh" in refused.stderr


class ScriptedQuery:
    """A query of one row that ends with an error, or without."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.recentProgress = [{"numInputRows": 1}]

    def awaitTermination(self) -> None:  # noqa: N802
        if self.error:
            raise StreamingQueryException(self.error)

    def exception(self) -> str | None:
        return self.error or None


def test_a_query_starts_again_only_where_its_planner_came_too_late():
    late, broken = f"[STREAM_FAILED] … {NOT_STARTED}.", "[STREAM_FAILED] … DataLost"
    queries = [ScriptedQuery(late), ScriptedQuery(), ScriptedQuery()]
    assert run_to_end(lambda: queries.pop(0)) == 2
    assert len(queries) == 1

    queries = [ScriptedQuery(broken), ScriptedQuery()]
    with pytest.raises(StreamingQueryException, match="DataLost"):
        run_to_end(lambda: queries.pop(0))
    queries = [ScriptedQuery(late) for _ in range(ATTEMPTS + 1)]
    with pytest.raises(StreamingQueryException, match="connect back"):
        run_to_end(lambda: queries.pop(0))
    assert len(queries) == 1


REASON = "ServerUnreachable: no server answered at 127.0.0.1:1 (Connection refused): check that"
FAILED = (
    "[STREAM_FAILED] Query [id = 0dfb43db, runId = 85ce0a94] terminated with exception: "
    f"[PYTHON_ERROR] Failed: {REASON}\n SQLSTATE: 38000 SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nIdentifier: {}[id = 0dfb43db, runId = 85ce0a94]\n"
    "Current Committed Offsets: {{}}\n\nThread State: RUNNABLE"
)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (FAILED.format("c.d.trips "), f"flow c.d.trips: [PYTHON_ERROR] Failed: {REASON}"),
        (FAILED.format(""), f"[PYTHON_ERROR] Failed: {REASON}"),
        ("Flow 'x' has FAILED.\nError: " + FAILED.format("c.x "),
         f"Flow 'x' has FAILED.\nError: flow c.x: [PYTHON_ERROR] Failed: {REASON}"),
        ("Flow x is RUNNING.", "Flow x is RUNNING."),
    ],
)  # fmt: skip
def test_the_error_of_a_flow_is_its_reason_without_the_state_of_its_query(text, short):
    assert shorten_message(text) == short
