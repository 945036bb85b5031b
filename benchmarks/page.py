"""A page of pictures: each row's newest figures beside the real server, and curves of growth.

    python -m benchmarks.page                # writes build/benchmarks.html

A bar of a row is Trilogue's rate, or the real server's CPU a message, as a share of the other's: at
least as long as the line means at least as good. The page needs no other file and no network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path

from benchmarks.compare import Result, load_results, ratios
from benchmarks.drivers import BUILD
from benchmarks.growth import Curve, load_curves
from benchmarks.report import RESULTS

PAGE = BUILD.parent / "benchmarks.html"
LEFT, ONE, FULL, STEP = 330, 160, 4.0, 18  # one = the length of a ratio of 1, full = the longest
GREEN, RED, GREY = "#2f855a", "#c05621", "#6b7a90"
WIDTH, HEIGHT, EDGE = 380, 220, 44


def newest_ratios(results: Iterable[Result]) -> dict[str, dict[str, float]]:
    """Return the ratios of each row from the newest result that has it."""
    found: dict[str, dict[str, float]] = {}
    for result in results:
        for row in result["rows"]:
            if known := ratios(row["median"]):
                found[row["name"]] = known
    return found


def draw_ratios(rows: dict[str, dict[str, float]]) -> str:
    """Return a bar for each figure of each row."""
    parts, y = [], 0
    for name, figures in rows.items():
        for at, (label, value) in enumerate(figures.items()):
            y += STEP
            length = min(value, FULL) * ONE
            color = GREEN if value >= 1 else RED
            parts.append(_text(8, y + 11, name if at == 0 else ""))
            parts.append(_text(170, y + 11, label))
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="13" fill="{color}"/>'
            )
            parts.append(_text(LEFT + length + 4, y + 11, f"{value:.2f}"))
        y += STEP // 3
    line = f'<line x1="{LEFT + ONE}" y1="10" x2="{LEFT + ONE}" y2="{y + 16}" stroke="{GREY}"/>'
    return _picture(LEFT + ONE * FULL + 60, y + 24, [*parts, line])


def draw_curve(curve: Curve) -> str:
    """Return a curve: how many there are to the right, what one of them costs upwards."""
    steps = [math.log10(max(each.count, 1)) for each in curve.points]
    top = max(each.cost for each in curve.points) * 1.1 or 1.0
    span = (steps[-1] - steps[0]) or 1.0
    places = [
        (
            EDGE + (step - steps[0]) / span * (WIDTH - 2 * EDGE),
            HEIGHT - EDGE - each.cost / top * (HEIGHT - 2 * EDGE),
        )
        for step, each in zip(steps, curve.points, strict=True)
    ]
    parts = [_text(8, 16, f"{curve.name}: {curve.unit}")]
    line = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{GREEN}" stroke-width="2"/>')
    for (x, y), each in zip(places, curve.points, strict=True):
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{GREEN}"/>')
        parts.append(_text(x - 10, y - 8, f"{each.cost:.3g}"))
        parts.append(_text(x - 10, HEIGHT - EDGE + 18, f"{each.count:,}"))
    return _picture(WIDTH, HEIGHT, parts)


def write(path: Path = PAGE, results: Path = RESULTS) -> Path:
    """Write the page and return its path."""
    runs = load_results(results)
    sources = escape(", ".join(runs))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "<!doctype html><meta charset=utf-8><title>Trilogue: benchmarks</title>"
        "<body style='font-family:sans-serif;margin:2em'><h1>Benchmarks</h1>"
        "<p>Figures as shares of the real server's in the same run; 1 is the line.</p>"
        + draw_ratios(newest_ratios(runs.values()))
        + "<h2>Growth</h2>"
        + "".join(draw_curve(curve) for curve in load_curves(results))
        + f"<p>From {sources}.</p>\n"
    )
    return path


def _picture(width: float, height: float, parts: Iterable[str]) -> str:
    head = f'<svg width="{width:.0f}" height="{height:.0f}" font-size="11">'
    return f"{head}{''.join(parts)}</svg>"


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="#1a202c">{escape(text)}</text>'


if __name__ == "__main__":
    print(write())
