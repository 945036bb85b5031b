"""The demo's check finds the errors of a pipeline: on the real data of three weeks.

A watermark that does not cover the skew between partitions drops rows silently; without closing
events the last windows are never emitted. Both must fail the check.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.demo.data_set import unpack_weeks
from tests.server import start_server
from tests.tools import require
from trilogue.demo.check import find_differences
from trilogue.demo.data import PARTITIONS, closing_events, read_events
from trilogue.demo.replay import KafkaReplay, create_topics, end_offsets, read_all
from trilogue.demo.spark import run_pipeline
from trilogue.demo.steps import show_steps
from trilogue.spark.local_session import find_java
from trilogue.spark.pipelines import flights

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return unpack_weeks(tmp_path_factory.mktemp("csv"))


def judged(
    paths: dict[str, Path], folder: Path, *, closing: bool = True, last: str = ""
) -> list[str]:
    """Replay, run and check as the demo does; the flights of carrier `last` come last."""
    require("java", found=find_java(folder))
    console = Console(file=StringIO(), width=80)
    with start_server(folder / "data") as server, show_steps(console) as work:
        results = {result.name: result.partitions for result in flights.RESULTS}
        create_topics(server.kafka, PARTITIONS | results)
        replay = KafkaReplay(server.kafka)
        streams = read_events(paths, ("weather", "flights"))
        replay.send_all(read_events(paths, ("airlines", "airports", "planes")), lambda _: None)
        replay.send_all(sorted(streams, key=lambda one: one.key == last), lambda _: None)
        for partition, event in closing_events(streams[-1].time_ms) if closing else []:
            replay.send(event, partition)
        replay.finish()
        run_pipeline(server.kafka, folder, work, dict(replay.topics))
        messages = {
            name: read_all(server.kafka, name, end_offsets(server.kafka, name), lambda _: None)
            for name in results
        }
    wrong, _ = find_differences(paths, folder / "parquet", messages)
    return wrong


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several micro-batches, as the whole year has."""
    monkeypatch.setattr(flights, "ROWS_PER_TRIGGER", 4_000)


@pytest.mark.usefixtures("small_steps")
def test_the_pipeline_as_it_is_gives_the_figures_of_the_data_set(paths, tmp_path):
    assert judged(paths, tmp_path) == []


@pytest.mark.usefixtures("small_steps")
def test_a_watermark_that_covers_the_skew_between_partitions_loses_nothing(paths, tmp_path):
    """One partition lags behind by three weeks."""
    assert judged(paths, tmp_path, last="UA") == []


@pytest.mark.usefixtures("small_steps")
def test_a_watermark_that_does_not_cover_the_skew_fails_the_check(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(flights, "LATENESS", "1 hour")

    wrong = judged(paths, tmp_path, last="UA")

    assert any(line.startswith("delay-stats, Parquet:") for line in wrong)
    assert any(line.startswith("delay-stats, topic:") for line in wrong)


@pytest.mark.usefixtures("small_steps")
def test_windows_that_nothing_closes_fail_the_check(paths, tmp_path):
    wrong = judged(paths, tmp_path, closing=False)

    assert any("delay-stats, Parquet: 0 rows where the data set gives" in line for line in wrong)


@pytest.mark.usefixtures("small_steps")
def test_one_changed_value_in_the_data_fails_the_check(paths, tmp_path):
    """As if a record had changed on its way: the pipeline read 17 where the data set has NA."""
    changed = tmp_path / "flights.csv"
    text = paths["flights"].read_text()
    row = next(line for line in text.splitlines() if ",NA," in line)
    fields = row.split(",")
    fields[5] = "17"
    changed.write_text(text.replace(row, ",".join(fields)))

    wrong = judged({**paths, "flights": changed}, tmp_path / "run")
    reported, _ = find_differences(
        paths, tmp_path / "run" / "parquet", {"delay-stats": [], "cancellations": []}
    )

    assert wrong == []
    assert any("delay-stats, Parquet" in line and "1 missing, 1 that" in line for line in reported)
