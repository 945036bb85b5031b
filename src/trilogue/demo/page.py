"""The demo's report: a picture (PNG), and an HTML page with the picture inside."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from trilogue.demo.report import MONTHS, Report, format_count, summarize_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORST_DAYS = 3
YEAR = 2013


def draw(report: Report, picture: Path) -> Path:
    """Draw mean delays by carrier and month, and cancelled flights by day."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(
        2, 1, figsize=(10, 9), height_ratios=(3, 1), layout="constrained"
    )
    _heat(report, above)
    _cancelled(report, below)
    figure.suptitle("Departures from New York, 2013", fontsize=15, fontweight="bold")
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return picture


def _heat(report: Report, axes: Axes) -> None:
    codes = [one.code for one in report.carriers]
    found = [[report.months.get((code, month)) for month in range(1, 13)] for code in codes]
    grid = [[float("nan") if one is None else one.mean for one in row] for row in found]
    if grid:
        axes.imshow(grid, aspect="auto", cmap="YlOrRd", vmin=0, vmax=report.top)
    axes.set_facecolor("#eeeeee")
    for row, means in enumerate(grid):
        for column, mean in enumerate(means):
            dark = mean > 0.6 * report.top
            text = "" if mean != mean else f"{mean:.0f}"  # noqa: PLR0124 - not a number
            axes.text(
                column, row, text, ha="center", va="center", fontsize=8,
                color="white" if dark else "black",
            )  # fmt: skip
    axes.set_xticks(range(12), MONTHS)
    axes.set_yticks(range(len(codes)), [one.short for one in report.carriers])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Mean delay of departures, minutes", loc="left")


def _cancelled(report: Report, axes: Axes) -> None:
    days = [day.toordinal() for day, _, _ in report.days]
    cancelled = [number for _, _, number in report.days]
    axes.fill_between(days, cancelled, step="mid", color="#b2182b", alpha=0.85, linewidth=0)
    top = max(cancelled, default=1)
    for day, _, number in sorted(report.days, key=lambda one: -one[2])[:WORST_DAYS]:
        axes.annotate(
            f"{day:%d %b}: {number:,}", (day.toordinal(), number), xytext=(6, -3),
            textcoords="offset points", fontsize=8, va="top",
        )  # fmt: skip
    firsts = [day for day, _, _ in report.days if day.day == 1 and day.year == YEAR]
    axes.set_xticks([day.toordinal() for day in firsts], [f"{day:%b}" for day in firsts])
    axes.set_ylim(0, top * 1.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.005)
    axes.set_title("Cancelled flights by day", loc="left")


def write_page(report: Report, picture: Path, page: Path) -> Path:
    """Write the HTML page, the picture inside."""
    shown = base64.b64encode(picture.read_bytes()).decode()
    cancelled = sum(one.cancelled for one in report.carriers)
    figures = (
        (format_count(sum(one.flights for one in report.carriers)), "flights"),
        (format_count(cancelled), "cancelled, an alert each"),
        (format_count(sum(one.late for one in report.carriers)), "more than 15 minutes late"),
        (f"{report.seconds:.0f} s", "for all of it"),
    )
    page.write_text(
        PAGE.format(
            verdict=_verdict(report.wrong),
            figures="".join(f"<div><b>{number}</b>{what}</div>" for number, what in figures),
            picture=shown,
            across=_across(report),
            carriers=_carriers(report),
            steps=_steps(report),
            alerts=_alerts(report),
        )
    )
    return page


def _verdict(wrong: list[str]) -> str:
    if not wrong:
        return (
            '<p class="good">Every row and figure, in the Parquet files and in the topics, equals '
            "what DuckDB computes from the data set.</p>"
        )
    lines = escape("\n".join(wrong))
    return f'<div class="bad">The result differs from the data set:<pre>{lines}</pre></div>'


def _carriers(report: Report) -> str:
    rows = []
    for one in report.carriers:
        share = 100 * one.late / max(1, one.flights)
        mean = "" if one.mean is None else f"{one.mean:.1f}"
        rows.append(
            f"<tr><td>{escape(one.code)} {escape(one.airline)}<td>{one.flights:,}"
            f"<td>{one.cancelled:,}<td>{one.late:,}"
            f'<td class="bar"><i style="width:{share:.0f}%"></i>{share:.0f} %'
            f"<td>{mean}<td>{format_count(one.worst)}<td>{one.poor_weather:,}</tr>"
        )
    return "\n".join(rows)


def _steps(report: Report) -> str:
    rows = []
    for row in report.steps:
        kind = ' class="part"' if row.step.startswith(" ") else ""
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        rows.append(
            f"<tr{kind}><td>{escape(row.step.strip())}<td>{format_count(row.rows_in)}"
            f"<td>{format_count(row.rows_out)}<td>{seconds}</tr>"
        )
    return "\n".join(rows)


def _across(report: Report) -> str:
    """Return the samples that Pulsar and TubeMQ clients wrote and a Kafka client read."""
    if not report.across:
        return ""
    rows = "\n".join(
        f"<tr><td>{escape(one.writer)}<td>{escape(one.topic)}<td>{format_count(one.messages)}"
        f"<td>{escape(sample.message_id)}<td>{sample.position.partition}<td>{sample.position.offset}"
        f"<td>{escape(sample.key)}<td>{escape(summarize_value(sample))}</tr>"
        for one in report.across
        for sample in one.samples
    )
    return ACROSS.format(rows=rows)


def _alerts(report: Report) -> str:
    rows = (
        f"<tr><td>{time:%d %b %H:%M}<td>{escape(str(airline))} {flight}"
        f"<td>{escape(str(origin))}<td>{escape(str(to))}</tr>"
        for time, airline, flight, origin, to in report.alerts
    )
    return "\n".join(rows)


ACROSS = """<h2>Written by Pulsar and TubeMQ, read by Kafka</h2>
<p>The weather was written by an unmodified Pulsar client; planes, airports and airlines by a TubeMQ
client. The Kafka client found each message at the position in its writer's receipt: the offset is
the entry id of Pulsar's message id plus the batch index, and TubeMQ's own offset. Spark reads the
same topics by the Kafka protocol.</p>
<div class="scroll"><table class="left">
<tr><th>by<th>topic<th>messages<th>message id<th>partition<th>offset (Kafka)<th>key<th>value</tr>
{rows}</table></div>
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Trilogue demo: a year of flights</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>
:root{{color-scheme:light dark;--line:#8884;--accent:#b2182b}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}}
h1{{line-height:1.2;margin-bottom:.2em}}h2{{margin-top:2em}}
table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}}
td,th{{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}}
td:first-child,th:first-child{{text-align:left}}.left td,.left th{{text-align:left}}
.part td:first-child{{padding-left:2rem}}.part{{opacity:.75}}
.figures{{display:flex;flex-wrap:wrap;gap:1rem;margin:1.5rem 0}}
.figures div{{flex:1;min-width:9rem;border:1px solid var(--line);border-radius:.5rem;padding:.8rem}}
.figures b{{display:block;font-size:1.6rem}}
.good,.bad{{border-left:.3rem solid #1a9850;padding:.4rem 1rem;background:#1a985018}}
.bad{{border-color:var(--accent);background:#b2182b18}}pre{{white-space:pre-wrap}}
.bar{{position:relative;min-width:6rem}}
.bar i{{position:absolute;left:0;top:.35rem;bottom:.35rem;background:#b2182b55}}
img{{max-width:100%;background:#fff;border-radius:.5rem}}.scroll{{overflow-x:auto}}
</style></head><body>
<h1>A year of flights through Kafka, Pulsar, TubeMQ, Trilogue and Spark</h1>
<p>Every flight that left New York in 2013 was replayed into topics by an unmodified Kafka client,
the weather of every hour by an unmodified Pulsar client, planes, airports and airlines by a TubeMQ
client; all were joined and counted by a streaming Spark pipeline, and written to Parquet and to
topics.</p>
{verdict}
<div class="figures">{figures}</div>
<img src="data:image/png;base64,{picture}" alt="Mean delays; cancellations">
{across}<h2>Carriers</h2><div class="scroll"><table>
<tr><th>carrier<th>flights<th>cancelled<th>late<th>of all<th>mean<th>worst<th>in poor weather</tr>
{carriers}</table></div>
<h2>Steps</h2><div class="scroll"><table>
<tr><th>step<th>rows in<th>rows out<th>seconds</tr>
{steps}</table></div>
<h2>The last cancellation alerts</h2><div class="scroll"><table class="left">
<tr><th>scheduled (UTC)<th>flight<th>from<th>to</tr>
{alerts}</table></div>
</body></html>
"""
