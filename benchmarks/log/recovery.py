"""How long does a start take that finds a full journal? 64 and 256 MiB, page cache dropped.

A process fills a journal whose files are never flushed, and ends without a word, as if killed. A
fresh process then drops the files from the page cache and opens the data: reading, checking every
frame, copying the last file, and putting every entry back into its partition's tail. Beside it: the
same bytes read cold by plain `pread`.

    python -m benchmarks.log.recovery fill FOLDER MIB ENTRY    (both print one line of JSON)
    python -m benchmarks.log.recovery open FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.log import limits
from benchmarks.log.loads import Load
from benchmarks.log.world import (
    Figures,
    elsewhere,
    fresh,
    make_topic,
    medians,
    node_on,
    report_line,
    run,
    sample,
)

PARTITIONS = 100
ROOM = {"tail__limit": "1GiB", "tail__entries": 2_000_000}
CASES = ((64, 1 << 10), (256, 1 << 10), (256, 16 << 10), (48, 100))  # MiB, bytes an entry
MODULE = "benchmarks.log.recovery"


async def fill(folder: Path, mib: int, size: int) -> None:
    """Append so much, durably, with no flush, and end without closing anything."""
    async with node_on(folder, **ROOM) as node:
        logs = await make_topic(node, "filled", PARTITIONS)
        node.storage.log.on_sealed = lambda _: None
        entry = sample(size)
        load = Load(node.storage.log, logs, entry)
        await load.feed((mib << 20) // size, max(1, min(1000, (4 << 20) // size)))
        print(json.dumps({"entries": load.acked}), flush=True)
        os._exit(0)


async def open_it(folder: Path) -> None:
    """Open it cold and return the time in seconds."""
    for path in (folder / "journal").iterdir():
        limits.forget(path)
    began, cpu = time.perf_counter(), time.process_time()
    async with node_on(folder, **ROOM) as node:
        took = time.perf_counter() - began
        cpu = time.process_time() - cpu
        log = node.storage.log
        assert log.recovered is not None
        print(
            json.dumps(
                {
                    "recovery_s": took,
                    "cpu_s": cpu,
                    "frames": log.recovered.frames,
                    "entries": log.tail_entries,
                    "tail_mib": log.tail_bytes / 2**20,
                }
            ),
            flush=True,
        )
        os._exit(0)


def recovery(folder: Path, rounds: int) -> dict[str, Figures]:
    """All cases."""
    found: dict[str, Figures] = {}
    for mib, size in CASES:
        data = fresh(folder / "recovery") / "data"
        elsewhere(MODULE, "fill", data, mib, size)
        legs = []
        for _ in range(rounds):
            leg = elsewhere(MODULE, "open", data)
            files = sorted((data / "journal").glob("*.journal"))
            leg["limit_read_s"] = (
                sum(path.stat().st_size for path in files)
                / limits.read(files, 1 << 20, 0.01, cold=True)["mb_per_s"]
                / 1e6
            )
            legs.append(leg)
        name = f"{mib} MiB in entries of {size} B"
        found[name] = medians(legs)
        report_line(f"recovery: {name}: {found[name]['recovery_s']:.2f} s")
    fresh(folder / "recovery")
    return found


def main() -> None:
    folder = Path(sys.argv[2])
    if sys.argv[1] == "fill":
        run(lambda: fill(folder, int(sys.argv[3]), int(sys.argv[4])))
    else:
        run(lambda: open_it(folder))


if __name__ == "__main__":
    main()
