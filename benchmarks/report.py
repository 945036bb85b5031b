"""The result of a run: a file that says everything, and a table that says what matters."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path

from benchmarks.rows import Figures, Gate
from benchmarks.servers import KAFKA, TRILOGUE

RESULTS = Path(__file__).parent / "results"
SHOWN = {
    "requests_per_s": ("requests/s", 0),
    "messages_per_s": ("messages/s", 0),
    "mb_per_s": ("MB/s", 1),
    "p50_ms": ("p50 ms", 3),
    "p99_ms": ("p99 ms", 3),
    "cpu_us_per_request": ("CPU us/request", 2),
    "cpu_us_per_request_settled": ("  with settling", 2),
    "cpu_us_per_message": ("CPU us/message", 3),
    "cpu_us_per_message_settled": ("  with settling", 3),
    "syncs_per_request": ("syncs/request", 3),
    "written_per_byte": ("bytes written/byte acked", 2),
    "topics_s": ("all of them s", 3),
    "start_s": ("start to first answer s", 2),
    "restart_s": ("  after kill -9 s", 2),
    "idle_mb": ("idle memory MB", 0),
    "refused": ("refused", 0),
    "interval_messages_per_s": ("messages/s, flush=interval", 0),
    "interval_p50_ms": ("  p50 ms", 3),
    "interval_p99_ms": ("  p99 ms", 3),
    "interval_cpu_us_per_message_settled": ("  CPU us/message", 3),
    "interval_refused": ("  refused", 0),
    "usable_s": ("usable s", 3),
    "group_s": ("one member has all s", 2),
    "closing_s": ("its close takes s", 2),
    "takeover_s": ("the other one has all s", 2),
    "takeover_killed_s": ("another one has all s", 1),
    "acked": ("acked", 0),
    "lost": ("  and lost", 0),
    "interval_lost": ("  and lost, flush=interval", 0),
}

Legs = dict[str, list[Figures]]  # server -> its legs


def median(legs: Iterable[Figures]) -> Figures:
    """Figure by figure, over the rounds."""
    gathered: dict[str, list[float]] = {}
    for leg in legs:
        for key, value in leg.items():
            gathered.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in gathered.items()}


def summarise(name: str, question: str, legs: Legs, gates: Iterable[Gate]) -> dict[str, object]:
    """One row of the file; gates are judged when both servers ran."""
    medians = {server: median(rounds) for server, rounds in legs.items()}
    row: dict[str, object] = {"name": name, "question": question, "median": medians}
    row["rounds"] = {
        server: [{key: round(value, 5) for key, value in leg.items()} for leg in rounds]
        for server, rounds in legs.items()
    }
    row["gates"] = []
    theirs = peer(medians)
    if {theirs, TRILOGUE} <= set(medians):
        for gate in gates:
            got = gate.value(medians[theirs], medians[TRILOGUE])
            row["gates"].append(
                {"label": gate.label, "got": round(got, 4), "wanted": round(gate.wanted, 4),
                 "passed": gate.passed(got)}
            )  # fmt: skip
    return row


def peer(servers: Iterable[str]) -> str:
    """The name of the real server that ours is measured beside."""
    return next((name for name in servers if name != TRILOGUE), KAFKA)


def table(rows: list[dict[str, object]]) -> str:
    """What is printed at the end."""
    lines = [f"{'':34}{'real':>12}{'Trilogue':>12}{'ratio':>9}"]
    for row in rows:
        lines.append(f"\n{row['name']}: {row['question']}")
        lines += figures_of(row["median"])
        lines += [
            f"    {'PASSED' if gate['passed'] else 'MISSED'}  {gate['label']}: {gate['got']:.3f}"
            for gate in row["gates"]
        ]
    return "\n".join(lines)


def figures_of(medians: dict[str, Figures]) -> list[str]:
    real, ours = medians.get(peer(medians), {}), medians.get(TRILOGUE, {})
    lines = []
    for key, (label, digits) in SHOWN.items():
        if key not in real and key not in ours:
            continue
        cells = [
            f"{figures[key]:,.{digits}f}" if key in figures else "-" for figures in (real, ours)
        ]
        both = key in real and key in ours and real[key]
        cells.append(f"{ours[key] / real[key]:.2f}" if both else "")
        lines.append(f"  {label:32}{cells[0]:>12}{cells[1]:>12}{cells[2]:>9}")
    return lines


def save(result: dict[str, object]) -> Path:
    """results/<date>-<machine kind>.json; a second run of a day gets a number."""
    machine = result["machine"]
    stem = f"{result['date'][:10]}-{machine['cpus']}cpu-{machine['architecture']}"
    RESULTS.mkdir(exist_ok=True)
    path, number = RESULTS / f"{stem}.json", 1
    while path.exists():
        number += 1
        path = RESULTS / f"{stem}-{number}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path
