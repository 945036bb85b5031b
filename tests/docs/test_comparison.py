"""Comparison of benchmark results, and the page of pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.compare import compare, compare_with_earlier
from benchmarks.page import write


def result(date: str, rate: float, cpu: float, row: str = "fifty-connections") -> dict[str, object]:
    """A result in which the real server does 1,000 requests a second at 20 us each."""
    theirs = {"requests_per_s": 1000.0, "cpu_us_per_request_settled": 20.0}
    ours = {"requests_per_s": rate, "cpu_us_per_request_settled": cpu}
    medians = {"kafka": {"requests_per_s": 1.0}, "kafka-default": theirs, "trilogue": ours}
    return {"date": date, "rows": [{"name": row, "median": medians}]}


@pytest.mark.parametrize(
    ("rate", "cpu", "lost"),
    [
        (910.0, 10.9, []),
        (890.0, 10.0, ["requests/s / kafka-default"]),
        (1000.0, 11.5, ["CPU/request, kafka-default /"]),
    ],
)
def test_a_loss_of_more_than_a_tenth_is_found(rate: float, cpu: float, lost: list[str]):
    changes = compare(result("2", rate, cpu), [result("1", 1000.0, 10.0)])

    assert [each.label for each in changes if each.is_lost] == lost
    assert len(changes) == 2


def test_each_row_is_compared_with_the_newest_result_that_has_it(tmp_path: Path):
    earlier = [
        result("2026-01-01", 500.0, 10.0),
        result("2026-01-02", 800.0, 10.0),
        result("2026-01-03", 100.0, 10.0, row="one-in-flight"),
        result("2026-01-05", 999.0, 10.0),
    ]
    for number, each in enumerate(earlier):
        (tmp_path / f"{number}.json").write_text(json.dumps(each))
    of_spark = {"date": "2026-01-02", "rows": 1_000_000, "spark_read": {}}
    (tmp_path / "spark-read.json").write_text(json.dumps(of_spark))

    changes = compare_with_earlier(result("2026-01-04", 900.0, 10.0), tmp_path)

    assert [each.before for each in changes] == [0.8, 2.0]
    assert [each.now for each in changes] == [0.9, 2.0]


def test_the_page_has_a_bar_for_each_figure_and_each_curve(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps(result("1", 890.0, 10.0)))
    curve = {"name": "groups", "unit": "MiB", "points": [[1, 60.0], [10, 61.5]]}
    (tmp_path / "1-growth.json").write_text(json.dumps({"date": "1", "curves": [curve]}))

    page = write(tmp_path / "page.html", tmp_path).read_text()

    assert "0.89" in page
    assert "2.00" in page
    assert "groups: MiB" in page
    assert "61.5" in page
