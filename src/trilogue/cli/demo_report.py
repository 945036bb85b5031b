"""What the demo shows: tables and a small picture in the terminal, a PNG and an HTML page."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

BLOCKS = " ▁▂▃▄▅▆▇█"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

BY_CARRIER = """
SELECT carrier, any_value(airline), sum(flights)::BIGINT, sum(cancelled)::BIGINT,
       sum(delayed)::BIGINT, sum(delay_minutes) / (sum(flights) - sum(cancelled)),
       max(worst_delay)
FROM read_parquet('{found}/*/*.parquet', hive_partitioning=false)
GROUP BY carrier ORDER BY 3 DESC
"""
BY_MONTH = """
SELECT carrier, month(day) AS m, sum(delay_minutes) / (sum(flights) - sum(cancelled))
FROM read_parquet('{found}/*/*.parquet', hive_partitioning=false)
GROUP BY ALL HAVING sum(flights) > sum(cancelled)
"""


@dataclass
class Row:
    """One step of the demo: what went in and out, and how long it took."""

    step: str
    rows_in: int
    rows_out: int
    seconds: float


@dataclass
class Report:
    """Everything that is shown at the end."""

    delays: str
    steps: list[Row] = field(default_factory=list)
    carriers: list[tuple[str, str, int, int, int, float, int]] = field(default_factory=list)
    months: dict[tuple[str, int], float] = field(default_factory=dict)

    def load(self) -> None:
        """Read the pipeline's Parquet result."""
        import duckdb

        with duckdb.connect() as base:
            base.execute("SET TimeZone = 'UTC'")
            self.carriers = base.execute(BY_CARRIER.format(found=self.delays)).fetchall()
            rows = base.execute(BY_MONTH.format(found=self.delays)).fetchall()
        self.months = {(carrier, month): mean for carrier, month, mean in rows}

    def _line(self, carrier: str) -> str:
        means = [self.months.get((carrier, month)) for month in range(1, 13)]
        top = max(self.months.values())
        steps = len(BLOCKS) - 1
        return "".join(
            "·" if mean is None else BLOCKS[max(0, min(steps, round(mean / top * steps)))]
            for mean in means
        )

    def show(self, console: Console) -> None:
        """Print the tables, each carrier with its mean delay month by month."""
        from rich.table import Table

        delays = Table(
            title="Departures from New York in 2013; delays in minutes, late = more than 15"
        )
        for name in ("carrier", "flights", "cancelled", "late", "mean", "worst"):
            delays.add_column(name, justify="left" if name == "carrier" else "right", no_wrap=True)
        delays.add_column("JFMAMJJASOND", no_wrap=True)
        for carrier, airline, flights, cancelled, late, mean, worst in self.carriers:
            line = self._line(carrier)
            delays.add_row(
                f"{carrier} {airline[:20]}", f"{flights:,}", f"{cancelled:,}", f"{late:,}",
                f"{mean:.1f}", f"{worst:,}", line,
            )  # fmt: skip
        console.print(delays)
        steps = Table(title="Steps")
        for name in ("step", "rows in", "rows out", "seconds"):
            steps.add_column(name, justify="left" if name == "step" else "right")
        for row in self.steps:
            steps.add_row(row.step, f"{row.rows_in:,}", f"{row.rows_out:,}", f"{row.seconds:.1f}")
        console.print(steps)

    def write(self, folder: Path) -> Path:
        """Write the PNG and the HTML page; returns the page."""
        picture = folder / "delays.png"
        self._draw(picture)
        head = "<tr><th>step<th>rows in<th>rows out<th>seconds</tr>"
        steps = "".join(
            f"<tr><td>{html.escape(row.step)}<td>{row.rows_in:,}<td>{row.rows_out:,}"
            f"<td>{row.seconds:.1f}</tr>"
            for row in self.steps
        )
        carriers = "".join(
            f"<tr><td>{html.escape(f'{code} {name}')}<td>{flights:,}<td>{cancelled:,}<td>{late:,}"
            f"<td>{mean:.1f}<td>{worst:,}</tr>"
            for code, name, flights, cancelled, late, mean, worst in self.carriers
        )
        page = folder / "report.html"
        page.write_text(PAGE.format(head=head, steps=steps, carriers=carriers))
        return page

    def _draw(self, picture: Path) -> None:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        codes = [row[0] for row in self.carriers]
        grid = [
            [self.months.get((code, month), float("nan")) for month in range(1, 13)]
            for code in codes
        ]
        figure, axes = plt.subplots(figsize=(9, 6))
        shown = axes.imshow(grid, aspect="auto", cmap="YlOrRd")
        axes.set_xticks(range(12), MONTHS)
        axes.set_yticks(range(len(codes)), [f"{row[0]}  {row[1]}" for row in self.carriers])
        axes.set_title("Mean departure delay from New York, 2013 (minutes)")
        figure.colorbar(shown, ax=axes)
        figure.tight_layout()
        figure.savefig(picture, dpi=110)
        plt.close(figure)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Trilogue demo</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse;margin:1rem 0}}td,th{{padding:.2rem .8rem;text-align:right;
border-bottom:1px solid #ddd}}td:first-child,th:first-child{{text-align:left}}img{{max-width:100%}}
</style><h1>336,776 flights through Kafka, Trilogue and Spark</h1>
<p>The figures below were computed by a streaming pipeline and are equal, row by row, to those that
DuckDB computes from the data set.</p><img src="delays.png" alt="Mean delay by carrier and month">
<h2>Carriers</h2><table><tr><th>carrier<th>flights<th>cancelled<th>late<th>mean delay<th>worst</tr>
{carriers}</table><h2>Steps</h2><table>{head}{steps}</table></html>
"""
