"""How long does a start take with 10^8 messages in segments?

The data are made by the log itself: entries of 500 messages each are appended, made durable and
flushed (and merged) like any others. That takes a minute, so they are kept in a folder that may be
named; what was made with other figures is made again. Measured twice: a fresh process up to the
moment `Node.start` returns, page cache dropped, and a whole server from exec to its first answer.

    python -m benchmarks.log.starts build FOLDER MESSAGES PARTITIONS
    python -m benchmarks.log.starts open FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.log import limits
from benchmarks.log.loads import Load, drained
from benchmarks.log.world import (
    Figures,
    all_partitions,
    elsewhere,
    fresh,
    make_topic,
    medians,
    node_on,
    report_line,
    run,
    sample,
)
from benchmarks.measure import cpu_seconds
from benchmarks.servers import Trilogue

MESSAGES = 100_000_000
A_BATCH = 500
ENTRY_BYTES = 10_000  # 20 bytes a message: what a start does not read does not matter
PARTITIONS = (12, 1_000)
MODULE = "benchmarks.log.starts"
RECIPE = {"messages": MESSAGES, "batch": A_BATCH, "entry": ENTRY_BYTES, "version": 1}


async def build(folder: Path, messages: int, partitions: int) -> None:
    """Append, flush, close in order."""
    async with node_on(folder, flush__rate=0) as node:
        logs = await make_topic(node, "kept", partitions)
        entry = sample(ENTRY_BYTES, A_BATCH)
        assert entry.header.last_offset_delta + 1 == A_BATCH
        load = Load(node.storage.log, logs, entry)
        wanted = messages // A_BATCH
        await load.feed(wanted, 400)
        await drained(node)
        stored = sum(each.high_watermark for each in logs)
        assert stored == wanted * A_BATCH, stored
    print(json.dumps({"messages": stored}), flush=True)


def forget_all(folder: Path) -> None:
    """Push everything out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            limits.forget(path)


async def open_it(folder: Path) -> None:
    """Start on it, cold."""
    forget_all(folder)
    began, cpu = time.perf_counter(), time.process_time()
    async with node_on(folder) as node:
        took = time.perf_counter() - began
        cpu = time.process_time() - cpu
        logs = node.storage.log
        messages = sum(each.high_watermark for each in all_partitions(node))
        print(
            json.dumps(
                {
                    "open_s": took,
                    "open_cpu_s": cpu,
                    "messages": messages,
                    "segments": len(logs.segments),
                }
            ),
            flush=True,
        )
        os._exit(0)


def data_of(folder: Path, partitions: int) -> Path:
    """The data for so many partitions, made now if they are not there."""
    place = folder / f"start-{partitions}"
    recipe = place / "recipe.json"
    if not recipe.exists() or json.loads(recipe.read_text()) != RECIPE:
        report_line(f"start: making {MESSAGES:,} messages in {partitions} partitions")
        began = time.monotonic()
        elsewhere(MODULE, "build", fresh(place) / "data", MESSAGES, partitions)
        recipe.write_text(json.dumps(RECIPE))
        report_line(f"start: made in {time.monotonic() - began:.0f} s")
    return place


def starts(folder: Path, rounds: int) -> dict[str, Figures]:
    """Both numbers of partitions."""
    found: dict[str, Figures] = {}
    for partitions in PARTITIONS:
        place = data_of(folder, partitions)
        legs = []
        for _ in range(rounds):
            leg = elsewhere(MODULE, "open", place / "data")
            server = Trilogue(place)
            server.start()
            leg["exec_to_answer_s"] = server.started_in
            leg["exec_cpu_s"] = cpu_seconds(server.pid)
            server.kill9()
            server.start()
            leg["after_kill_s"] = server.started_in
            assert server.stop() == 0
            legs.append(leg)
        name = f"{MESSAGES:,} messages, {partitions} partitions"
        found[name] = medians(legs)
        report_line(f"start: {name}: {found[name]['exec_to_answer_s']:.2f} s to the first answer")
    return found


def main() -> None:
    folder = Path(sys.argv[2])
    if sys.argv[1] == "build":
        run(lambda: build(folder, int(sys.argv[3]), int(sys.argv[4])))
    else:
        run(lambda: open_it(folder))


if __name__ == "__main__":
    main()
