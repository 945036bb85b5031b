"""The shape of a row beside a real Kafka, and how a leg of it is metered.

A leg (one row on one server, once) gives a flat dictionary of figures. CPU is that of the server's
whole process tree, divided by requests or messages; "settled" adds what it still did after the
load ended (flushing, compacting), because put-off work is work.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.drivers import Drivers, Result
from benchmarks.gates import KAFKA, KAFKA_DEFAULT, TRILOGUE, Figures, Gate
from benchmarks.measure import Meter, settle
from benchmarks.servers import Contender, create_topic, stored_messages

ALL = (KAFKA, KAFKA_DEFAULT, TRILOGUE)
SHORT_S = 2.0
SUMS = {"messages", "messages_in_all", "requests", "bytes", "seconds", "driver_cpu_s"}


@dataclass
class Stage:
    """What a leg runs on."""

    drivers: Drivers
    servers: Sequence[Contender]
    scratch: Path
    seconds: float
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def settle(self) -> None:
        """Wait until all servers are idle and the page cache is written to disk."""
        os.sync()
        settle([server.pid for server in self.servers])

    def at_least(self, seconds: float) -> float:
        """So long, unless everything is to be short: a run that only looks whether it works."""
        return self.seconds if self.seconds < SHORT_S else max(seconds, self.seconds)

    def fresh_topic(self, stem: str, server: Contender, partitions: int) -> str:
        """Make a topic that no leg has used."""
        topic = f"{stem}-{next(self.numbers)}"
        create_topic(server.address, topic, partitions)
        return topic


class Settling(Protocol):
    """A stage that knows how to wait until its servers are quiet."""

    def settle(self) -> None: ...


@dataclass(frozen=True)
class Row:
    """One question. Without partitions its legs make what they want themselves."""

    name: str
    question: str
    topic: str
    partitions: int
    leg: Callable[[Stage, Contender], Figures]
    gates: tuple[Gate, ...] = ()
    syncs: Callable[[Stage, Contender], Figures] | None = None
    fill: Callable[[Stage, Contender], None] | None = None
    warm: Callable[[Stage, Contender], None] | None = None
    rounds_max: int = 9
    servers: tuple[str, ...] = ALL

    def prepare(self, stage: Stage, server: Contender) -> None:
        """Make the topic, and what is going to be read."""
        if self.partitions:
            create_topic(server.address, self.topic, self.partitions)
        if self.fill:
            self.fill(stage, server)
        if self.warm:
            self.warm(stage, server)

    def check(self, server: Contender, legs: list[Figures]) -> None:
        """What was acked or read must be there: a server that drops is not fast."""
        if self.partitions:
            moved = [leg.get("messages", 0) for leg in legs]
            wanted = max(moved) if self.fill else sum(moved)
            check_stored(server, self.topic, self.partitions, wanted)


def check_stored(server: Contender, topic: str, partitions: int, wanted: float) -> None:
    stored = stored_messages(server.address, topic, partitions)
    if stored < wanted:
        raise RuntimeError(f"{topic}: {server.name} has {stored} of {wanted:.0f} messages")


def metered(stage: Settling, server: Contender, drive: Callable[..., Result], unit: str) -> Figures:
    """Run a driver between two readings of the server's counters, and one more when it is quiet."""
    meters: list[Meter] = []
    costs = []

    def begin() -> None:
        meters.append(Meter(server.pid))

    def end() -> None:
        costs.append(meters[0].read())

    stage.settle()
    result = drive(begin=begin, end=end)
    stage.settle()
    cost = costs[0]
    cost.settling_cpu_s = meters[0].read().cpu_s - cost.cpu_s
    count = result["messages"] if unit == "message" else result["requests"]
    in_all = result.get("messages_in_all", count)
    figures = {key: value for key, value in result.items() if key not in {"errors", "bytes"}}
    figures[f"cpu_us_per_{unit}"] = cost.cpu_s / count * 1e6
    figures[f"cpu_us_per_{unit}_settled"] = cost.whole_cpu_s / in_all * 1e6
    figures["cpu_share"] = cost.cpu_s / result["seconds"]
    figures["written_per_byte"] = cost.written_bytes / result["bytes"]
    return figures


def together(legs: Sequence[Figures]) -> Figures:
    """Several short measurements as one: sums, recomputed rates, the rest weighed by messages."""
    messages = sum(leg["messages"] for leg in legs)
    whole = {
        key: sum(leg[key] for leg in legs)
        if key in SUMS
        else sum(leg[key] * leg["messages"] for leg in legs) / messages
        for key in legs[0]
    }
    size = legs[0]["mb_per_s"] / legs[0]["messages_per_s"]
    whole["messages_per_s"] = messages / whole["seconds"]
    whole["mb_per_s"] = whole["messages_per_s"] * size
    return whole
