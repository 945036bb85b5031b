"""The newest measurement as a table, or a sentence that says that there is none."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import RESULTS, SHOWN
from benchmarks.servers import KAFKA, TRILOGUE

from tools.docs.blocks import COMMAND, ROOT, table

RUN = "python -m benchmarks.run"
NONE = (
    "There is no result in `benchmarks/results` yet, so no number stands here. "
    f"`{RUN}` measures both servers in turn and writes one, `{COMMAND}` shows it."
)
WANTED = (
    "start_s",
    "idle_mb",
    "requests_per_s",
    "messages_per_s",
    "p50_ms",
    "p99_ms",
    "cpu_us_per_request_settled",
    "cpu_us_per_message_settled",
    "restart_s",
)
LABELS = {
    "cpu_us_per_request_settled": "CPU µs/request",
    "cpu_us_per_message_settled": "CPU µs/message",
    "restart_s": "first answer after kill -9, s",
}

Result = dict[str, object]


def numbers(results: Path = RESULTS) -> str:
    """The newest run of benchmarks/run.py that asked both servers."""
    found = newest(results)
    if found is None:
        return NONE
    path, result = found
    rows = [line for row in result["rows"] for line in _row(row)]
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return "\n\n".join(
        [
            table(("load", "figure", "Kafka", "Trilogue"), rows),
            _gates(result["rows"]),
            _conditions(result) + f" File: [{path.name}]({shown}). Measured by `{RUN}`.",
        ]
    )


def newest(results: Path) -> tuple[Path, dict] | None:
    """By date, not by name; files of other questions are passed over."""
    found = []
    for path in results.glob("*.json"):
        result = json.loads(path.read_text())
        if not isinstance(result, dict) or not isinstance(result.get("rows"), list):
            continue
        if any({KAFKA, TRILOGUE} <= set(row["median"]) for row in result["rows"]):
            found.append((result["date"], path.name, path, result))
    if not found:
        return None
    return max(found)[2:]


def _row(row: dict) -> list[tuple[str, ...]]:
    medians = row["median"]
    kafka, ours = medians.get(KAFKA, {}), medians.get(TRILOGUE, {})
    lines = []
    for key in WANTED:
        if key in ours:
            name, digits = SHOWN[key]
            cells = [f"{one[key]:,.{digits}f}" if key in one else "" for one in (kafka, ours)]
            lines.append(("" if lines else row["name"], LABELS.get(key, name), *cells))
    return lines


def _gates(rows: list[dict]) -> str:
    gates = [(row["name"], gate) for row in rows for gate in row.get("gates", [])]
    missed = [
        f"{name}: {gate['label']} (got {gate['got']:.3g}, wanted {gate['wanted']:.3g})"
        for name, gate in gates
        if not gate["passed"]
    ]
    if not gates:
        return "This run judged no gates."
    if not missed:
        return f"All {len(gates)} gates of this run were passed."
    return f"{len(gates) - len(missed)} of {len(gates)} gates were passed; missed: " + "; ".join(
        missed
    )


def _conditions(result: dict) -> str:
    machine, versions = result["machine"], result["versions"]
    return (
        f"{result['date'][:10]}; {machine['cpus']} cores ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB, {machine['file_system']}, Python {machine['python']}; "
        f"Kafka {versions['kafka']}; {result['durability']}; medians of {result['rounds']} rounds."
    )
