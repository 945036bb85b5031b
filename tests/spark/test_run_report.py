"""The page about a run: what it shows of Spark's progress, also where a part of it is missing."""

from __future__ import annotations

from trilogue.spark import RunReport

FIRST = {
    "batchId": 0,
    "timestamp": "2013-01-01T00:00:00.000Z",
    "numInputRows": 1_500,
    "processedRowsPerSecond": 3_000.0,
    "durationMs": {"triggerExecution": 500},
    "sources": [
        {
            "endOffset": {"t": {"0": 5, "1": 7, "id": "aa"}},
            "latestOffset": {"t": {"0": 9, "1": 7, "id": "aa"}},
        },
        {"endOffset": "0", "latestOffset": None},
    ],
}
LATER = {"batchId": 1, "timestamp": "2013-01-01T00:00:01.000Z"}


def test_rows_rates_and_lag_of_a_run():
    report = RunReport.from_progress("orders <b>", [FIRST, LATER])
    page = report._repr_html_()

    assert [(each.rows, each.lag) for each in report.batches] == [(1_500, 4), (0, None)]
    assert "2 micro-batches, 1,500 rows, 3,000 rows/s" in page
    assert "orders &lt;b&gt;" in page
    assert "<td>1,500</td><td>3,000</td><td>500</td><td>4</td>" in page


def test_a_run_without_micro_batches_is_a_page(tmp_path):
    RunReport.from_progress("idle", []).write(str(tmp_path / "run.html"))

    page = (tmp_path / "run.html").read_text()
    assert "0 micro-batches, 0 rows, 0 rows/s" in page
    assert "<svg" not in page
