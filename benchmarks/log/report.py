"""The gates, the table, the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.log.appends import FLUSHING, QUIET
from benchmarks.log.world import Figures

RESULTS = Path(__file__).resolve().parent.parent / "results"
Result = dict[str, dict]
LARGE = (
    "flood, 64 KiB, 1 partitions",
    "flood, 64 KiB, 100 partitions",
    "flood, 1 MiB, 4 partitions",
)
HIDDEN = {"places", "rounds"}


@dataclass(frozen=True)
class Gate:
    """What has to hold; `value` raises KeyError when the run did not measure it."""

    label: str
    value: Callable[[Result], float]
    wanted: float
    at_least: bool = False

    def judge(self, result: Result) -> dict[str, object] | None:
        try:
            got = self.value(result)
        except KeyError:
            return None
        passed = got >= self.wanted if self.at_least else got <= self.wanted
        return {
            "label": self.label,
            "got": round(got, 4),
            "wanted": self.wanted,
            "at_least": self.at_least,
            "passed": passed,
        }


def large_windows(result: Result) -> float:
    """The best flood of large entries, beside what the disk does with writes of a window's size."""
    appends = result["appends"]
    limit = max(
        appends["limits"][f"{kind} {size}"]["mb_per_s"]
        for kind in ("plain", "best")
        for size in ("1 MiB", "8 MiB")
    )
    return max(appends["cases"][name][QUIET]["mb_per_s"] for name in LARGE) / limit


def beside_flush(result: Result) -> float:
    """The worst of the steady loads: p99 of a lone entry with the flush, and without.

    Not of the floods: they have a fixed number of bytes on their way, so there latency is that
    number through throughput, and no flush keeps up with what a journal takes in a burst.
    """
    cases = [kinds for name, kinds in result["appends"]["cases"].items() if "beside" in name]
    return max(kinds[FLUSHING]["p99_ms"] / kinds[QUIET]["p99_ms"] for kinds in cases)


def largest(part: str, key: str, match: str = "") -> Callable[[Result], float]:
    return lambda result: max(
        figures[key] for name, figures in result[part].items() if match in name
    )


GATES = (
    Gate("large windows: share of the disk's own limit", large_windows, 0.7, at_least=True),
    Gate("p99 of a lone entry with a flush beside it / without", beside_flush, 2.0),
    Gate("recovery of 256 MiB, s", largest("recovery", "recovery_s", "256 MiB"), 1.0),
    Gate("start with 10^8 messages, to an answer, s", largest("start", "exec_to_answer_s"), 0.8),
    Gate(
        "bytes a partition with one message", largest("memory", "one_message_bytes", "part"), 2048
    ),
    Gate(
        "bytes written to segments per byte acknowledged",
        largest("writes", "segments_per_byte"),
        2.3,
    ),
)


def judge(result: Result) -> list[dict[str, object]]:
    """Return every requested gate."""
    return [verdict for gate in GATES if (verdict := gate.judge(result)) is not None]


def table(result: Result) -> str:
    """Everything, a line each, and the gates at the end."""
    lines: list[str] = []
    appends = result.get("appends")
    if appends:
        lines += section("the disk's own limits", appends["limits"])
        for name, kinds in appends["cases"].items():
            lines += section(name, kinds)
    for part in ("writes", "recovery", "start", "reads", "memory"):
        if part in result:
            lines += section(part, result[part])
    for figures in result.get("memory", {}).values():
        lines += ["  where it is, bytes each"]
        lines += [f"    {place:44}{size:>9}" for place, size in figures["places"][:12]]
    lines += ["", "gates"]
    lines += [
        f"  {'passed' if each['passed'] else 'MISSED'}  {each['label']}: {each['got']:.3f} "
        f"({'at least' if each['at_least'] else 'at most'} {each['wanted']})"
        for each in result["gates"]
    ]
    return "\n".join(lines)


def section(title: str, rows: dict[str, Figures]) -> list[str]:
    lines = ["", title]
    for name, figures in rows.items():
        cells = [f"{key} {shown(value)}" for key, value in figures.items() if key not in HIDDEN]
        lines.append(f"  {name:34}" + "  ".join(cells))
    return lines


def shown(value: float) -> str:
    for limit, digits in ((1000, 0), (100, 1), (1, 2)):
        if abs(value) >= limit:
            return f"{value:,.{digits}f}"
    return f"{value:.4f}"


def save(result: Result) -> Path:
    """results/<date>-<machine kind>-log.json; a second run of a day gets a number."""
    machine = result["machine"]
    stem = f"{result['date'][:10]}-{machine['cpus']}cpu-{machine['architecture']}-log"
    RESULTS.mkdir(exist_ok=True)
    path, number = RESULTS / f"{stem}.json", 1
    while path.exists():
        number += 1
        path = RESULTS / f"{stem}-{number}.json"
    path.write_text(json.dumps(rounded(result), indent=1) + "\n")
    return path


def rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value
