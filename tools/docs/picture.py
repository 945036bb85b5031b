"""The README's picture: bars of throughput and of CPU per message beside Kafka."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gates import KAFKA, KAFKA_DEFAULT, TRILOGUE
from benchmarks.report import RESULTS

from tools.docs.blocks import ROOT
from tools.docs.numbers import newest_runs

PICTURE = ROOT / "docs" / "images" / "benchmarks.svg"
SERVERS = ((KAFKA, "Kafka with fsync", "#b0b7c3"), (KAFKA_DEFAULT, "Kafka default", "#6b7a90"),
           (TRILOGUE, "Trilogue, fsync", "#2f855a"))  # fmt: skip
LOADS = (
    ("pipelined-singles", "pipelined", "requests_per_s", "cpu_us_per_request_settled"),
    ("fifty-connections", "50 connections", "requests_per_s", "cpu_us_per_request_settled"),
    ("thousand-partitions", "1,000 partitions", "requests_per_s", "cpu_us_per_request_settled"),
    ("sustained-1KiB", "sustained 1 KiB", "messages_per_s", "cpu_us_per_message_settled"),
)
WIDTH, BAR, GAP, LEFT, FULL = 860, 9, 14, 130, 300
TOP = 62


def draw(results: Path = RESULTS) -> str:
    """Return the picture as SVG: one group of bars per load, throughput left, CPU right."""
    runs = newest_runs(results, KAFKA)
    rows = {row["name"]: row["median"] for _, _, found in reversed(runs) for row in found}
    loads = [load for load in LOADS if load[0] in rows]
    step = BAR * len(SERVERS) + GAP
    parts = [_text(LEFT, 20, "throughput, Kafka default = 1", "bold")]
    parts.append(_text(LEFT + FULL + 60, 20, "CPU per message, Kafka default = 1", "bold"))
    for at, (_, label, color) in enumerate(SERVERS):
        parts.append(f'<rect x="{LEFT + 150 * at}" y="32" width="10" height="10" fill="{color}"/>')
        parts.append(_text(LEFT + 15 + 150 * at, 41, label))
    for number, (name, label, rate, cpu) in enumerate(loads):
        y = TOP + number * step
        parts.append(_text(8, y + 17, label))
        for column, key in enumerate((rate, cpu)):
            parts += _bars(rows[name], key, LEFT + column * (FULL + 60), y)
    height = TOP + len(loads) * step
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _bars(medians: dict, key: str, x: int, y: int) -> list[str]:
    """One bar per server: its figure divided by Kafka's, at most five times as long."""
    base = medians[KAFKA_DEFAULT][key]
    parts = []
    for at, (server, _, color) in enumerate(SERVERS):
        ratio = medians[server][key] / base
        length = min(ratio, 5) * FULL / 6
        place = y + at * BAR
        parts.append(
            f'<rect x="{x}" y="{place}" width="{length:.0f}" height="{BAR - 1}" fill="{color}"/>'
        )
        parts.append(_text(x + int(length) + 4, place + 8, f"{ratio:.2f}"))
    return parts


def _text(x: int, y: int, text: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" font-weight="{weight}" fill="#1a202c">{text}</text>'
