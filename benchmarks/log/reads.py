"""How fast is reading: from memory, from segments, cold and warm?

Entries of 10 KB in 4 partitions; requests of 64 KiB and 1 MiB, one after the other, on the loop
for what is in memory and as a reader thread does it for what is in segments. *Hot* gives out views
without copying, so it is followed by one copy of what was given, as a socket would make. *Cold*
drops the segments from the page cache before each pass and opens them again, so that every block's
checksum is verified; *warm* does neither. Beside them: one copy, and plain `pread`.

    python -m benchmarks.log.reads FOLDER SECONDS
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.log import limits
from benchmarks.log.loads import Load, drained
from benchmarks.log.world import (
    Figures,
    elsewhere,
    fresh,
    make_topic,
    node_on,
    report_line,
    run,
    sample,
)
from trilogue.log.partition_log import PartitionLog, SegmentSlice, TailSlice
from trilogue.node.node import Node

PARTITIONS = 4
ENTRY_BYTES = 10_000
REQUESTS = (64 << 10, 1 << 20)
HOT_BYTES, COLD_BYTES = 48 << 20, 256 << 20
MODULE = "benchmarks.log.reads"


class Reader:
    """Reads whole requests and copies what it gets into one buffer."""

    def __init__(self, logs: list[PartitionLog], request: int) -> None:
        self.logs = logs
        self.request = request
        self.room = memoryview(bytearray(request + ENTRY_BYTES))
        self.got = self.requests = 0

    def read(self, log: PartitionLog, offset: int) -> int:
        """One request; how many entries came (each has one message)."""
        found = log.read(offset, self.request)
        if isinstance(found, SegmentSlice):
            data = found.run()
            assert len(data) > 0
            size = len(data)
        else:
            assert isinstance(found, TailSlice)
            size = 0
            for part in found.slices:
                self.room[size : size + len(part)] = part
                size += len(part)
        self.got += size
        self.requests += 1
        return size // ENTRY_BYTES

    def in_order(self) -> None:
        """All of it, partition by partition."""
        for log in self.logs:
            offset = log.start_offset
            while offset < log.high_watermark:
                offset += self.read(log, offset)

    def at_random(self, count: int = 400) -> None:
        """Some requests anywhere."""
        chance = random.Random(1)
        for _ in range(count):
            log = chance.choice(self.logs)
            self.read(log, chance.randrange(log.start_offset, log.high_watermark))


def timed(
    reader: Reader, work: Callable[[], None], seconds: float, before: Callable[[], None]
) -> Figures:
    """Repeat for some seconds; `before` each pass is not counted."""
    spent = cpu = 0.0
    while spent < seconds:
        before()
        began, cpu_began = time.perf_counter(), time.thread_time()
        work()
        spent += time.perf_counter() - began
        cpu += time.thread_time() - cpu_began
    return {
        "gb_per_s": reader.got / spent / 1e9,
        "cpu_s_per_gb": cpu / reader.got * 1e9,
        "us_per_request": spent / reader.requests * 1e6,
    }


def nothing() -> None:
    """Before a pass over what is warm."""


async def measure(folder: Path, seconds: float) -> None:
    found: dict[str, Figures] = {}
    async with node_on(folder) as node:
        logs = await make_topic(node, "read", PARTITIONS)
        await fill(node, logs, COLD_BYTES)
        await drained(node)
        segments = sorted((folder / "segments").glob("*.segment"))

        def forget() -> None:
            node.storage.log.readers.close()
            for path in segments:
                limits.forget(path)

        for request in REQUESTS:
            for kind, before in (("cold", forget), ("warm", nothing)):
                name = f"{kind}, {request >> 10} KiB"
                both_orders(found, name, (logs, request), seconds, before)
                found[f"limit: pread {name}"] = limits.read(
                    segments, request, seconds, cold=kind == "cold"
                )
        for log in logs:
            log.retain_from(log.high_watermark)
        await fill(node, logs, HOT_BYTES)
        for request in REQUESTS:
            both_orders(found, f"hot, {request >> 10} KiB", (logs, request), seconds, nothing)
            found[f"limit: copy, {request >> 10} KiB"] = copying(request, seconds)
    print(json.dumps(found), flush=True)


def both_orders(found, name, reading, seconds, before) -> None:
    for order in (Reader.in_order, Reader.at_random):
        reader = Reader(*reading)
        work = partial(order, reader)
        found[f"{name}, {order.__name__.replace('_', ' ')}"] = timed(reader, work, seconds, before)


async def fill(node: Node, logs: list[PartitionLog], size: int) -> None:
    entry = sample(ENTRY_BYTES)
    await Load(node.storage.log, logs, entry).feed(size // ENTRY_BYTES, 100)


def copying(size: int, seconds: float) -> Figures:
    """One copy of memory that is not in the cache."""
    source, target = memoryview(bytearray(HOT_BYTES)), memoryview(bytearray(size))
    got, began, at = 0, time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        target[:] = source[at : at + size]
        at = (at + size) % (HOT_BYTES - size)
        got += size
    return {"mb_per_s": got / (time.perf_counter() - began) / 1e6}


def reads(folder: Path, seconds: float) -> dict[str, Figures]:
    """All of it, in a fresh process."""
    found = elsewhere(MODULE, fresh(folder / "reads") / "data", seconds)
    fresh(folder / "reads")
    report_line("reads: done")
    return found


if __name__ == "__main__":
    run(lambda: measure(Path(sys.argv[1]), float(sys.argv[2])))
