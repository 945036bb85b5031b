"""A page about a run of a streaming query: rows, rates, lag and times of its micro-batches.

    report = RunReport.of(query)
    report.write("run.html")     # a notebook shows `report` itself

Spark keeps the newest 100 micro-batches (spark.sql.streaming.numRecentProgressUpdates).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trilogue.spark.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

WIDTH, HEIGHT, MARGIN = 640, 160, 8
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 50em; padding: 0 1em }
table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: right }
th { border-bottom: 1px solid #888; font-weight: 600 } svg { width: 100%; background: #8881 }
polyline { fill: none; stroke: #2a7de1; stroke-width: 2 } circle { fill: #2a7de1 }
"""


class MicroBatch(NamedTuple):
    """One micro-batch of a query. `lag`: offsets that were not read yet; None if unknown."""

    number: int
    began: str
    rows: int
    rows_per_s: float
    duration_ms: int
    lag: int | None


class RunReport(NamedTuple):
    """The micro-batches of a run, oldest first."""

    name: str
    batches: tuple[MicroBatch, ...]

    @classmethod
    def of(cls, query: StreamingQuery) -> RunReport:
        """Return the report of a query that runs or has ended."""
        progress = [json.loads(each.json) for each in query.recentProgress]
        return cls.from_progress(query.name or str(query.id), progress)

    @classmethod
    def from_progress(cls, name: str, progress: Iterable[Mapping[str, Any]]) -> RunReport:
        """Return the report of progress events, as Spark's listeners get them in JSON."""
        return cls(name, tuple(_parse(one) for one in progress))

    def write(self, path: Path | str) -> None:
        """Write a page that needs no other file."""
        title = html.escape(f"Run of {self.name}")
        Path(path).write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<style>{STYLE}</style><body>{self._repr_html_()}</body></html>\n"
        )

    def _repr_html_(self) -> str:
        """Return the body of the page; notebooks call it."""
        rows = sum(each.rows for each in self.batches)
        seconds = sum(each.duration_ms for each in self.batches) / 1000
        rate = rows / seconds if seconds else 0.0
        summary = f"{len(self.batches)} micro-batches, {rows:,} rows, {rate:,.0f} rows/s"
        charts = (
            _draw("Rows", [each.rows for each in self.batches]),
            _draw("Rows per second", [each.rows_per_s for each in self.batches]),
            _draw("Lag in offsets", [each.lag for each in self.batches if each.lag is not None]),
            _draw("Duration in ms", [each.duration_ms for each in self.batches]),
        )
        return (
            f"<h1>Run of {html.escape(self.name)}</h1><p>{summary}</p>"
            f"{''.join(charts)}{_tabulate(self.batches)}"
        )


def _parse(progress: Mapping[str, Any]) -> MicroBatch:
    sources = progress.get("sources", [])
    lags = [_find_lag(each) for each in sources]
    known = [each for each in lags if each is not None]
    return MicroBatch(
        int(progress["batchId"]),
        str(progress["timestamp"]),
        int(progress.get("numInputRows", 0)),
        float(progress.get("processedRowsPerSecond") or 0.0),
        int(progress.get("durationMs", {}).get("triggerExecution", 0)),
        sum(known) if known else None,
    )


def _find_lag(source: Mapping[str, Any]) -> int | None:
    """Return the offsets between what was read and the end; None for other sources' offsets."""
    try:
        read, _ = from_json(source["endOffset"])
        latest, _ = from_json(source["latestOffset"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return sum(max(0, end - read.get(key, 0)) for key, end in latest.items())


def _draw(title: str, values: Sequence[float]) -> str:
    """Return a line of values as SVG, with its largest one; nothing where there are none."""
    if not values:
        return ""
    top = max(values) or 1
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    points = [
        (MARGIN + number * step, HEIGHT - MARGIN - value / top * (HEIGHT - 2 * MARGIN))
        for number, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    return (
        f'<h2>{title}</h2><p>at most {max(values):,.0f}</p><svg viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="{title}"><polyline points="{line}"/>{dots}</svg>'
    )


def _tabulate(batches: Iterable[MicroBatch]) -> str:
    names = ("micro-batch", "began", "rows", "rows/s", "ms", "lag")
    lines = [
        (each.number, each.began, f"{each.rows:,}", f"{each.rows_per_s:,.0f}",
         f"{each.duration_ms:,}", "" if each.lag is None else f"{each.lag:,}")
        for each in batches
    ]  # fmt: skip
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in line)}</tr>"
        for line in lines
    )
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>{body}</table>"
