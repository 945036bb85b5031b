"""How many bytes go to segments for each byte acknowledged, merges included?

Three loads, each on a fresh node: small entries over very many partitions (where footers weigh
most), usual batches, large entries. Each goes on until there were enough flushes for merges to
come; then everything that is due is waited for. The journal is counted apart. Syncs are counted in
a short leg under strace, where there is one.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from benchmarks.log.loads import Load, drained, merged
from benchmarks.log.world import Figures, fresh, make_partitions, node_on, report_line, run, sample
from benchmarks.measure import counted_syncs, have_strace, syncs_in
from trilogue.node.node import Node

FLUSHES = 24  # what comes is merged by eights and fewer, so there is a second merge as well
LIMIT_S = 40.0
LOADS = {
    "100 B over 10,000 partitions": (100, 10_000),
    "1 KiB over 100 partitions": (1 << 10, 100),
    "64 KiB over 4 partitions": (64 << 10, 4),
}


async def press(folder: Path, size: int, partitions: int) -> Figures:
    """One load to its end."""
    loop = asyncio.get_running_loop()
    async with node_on(fresh(folder / "writes") / "data", flush__rate=0) as node:
        logs = await make_partitions(node, partitions)
        load = Load(node.storage.log, logs, sample(size))
        flusher, counts = node.flusher.counts, node.storage.log.journal.counts
        began = loop.time()
        load.flood()
        while flusher.flushes < FLUSHES and loop.time() - began < LIMIT_S:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        load.stop()
        await load.finish()
        await drained(node)
        await merged(node)
        acked = load.acked * size
        merges = sum(each.written_bytes for each in node.maintenance.counts.values())
        figures = {
            "segments_per_byte": (flusher.written_bytes + merges) / flusher.data_bytes,
            "flush_per_byte": flusher.written_bytes / flusher.data_bytes,
            "merge_per_byte": merges / flusher.data_bytes,
            "journal_per_byte": counts.bytes_written / acked,
            "acked_mb": acked / 1e6,
            "flushes": flusher.flushes,
            "merges": sum(each.jobs for each in node.maintenance.counts.values()),
            "segments": len(node.storage.log.segments),
        }
        if have_strace():
            figures |= await syncs(folder, node, load)
        return figures


async def syncs(folder: Path, node: Node, load: Load) -> Figures:
    """Sync calls of the whole process tree, beside the commits that the journal counts."""
    counts = node.storage.log.journal.counts
    before, acked = counts.commits, load.acked
    with counted_syncs(os.getpid(), folder / "syncs"):
        load.restart()
        load.flood()
        await asyncio.sleep(1.0)
        load.stop()
        await load.finish()
        await drained(node)
    commits = counts.commits - before
    return {
        "syncs_per_commit": syncs_in(folder / "syncs") / commits,
        "entries_per_sync": (load.acked - acked) / max(1, syncs_in(folder / "syncs")),
    }


def writes(folder: Path) -> dict[str, Figures]:
    """All loads."""
    found: dict[str, Figures] = {}
    for name, (size, partitions) in LOADS.items():
        found[name] = run(lambda size=size, count=partitions: press(folder, size, count))
        report_line(f"writes: {name}: {found[name]['segments_per_byte']:.2f}")
    fresh(folder / "writes")
    return found
