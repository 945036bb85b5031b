"""A result beside the last one that has the same rows; fails when a row lost more than a tenth.

    python -m benchmarks.compare [FILE]      # a file in results, the newest one otherwise

Machines differ from run to run, so a figure is Trilogue's divided by that of the real server in the
same run: messages a second for a message's worth, CPU the other way round. More is better in both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gates import (
    CPU_PER_MESSAGE,
    CPU_PER_REQUEST,
    KAFKA,
    KAFKA_DEFAULT,
    TRILOGUE,
    Medians,
)
from benchmarks.pulsar import PULSAR
from benchmarks.report import RESULTS
from benchmarks.tubemq import TUBEMQ

LOSS = 0.10
PEERS = (KAFKA_DEFAULT, KAFKA, PULSAR, TUBEMQ)  # the first that ran is compared with
RATES = {
    "requests_per_s": "requests/s",
    "messages_per_s": "messages/s",
    "commits_per_s": "commits/s",
    "handshakes_per_s": "handshakes/s",
}
COSTS = {CPU_PER_REQUEST: "CPU/request", CPU_PER_MESSAGE: "CPU/message"}

Result = dict[str, Any]


class Change(NamedTuple):
    """One figure of a row, before and now."""

    row: str
    label: str
    before: float
    now: float

    @property
    def is_lost(self) -> bool:
        """Whether it lost more than a tenth."""
        return self.now < self.before * (1 - LOSS)


def ratios(medians: Medians) -> dict[str, float]:
    """Return figures of Trilogue as shares of the real server's; {} where only one of them ran."""
    peer = next((name for name in PEERS if name in medians), "")
    if not peer or TRILOGUE not in medians:
        return {}
    ours, theirs = medians[TRILOGUE], medians[peer]
    found = {}
    for key, label in RATES.items():
        if ours.get(key) and theirs.get(key):
            found[f"{label} / {peer}"] = ours[key] / theirs[key]
    for key, label in COSTS.items():
        if ours.get(key) and theirs.get(key):
            found[f"{label}, {peer} /"] = theirs[key] / ours[key]
    return found


def compare(result: Result, earlier: Iterable[Result]) -> list[Change]:
    """Return the figures of a result that an earlier one has too, beside the newest of those."""
    before: dict[str, dict[str, float]] = {}
    for each in sorted(earlier, key=lambda one: one["date"]):
        before |= {row["name"]: ratios(row["median"]) for row in each["rows"]}
    return [
        Change(row["name"], label, before[row["name"]][label], now)
        for row in result["rows"]
        for label, now in ratios(row["median"]).items()
        if label in before.get(row["name"], {})
    ]


def load_results(results: Path = RESULTS) -> dict[str, Result]:
    """Return the results beside real servers by name of their file, the oldest first."""
    found = {path.name: json.loads(path.read_text()) for path in results.glob("*.json")}
    runs = [each for each in found.items() if _has_rows(each[1])]
    return dict(sorted(runs, key=lambda each: str(each[1]["date"])))


def _has_rows(found: object) -> bool:
    """Whether a file has rows beside a real server; that of Spark has a count of rows."""
    return isinstance(found, dict) and isinstance(found.get("rows"), list)


def compare_with_earlier(result: Result, results: Path = RESULTS) -> list[Change]:
    """Return the figures of a result beside the newest of those measured before it."""
    every = load_results(results).values()
    return compare(result, [each for each in every if each["date"] < result["date"]])


def table(changes: Iterable[Change]) -> str:
    """Return a line for each figure."""
    lines = [f"  {'row':28}{'figure':38}{'before':>9}{'now':>9}"]
    lines += [
        f"  {each.row:28}{each.label:38}{each.before:>9.2f}{each.now:>9.2f}"
        + ("  LOST" if each.is_lost else "")
        for each in changes
    ]
    return "\n".join(lines)


def main() -> int:
    every = load_results()
    name = Path(sys.argv[1]).name if len(sys.argv) > 1 else list(every)[-1]
    changes = compare_with_earlier(every[name])
    print(f"{name}\n{table(changes)}")
    return 1 if any(each.is_lost for each in changes) else 0


if __name__ == "__main__":
    sys.exit(main())
