"""The result of a run: a file with everything, and a table with the main figures."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections.abc import Iterable
from pathlib import Path

from benchmarks.gates import TRILOGUE, Figures, Gate, Medians
from benchmarks.measure import machine

RESULTS = Path(__file__).parent / "results"
SHOWN = {
    "requests_per_s": ("requests/s", 0),
    "commits_per_s": ("commits/s", 0),
    "handshakes_per_s": ("handshakes/s", 0),
    "messages_per_s": ("messages/s", 0),
    "mb_per_s": ("MB/s", 1),
    "compacted_mb_per_s": ("MB/s compacted", 1),
    "cpu_ms_per_mb": ("CPU ms/MB compacted", 2),
    "plain_messages_per_s": ("messages/s, no transactions", 0),
    "share_of_plain": ("  share of that", 2),
    "p50_ms": ("p50 ms", 3),
    "p99_ms": ("p99 ms", 3),
    "disk_p50_ms": ("disk's own p50 ms", 3),
    "disk_mb_per_s": ("disk's own synced MB/s", 0),
    "quiet_p99_ms": ("p99 ms, no compaction", 3),
    "cpu_us_per_request": ("CPU us/request", 2),
    "cpu_us_per_request_settled": ("  with settling", 2),
    "cpu_us_per_message": ("CPU us/message", 3),
    "cpu_us_per_message_settled": ("  with settling", 3),
    "syncs_per_request": ("syncs/request", 3),
    "written_per_byte": ("bytes written/byte acked", 2),
    "topics_s": ("all of them s", 3),
    "stable_s": ("all stable s", 2),
    "stable_848_s": ("  with KIP-848 s", 2),
    "created_s": ("made s", 3),
    "visible_s": ("  leaders visible s", 3),
    "cpu_ms": ("  CPU ms", 0),
    "polls_per_s": ("fetches/s, in a session", 0),
    "cpu_us_per_poll": ("  CPU us/fetch", 1),
    "full_polls_per_s": ("fetches/s, without", 0),
    "full_cpu_us_per_poll": ("  CPU us/fetch", 1),
    "lag_p50_ms": ("loop lag p50 ms", 2),
    "lag_p99_ms": ("  p99 ms", 2),
    "machine_lag_p99_ms": ("  machine's own p99 ms", 2),
    "lag_max_ms": ("  max ms", 2),
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
    """One row of the file; gates are judged when those ran that they are about."""
    medians = {server: median(rounds) for server, rounds in legs.items()}
    row: dict[str, object] = {"name": name, "question": question, "median": medians}
    row["rounds"] = {
        server: [{key: round(value, 5) for key, value in leg.items()} for leg in rounds]
        for server, rounds in legs.items()
    }
    row["gates"] = []
    for gate in gates:
        if gate.can_be_judged(medians):
            got = gate.value(medians)
            row["gates"].append(
                {"label": gate.label, "got": round(got, 4), "wanted": round(gate.wanted, 4),
                 "passed": gate.passed(got)}
            )  # fmt: skip
    return row


def table(rows: list[dict[str, object]]) -> str:
    """What is printed at the end: a column for each server, and ours as a share of each other."""
    lines = []
    for row in rows:
        lines += [f"\n{row['name']}: {row['question']}", *figures_of(row["median"])]
        lines += [
            f"    {'PASSED' if gate['passed'] else 'MISSED'}  {gate['label']}: {gate['got']:.3f}"
            for gate in row["gates"]
        ]
    return "\n".join(lines)


def figures_of(medians: Medians) -> list[str]:
    others = [name for name in medians if name != TRILOGUE]
    names = [name for name in (*others, TRILOGUE) if name in medians]
    lines = [
        f"  {'':32}"
        + "".join(f"{name:>15}" for name in names)
        + "".join(f"{'/ ' + name:>17}" for name in others)
    ]
    for key, (label, digits) in SHOWN.items():
        values = [medians[name].get(key) for name in names]
        if all(value is None for value in values):
            continue
        cells = ["-" if value is None else f"{value:,.{digits}f}" for value in values]
        ours = medians.get(TRILOGUE, {}).get(key)
        shares = [
            "" if ours is None or not value else f"{ours / value:.2f}"
            for value in values[: len(others)]
        ]
        lines.append(
            f"  {label:32}"
            + "".join(f"{cell:>15}" for cell in cells)
            + "".join(f"{share:>17}" for share in shares)
        )
    return lines


def save_rows(folder: Path, versions: dict[str, str], rounds: int, rows: list[object]) -> Path:
    """Save the rows of a program of its own, with the machine and what ran beside."""
    return save(
        {
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": machine(folder),
            "versions": versions,
            "rounds": rounds,
            "rows": rows,
        }
    )


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
