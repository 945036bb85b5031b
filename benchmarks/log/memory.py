"""What does a partition cost in memory, and an entry?

10,000 partitions in ten topics, one message of 100 B in each; then 500,000 entries of 100 B in 100
partitions. Counted is the process's own memory (proportional set size) before and after, with the
garbage collected, everything included: topic, partition, tail, index, window, meta's rows. A second
run of the same shows by `tracemalloc` which lines of Trilogue hold it.

    python -m benchmarks.log.memory partitions|entries FOLDER measure|trace
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tracemalloc
from pathlib import Path

from benchmarks.log.loads import Load
from benchmarks.log.world import (
    elsewhere,
    fresh,
    make_partitions,
    make_topic,
    node_on,
    report_line,
    run,
    sample,
)
from trilogue.node import garbage_collector as collector

PARTITIONS, ENTRIES, ENTRY_BYTES = 10_000, 500_000, 100
WARM = 1_000  # partitions before, so that what exists once is not counted
ROOM = {
    "tail__limit": "1GiB",
    "tail__entries": 2_000_000,
    "journal__file_entries": 1_000_000,
}
SHOWN = 40
MODULE = "benchmarks.log.memory"


def own_bytes() -> float:
    """Memory of this process alone, in proportion where it is shared."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


async def partitions(folder: Path, *, trace: bool) -> dict[str, object]:
    """Bytes a partition: made, and with one small message."""
    async with node_on(folder, **ROOM) as node:
        warm = await make_partitions(node, WARM)
        entry = sample(ENTRY_BYTES)
        await load_all(node, warm, entry, len(warm))
        begin(trace)
        before = own_bytes()
        logs = await make_partitions(node, PARTITIONS, "counted")
        made = own_bytes()
        await load_all(node, logs, entry, PARTITIONS)
        after = own_bytes()
        return {
            "empty_bytes": (made - before) / PARTITIONS,
            "one_message_bytes": (after - before) / PARTITIONS,
            "places": places(PARTITIONS) if trace else [],
        }


async def entries(folder: Path, *, trace: bool) -> dict[str, object]:
    """Bytes an entry."""
    async with node_on(folder, **ROOM) as node:
        node.storage.log.on_sealed = lambda _: None  # no flush
        logs = await make_topic(node, "small", 100)
        entry = sample(ENTRY_BYTES)
        await load_all(node, logs, entry, 1000)
        begin(trace)
        before = own_bytes()
        await load_all(node, logs, entry, ENTRIES)
        after = own_bytes()
        return {
            "entry_bytes": (after - before) / ENTRIES,
            "stored_bytes": ENTRY_BYTES,
            "places": places(ENTRIES) if trace else [],
        }


async def load_all(node, logs, entry, count: int) -> None:
    await Load(node.storage.log, logs, entry).feed(count, 500)


def begin(trace: bool) -> None:
    collector.configure()
    if trace:
        tracemalloc.start(1)


def places(count: int) -> list[tuple[str, float]]:
    """The lines that hold most, in bytes a partition or entry."""
    taken = tracemalloc.take_snapshot().statistics("lineno")
    found = []
    for each in taken[:SHOWN]:
        frame = each.traceback[0]
        name = "/".join(Path(frame.filename).parts[-2:])
        found.append((f"{name}:{frame.lineno}", round(each.size / count, 1)))
    return found


def memory(folder: Path, rounds: int) -> dict[str, dict[str, object]]:
    """Both questions: medians, and the places of one more run."""
    found: dict[str, dict[str, object]] = {}
    for kind in ("partitions", "entries"):
        legs = [
            elsewhere(MODULE, kind, fresh(folder / "memory") / "data", "measure")
            for _ in range(rounds)
        ]
        legs.sort(key=lambda leg: leg.get("one_message_bytes", leg.get("entry_bytes")))
        found[kind] = legs[len(legs) // 2]
        traced = elsewhere(MODULE, kind, fresh(folder / "memory") / "data", "trace")
        found[kind]["places"] = traced["places"]
        report_line(f"memory: {kind} done")
    fresh(folder / "memory")
    return found


def main() -> None:
    work = {"partitions": partitions, "entries": entries}[sys.argv[1]]

    async def go() -> None:
        print(json.dumps(await work(Path(sys.argv[2]), trace=sys.argv[3] == "trace")), flush=True)
        os._exit(0)

    run(go)


if __name__ == "__main__":
    main()
