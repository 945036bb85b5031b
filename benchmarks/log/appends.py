"""How fast does the log make entries durable, and what does a flush beside it cost?

    durable appends   entries of 100 B, 1 KiB, 64 KiB over 1, 100 and 10,000 partitions; one in
                      flight, and a flood; each without flush and with the flush running
    large windows     a flood of 64 KiB and 1 MiB entries: what the disk gives is the gate's measure
    beside a flush    a steady load that keeps the flush busy, and one lone entry at a time whose
                      latency is taken: with the flush, and with the flush replaced by letting go

Two nodes on the same disk, one with its flush and one without, are pressed in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.log import limits
from benchmarks.log.loads import Load, leg
from benchmarks.log.world import (
    Figures,
    fresh,
    make_partitions,
    medians,
    never_flush,
    node_on,
    report_line,
    run,
    sample,
)
from trilogue.log.partition_log import PartitionLog
from trilogue.node import garbage_collector as collector
from trilogue.node.node import Node

SIZES = (100, 1 << 10, 64 << 10)
PARTITIONS = (1, 100, 10_000)
LIMITS = (100, 1 << 10, 64 << 10, 1 << 20, 8 << 20)
QUIET, FLUSHING = "without flush", "with flush"


@dataclass(frozen=True)
class Case:
    """One load on both nodes."""

    name: str
    size: int
    partitions: int
    start: Callable[[Load], object]
    probe: int | None = None


def cases() -> list[Case]:
    """All loads, in the order they are run."""
    found = [
        Case(f"one in flight, {text(size)}, {count} partitions", size, count, Load.lone)
        for size in SIZES
        for count in (1, 10_000)
    ]
    found += [
        Case(f"flood, {text(size)}, {count} partitions", size, count, Load.flood)
        for size in SIZES
        for count in PARTITIONS
    ]
    found.append(Case("flood, 1 MiB, 4 partitions", 1 << 20, 4, Load.flood))
    found += [
        Case(
            f"beside {rate >> 20} MiB/s of {text(size)}",
            size,
            100,
            lambda load, rate=rate: load.paced(rate),
            probe=100,
        )
        for size, rate in ((1 << 10, 40 << 20), (64 << 10, 200 << 20))
    ]
    return found


async def measure(folder: Path, rounds: int, seconds: float) -> dict[str, object]:
    """All cases, each round: limits, then both nodes."""
    found: dict[str, dict[str, list[Figures]]] = {case.name: {} for case in cases()}
    disk: dict[str, list[Figures]] = {}
    async with AsyncExitStack() as stack:
        nodes: dict[str, Node] = {}
        places: dict[str, dict[int, list[PartitionLog]]] = {}
        for name in (QUIET, FLUSHING):
            data = fresh(folder / name.replace(" ", "-"))
            nodes[name] = await stack.enter_async_context(node_on(data))
            places[name] = {
                count: await make_partitions(nodes[name], count, f"t{count}")
                for count in (1, 4, 100, 10_000)
            }
        never_flush(nodes[QUIET])
        collector.configure()
        for number in range(rounds):
            for size, kind in product(LIMITS, (limits.plain, limits.best)):
                figures = kind(folder, size, seconds / 4)
                disk.setdefault(f"{kind.__name__} {text(size)}", []).append(figures)
            for case in cases():
                for name in (QUIET, FLUSHING)[:: 1 if number % 2 else -1]:
                    if case.start is Load.lone and name == FLUSHING:
                        continue  # it hardly ever flushes
                    found[case.name].setdefault(name, []).append(
                        await press(nodes[name], places[name][case.partitions], case, seconds)
                    )
            report_line(f"appends: round {number + 1} of {rounds}")
    return {
        "limits": {name: medians(legs) for name, legs in disk.items()},
        "cases": {
            name: {kind: medians(legs) for kind, legs in kinds.items()}
            for name, kinds in found.items()
        },
        "rounds": found,
    }


async def press(node: Node, partitions: list[PartitionLog], case: Case, seconds: float) -> Figures:
    """One leg."""
    probe = sample(case.probe) if case.probe else None
    entry = sample(case.size)
    return await leg(node, partitions, entry, seconds, start=case.start, probe=probe)


def appends(folder: Path, rounds: int, seconds: float) -> dict[str, object]:
    """Run it all on one loop."""
    return run(lambda: measure(folder, rounds, seconds))


def text(size: int) -> str:
    """A size as people write it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"
