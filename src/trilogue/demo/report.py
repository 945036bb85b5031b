"""The demo's results in the terminal: carriers with their delays by month, and the steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trilogue.demo.steps import StepResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from trilogue.demo.across import CrossProtocolRead, Sample

BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = ("green4", "green3", "yellow3", "gold3", "dark_orange", "orange_red1", "red1", "red3")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TEMPERATURE = re.compile(r'"temp":([-0-9.]+)')
_NAME = re.compile(r'"(?:name|manufacturer)":"([^"\\]*)')
NAME_MAX = 22
"""Letters of a name that fit into 80 columns."""
FEWEST = 50
"""A month with fewer flights of a carrier does not set the scale."""

BY_CARRIER = """
SELECT carrier, any_value(airline), sum(flights)::BIGINT, sum(cancelled)::BIGINT,
       sum(delayed)::BIGINT, sum(delay_minutes) / nullif(sum(flights) - sum(cancelled), 0),
       max(worst_delay), sum(poor_weather)::BIGINT
FROM {stats} GROUP BY carrier ORDER BY 3 DESC
"""
BY_MONTH = """
SELECT carrier, month(day), sum(delay_minutes) / (sum(flights) - sum(cancelled)),
       sum(flights)::BIGINT
FROM {stats} GROUP BY ALL HAVING sum(flights) > sum(cancelled)
"""
BY_DAY = """
SELECT day::DATE, sum(flights)::BIGINT, sum(cancelled)::BIGINT FROM {stats} GROUP BY 1 ORDER BY 1
"""
ALERTS = """
SELECT time_hour, airline, flight, origin, coalesce("to", dest) FROM {alerts}
ORDER BY time_hour DESC, carrier, flight LIMIT 12
"""


class Carrier(NamedTuple):
    """The year's figures of one carrier."""

    code: str
    airline: str
    flights: int
    cancelled: int
    late: int
    mean: float | None
    worst: int | None
    poor_weather: int

    @property
    def short(self) -> str:
        """The name without its legal form."""
        return re.sub(r" (Inc\.|Co\.|Corporation)$", "", self.airline)


class Month(NamedTuple):
    """The mean delay of one carrier in one month, and the number of its flights."""

    mean: float
    flights: int


@dataclass
class Report:
    """The results, for the terminal and for the HTML page."""

    steps: list[StepResult]
    wrong: list[str]
    seconds: float
    carriers: list[Carrier] = field(default_factory=list)
    months: dict[tuple[str, int], Month] = field(default_factory=dict)
    days: list[tuple[date, int, int]] = field(default_factory=list)
    alerts: list[tuple[object, ...]] = field(default_factory=list)
    across: list[CrossProtocolRead] = field(default_factory=list)

    @classmethod
    def load(
        cls, output: Path, steps: list[StepResult], wrong: list[str], seconds: float
    ) -> Report:
        """Read the pipeline's Parquet results, if it wrote any."""
        import duckdb

        report = cls(steps, wrong, seconds)
        sources = {
            name: f"read_parquet('{output}/parquet/{folder}/*/*.parquet', hive_partitioning=false)"
            for name, folder in (("stats", "delay-stats"), ("alerts", "cancellations"))
            if any((output / "parquet" / folder).glob("*/*.parquet"))
        }
        with duckdb.connect() as base:
            base.execute("SET TimeZone = 'UTC'")
            if "stats" in sources:
                rows = base.execute(BY_CARRIER.format(**sources)).fetchall()
                report.carriers = [Carrier(*row) for row in rows]
                months = base.execute(BY_MONTH.format(**sources)).fetchall()
                report.months = {(row[0], row[1]): Month(row[2], row[3]) for row in months}
                report.days = base.execute(BY_DAY.format(**sources)).fetchall()
            if "alerts" in sources:
                report.alerts = base.execute(ALERTS.format(**sources)).fetchall()
        return report

    @property
    def top(self) -> float:
        """The end of the scale: the largest mean delay of a month with 50 flights or more."""
        means = [month.mean for month in self.months.values() if month.flights >= FEWEST]
        return max(means, default=1.0)

    def show(self, console: Console) -> None:
        """Print the tables, each carrier with its mean delay month by month."""
        console.print(self._delays())
        console.print(self._steps())

    def _delays(self) -> Table:
        table = _table("Departures from New York in 2013; delays in minutes, late is more than 15")
        table.add_column("carrier", no_wrap=True)
        for name in ("flights", "cancelled", "late", "mean", "worst"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("JFMAMJJASOND", no_wrap=True)
        for one in self.carriers:
            mean = "" if one.mean is None else f"{one.mean:.1f}"
            table.add_row(
                f"{one.code} {one.short}", f"{one.flights:,}", f"{one.cancelled:,}",
                f"{one.late:,}", mean, f"{one.worst or 0:,}", self._line(one.code),
            )  # fmt: skip
        return table

    def _line(self, carrier: str) -> Text:
        from rich.text import Text

        line = Text()
        for number in range(1, 13):
            month = self.months.get((carrier, number))
            if month is None:
                line.append("·", "dim")
                continue
            height = max(0, min(len(BLOCKS) - 1, int(month.mean / self.top * len(BLOCKS))))
            line.append(BLOCKS[height], COLOURS[height])
        return line

    def _steps(self) -> Table:
        table = _table("Steps")
        table.add_column("step", no_wrap=True)
        for name in ("rows in", "rows out", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.steps:
            seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
            table.add_row(row.step, format_count(row.rows_in), format_count(row.rows_out), seconds)
        return table


def cross_protocol_tables(reads: list[CrossProtocolRead]) -> Iterator[Table]:
    """Yield a table per protocol: sample messages, as the Kafka client read them."""
    for writer in dict.fromkeys(one.writer for one in reads):
        by_writer = [one for one in reads if one.writer == writer]
        messages = sum(one.messages for one in by_writer)
        table = _table(f"{messages:,} messages of a {writer} client, read by a Kafka client")
        for name in ("message id", "topic", "partition", "offset", "key", "value"):
            is_number = name in {"message id", "partition", "offset"}
            table.add_column(name, no_wrap=True, justify="right" if is_number else "left")
        for one in by_writer:
            for sample in one.samples:
                table.add_row(
                    sample.message_id, one.topic, str(sample.position.partition),
                    str(sample.position.offset), sample.key, summarize_value(sample),
                )  # fmt: skip
        yield table


def summarize_value(sample: Sample) -> str:
    """Return a few words of the value: time and temperature, or a name."""
    found = _TEMPERATURE.search(sample.value)
    if found is not None:
        return f"{format_time(sample.time_ms)} {found[1]} °F"
    found = _NAME.search(sample.value)
    return "" if found is None else found[1][:NAME_MAX]


def format_time(time_ms: int) -> str:
    """Return an event time as `2013-01-31 12:00` in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _table(title: str) -> Table:
    """Return a table without lines between columns, so that it fits into 80."""
    from rich import box
    from rich.table import Table

    gap = (0, 1, 0, 0)
    return Table(
        title=title, box=box.SIMPLE_HEAD, padding=gap, title_justify="left", title_style="bold"
    )


def format_count(number: int | None) -> str:
    """Return a number with thousands separators; empty for None."""
    return "" if number is None else f"{number:,}"
