"""The newest measurement of each row beside a real server, or a sentence that there is none."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import kafka_rows, pulsar, tubemq
from benchmarks.gates import KAFKA, KAFKA_DEFAULT, TRILOGUE
from benchmarks.kafka_rows import KAFKA_VERSION, ROWS
from benchmarks.pulsar import PULSAR
from benchmarks.report import RESULTS, SHOWN
from benchmarks.tubemq import DURABILITY, TUBEMQ

from tools.docs.blocks import COMMAND, ROOT, table

RUN = "python -m benchmarks.run"
PEERS = {KAFKA: "Kafka", PULSAR: "Pulsar", TUBEMQ: "TubeMQ"}
NAMES = {KAFKA: kafka_rows.NAMES, PULSAR: pulsar.NAMES, TUBEMQ: tubemq.NAMES}
OURS = {row.name for row in ROWS if KAFKA not in row.servers}  # but a run beside a Kafka has them
BESIDE = {KAFKA: (KAFKA_DEFAULT, "Kafka without fsync")}  # a second column, where there is one
NONE = (
    "There is no result in `benchmarks/results` yet, so no number stands here. "
    f"`{RUN}` measures both servers in turn and writes one, `{COMMAND}` shows it."
)
WANTED = (
    "start_s",
    "idle_mb",
    "requests_per_s",
    "commits_per_s",
    "handshakes_per_s",
    "messages_per_s",
    "share_of_plain",
    "compacted_mb_per_s",
    "cpu_ms_per_mb",
    "p50_ms",
    "p99_ms",
    "quiet_p99_ms",
    "cpu_us_per_request_settled",
    "cpu_us_per_message_settled",
    "disk_mb_per_s",
    "refused",
    "interval_messages_per_s",
    "interval_p50_ms",
    "interval_cpu_us_per_message_settled",
    "polls_per_s",
    "cpu_us_per_poll",
    "full_cpu_us_per_poll",
    "stable_s",
    "stable_848_s",
    "created_s",
    "visible_s",
    "lag_p99_ms",
    "machine_lag_p99_ms",
    "topics_s",
    "usable_s",
    "group_s",
    "takeover_s",
    "takeover_killed_s",
    "lost",
    "interval_lost",
    "restart_s",
)
LABELS = {
    "share_of_plain": "share of the rate without transactions",
    "quiet_p99_ms": "p99 ms without compaction",
    "cpu_us_per_request_settled": "CPU µs/request",
    "cpu_us_per_message_settled": "CPU µs/message",
    "polls_per_s": "fetches/s in a session",
    "cpu_us_per_poll": "CPU µs/fetch",
    "full_cpu_us_per_poll": "CPU µs/fetch without a session",
    "stable_s": "all stable after, s",
    "stable_848_s": "with KIP-848, s",
    "created_s": "made after, s",
    "visible_s": "leaders visible after, s",
    "lag_p99_ms": "loop lag p99 ms",
    "machine_lag_p99_ms": "the machine's own p99 ms",
    "topics_s": "all of them, s",
    "restart_s": "first answer after kill -9, s",
    "interval_p50_ms": "p50 ms, flush=interval",
    "interval_cpu_us_per_message_settled": "CPU µs/message, flush=interval",
    "usable_s": "usable after, s",
    "group_s": "one member has all after, s",
    "takeover_s": "the other has all after its close, s",
    "takeover_killed_s": "another has all after, s",
    "lost": "acked and lost",
    "interval_lost": "acked and lost, flush=interval",
}

Result = dict


def numbers(results: Path = RESULTS) -> str:
    """The newest runs of benchmarks/run.py that measured a real server as well, one table each."""
    tables = [_beside(peer, *run) for peer in PEERS for run in newest_runs(results, peer)]
    return "\n\n".join(tables) or NONE


def _beside(peer: str, path: Path, result: Result, rows: list[Result]) -> str:
    also, name = BESIDE.get(peer, ("", ""))
    columns = [peer, also] if any(also in row["median"] for row in rows) else [peer]
    head = [PEERS[peer], name][: len(columns)]
    lines = [line for row in rows for line in _row(row, [*columns, TRILOGUE])]
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return "\n\n".join(
        [
            table(("load", "figure", *head, "Trilogue"), lines),
            _gates(rows),
            _conditions(result, peer)
            + f" File: [{path.name}](../../{shown}). Measured by `{_command(peer, result, rows)}`.",
        ]
    )


FIGURES = (
    ("pipelined-singles", "single messages, pipelined", "requests_per_s", "requests/s"),
    ("fifty-connections", "50 connections", "requests_per_s", "requests/s"),
    ("sustained-1KiB", "sustained load of 1 KiB", "messages_per_s", "messages/s"),
    ("consume-1KiB", "consume 1 KiB from the start", "messages_per_s", "messages/s"),
    ("restart", "first answer after kill -9", "restart_s", "s"),
    ("start-and-idle", "idle memory", "idle_mb", "MB"),
)
"""Rows of the README: load, label, figure, unit."""


def figures(results: Path = RESULTS) -> str:
    """The few rows of the README, from the newest run beside Kafka that has all of them."""
    names = {name for name, *_ in FIGURES}
    runs = (
        (result, {row["name"]: row["median"] for row in result["rows"] if is_beside(KAFKA, row)})
        for _, result in _newest_first(results)
    )
    found = next(((result, rows) for result, rows in runs if names <= rows.keys()), None)
    if found is None:
        return NONE
    result, by_name = found
    columns = (KAFKA, KAFKA_DEFAULT, TRILOGUE)
    lines = [
        (
            f"{label}, {unit}",
            *(_number(by_name[name].get(each, {}).get(key)) for each in columns),
        )
        for name, label, key, unit in FIGURES
    ]
    head = ("", "Kafka with fsync", "Kafka default", "Trilogue (fsync)")
    return f"{table(head, lines)}\n\n{_conditions(result, KAFKA)}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _newest_first(results: Path) -> list[tuple[Path, Result]]:
    """All results, by date and not by name; files of other questions are passed over."""
    files = []
    for path in results.glob("*.json"):
        result = json.loads(path.read_text())
        if isinstance(result, dict) and isinstance(result.get("rows"), list):
            files.append((result["date"], path.name, path, result))
    return [each[2:] for each in sorted(files, key=lambda each: each[:2], reverse=True)]


def newest_runs(results: Path, peer: str) -> list[tuple[Path, Result, list[Result]]]:
    """The runs beside a server, the newest first, each with the rows that no newer one has.

    A run beside another version of the server has rows of its own. Rows that were given up are
    passed over.
    """
    runs = []
    left: dict[str, set[str]] = {}
    for path, result in _newest_first(results):
        names = left.setdefault(result["versions"].get(peer, ""), set(NAMES[peer]))
        rows = [row for row in result["rows"] if row["name"] in names and is_beside(peer, row)]
        if any(peer in row["median"] for row in rows):
            runs.append((path, result, rows))
            names -= {row["name"] for row in rows}
    return runs


def _command(peer: str, result: Result, rows: list[Result]) -> str:
    names = [row["name"] for row in rows]
    chosen = f" --rows {','.join(names)}" if len(names) < len(NAMES[peer]) / 2 else ""
    version = result["versions"].get(peer)
    if peer == KAFKA and version != KAFKA_VERSION:
        chosen += f" --kafka-version {version}"
    return f"{RUN} --only {peer}{chosen}"


def is_beside(peer: str, row: Result) -> bool:
    """Whether a row has our figures beside those of this server; some rows we have alone."""
    ran = set(row["median"])
    return {peer, TRILOGUE} <= ran or (peer == KAFKA and row["name"] in OURS)


def _row(row: dict, names: list[str]) -> list[tuple[str, ...]]:
    medians = [row["median"].get(name, {}) for name in names]
    lines = []
    for key in WANTED:
        if key in medians[-1]:
            label, digits = SHOWN[key]
            cells = [f"{one[key]:,.{digits}f}" if key in one else "" for one in medians]
            lines.append(("" if lines else row["name"], LABELS.get(key, label), *cells))
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


def _conditions(result: dict, peer: str) -> str:
    machine, versions = result["machine"], result["versions"]
    durability = DURABILITY if peer == TUBEMQ else result["durability"]
    return (
        f"{result['date'][:10]}; {machine['cpus']} cores ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB, {machine['file_system']}, Python {machine['python']}; "
        f"{PEERS[peer]} {versions[peer]}; {durability}; "
        + (f"medians of {result['rounds']} rounds." if result["rounds"] > 1 else "one round.")
    )
