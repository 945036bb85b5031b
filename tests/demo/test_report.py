"""The demo's output fits into 80 columns and has the results."""

from __future__ import annotations

from datetime import UTC, date, datetime
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

from trilogue.demo.page import draw, write_page
from trilogue.demo.report import Carrier, Month, Report
from trilogue.demo.steps import StepResult, show_steps

CARRIERS = [
    Carrier("EV", "ExpressJet Airlines Inc.", 54_173, 2_817, 15_644, 19.96, 1_548, 3_000),
    Carrier("FL", "AirTran Airways Corporation", 3_260, 73, 850, 18.7, 602, 120),
    Carrier("OO", "<Sky & West>", 32, 32, 0, None, None, 0),
]


@pytest.fixture
def report() -> Report:
    months = {("EV", one): Month(2.0 * one, 4000) for one in range(1, 13)}
    return Report(
        steps=[
            StepResult("start Spark", None, None, 7.8),
            StepResult("  windows by day", 336_785, 11_901),
        ],
        wrong=[],
        seconds=89.4,
        carriers=CARRIERS,
        months={**months, ("FL", 1): Month(-3.0, 200), ("OO", 1): Month(500.0, 2)},
        days=[(date(2013, 2, 8), 930, 332), (date(2013, 2, 9), 684, 520)],
        alerts=[(datetime(2013, 12, 31, 20, tzinfo=UTC), "US <Airways>", 1767, "LGA", None)],
    )


def shown(report: Report, width: int = 80) -> str:
    console = Console(width=width, file=StringIO())
    report.show(console)
    return console.file.getvalue()


def test_everything_fits_into_80_columns_without_a_cut_or_a_wrapped_name(report):
    text = shown(report)

    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    assert "EV ExpressJet Airlines   54,173      2,817  15,644  20.0  1,548" in text


def test_sparkline_rises_with_the_delay_and_marks_unknown_values(report):
    text = shown(report)

    lines = {
        line.split()[0]: line.rsplit(maxsplit=1)[-1] for line in text.splitlines() if line.strip()
    }
    assert lines["EV"] == "▁▂▃▃▄▅▅▆▇▇██"
    assert lines["FL"] == "▁···········"
    assert lines["OO"] == "█···········"


def test_steps_show_what_was_counted_and_nothing_else(report):
    lines = [line.split() for line in shown(report).splitlines()]

    assert ["start", "Spark", "7.8"] in lines
    assert ["windows", "by", "day", "336,785", "11,901"] in lines


def test_page_is_self_contained_and_escapes_data(report, tmp_path):
    page = write_page(report, draw(report, tmp_path / "delays.png"), tmp_path / "report.html")

    text = page.read_text()
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert "&lt;Sky &amp; West&gt;" in text
    assert "US &lt;Airways&gt;" in text
    assert "data:image/png;base64," in text
    assert "equals" in text
    HTMLParser().feed(text)


def test_page_of_a_wrong_result_reports_the_differences(report, tmp_path):
    report.wrong = ["delay-stats, topic: 1 rows < 2"]

    page = write_page(report, draw(report, tmp_path / "delays.png"), tmp_path / "report.html")

    text = page.read_text()
    assert "The result differs from the data set" in text
    assert "1 rows &lt; 2" in text
    assert 'class="good"' not in text


def test_a_pipeline_that_wrote_nothing_is_reported_as_well(tmp_path):
    report = Report.load(tmp_path, [], ["nothing came"], 1.0)

    page = write_page(report, draw(report, tmp_path / "delays.png"), tmp_path / "report.html")

    assert shown(report)
    assert "nothing came" in page.read_text()


def test_steps_become_rows_with_their_times_and_bars_that_fit():
    console = Console(width=80, file=StringIO())

    with show_steps(console) as work:
        with work.step("replay (confluent-kafka)", 367_693) as (row, done):
            done(120_000)
            row.rows_in, row.rows_out = 367_693, 367_692
        with work.step("start Spark"):
            pass

    (replay, spark) = work.rows
    assert (replay.rows_in, replay.rows_out) == (367_693, 367_692)
    assert spark.rows_in is None
    assert replay.seconds is not None
    lines = console.file.getvalue().splitlines()
    assert "367,693 / 367,693" in lines[0]
    assert all(len(line) <= 80 for line in lines)


def test_a_step_that_fails_is_no_row():
    console = Console(width=80, file=StringIO())

    with show_steps(console) as work, pytest.raises(ValueError, match="no"), work.step("fails"):
        raise ValueError("no")

    assert work.rows == []
