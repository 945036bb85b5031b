"""Trilogue beside a real Pulsar: the rows of `python -m benchmarks.run --only pulsar`.

The driver is Pulsar's own Java client (drivers/PulsarLoad.java), the same for both. The real server
syncs its journal before each ack (journalSyncData), as Trilogue does by default, and is warmed
under load before measuring. Both run all the time and are loaded in turn. What was acked
is read back and counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.servers.java import jars
from tools.servers.pulsar import VERSION, RealPulsar, opens_producer

from benchmarks import report
from benchmarks.drivers import compile_java
from benchmarks.gates import (
    CPU_PER_MESSAGE,
    TRILOGUE,
    Figures,
    Gate,
    at_least,
    at_most,
    below,
)
from benchmarks.java import Stage
from benchmarks.measure import memory_mb, settle
from benchmarks.servers import Contender, Trilogue

PULSAR = "pulsar"
DRIVER = "PulsarLoad"
HEAP, DIRECT = "2g", "4g"
PROBED_TOPIC = b"persistent://public/default/probe"


class Ours(Trilogue):
    """`started_in` counts from the exec to the first producer, as for the other."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, doors=("pulsar",))

    @property
    def address(self) -> str:
        return self.doors["pulsar"]

    def answers(self) -> bool:
        try:
            return opens_producer(self.address, PROBED_TOPIC)
        except OSError:
            return False


def make(name: str, root: Path) -> Contender:
    root.mkdir(parents=True, exist_ok=True)
    if name == TRILOGUE:
        return Ours(root)
    return RealPulsar(root, durable=True, heap=HEAP, direct=DIRECT, nice=False)


@dataclass(frozen=True)
class Row:
    """One question."""

    name: str
    question: str
    mode: str
    options: dict[str, float]
    gates: tuple[Gate, ...] = ()
    counted: bool = True
    domain: str = "persistent"

    def leg(self, stage: Stage[Contender], server: Contender, number: int) -> Figures:
        topic = f"{self.domain}://public/default/{self.name}-{number}"
        figures = stage.measured(self.mode, server, topic, self.options)
        if self.counted:
            stage.drive("count", server, topic, wanted=figures["stored"])
        return figures


COMMIT_GATES = (
    at_least("2x Pulsar's commits/s", "messages_per_s", 2.0, PULSAR),
    at_most("its p99", "p99_ms", 1.0, PULSAR),
    at_most("half its CPU/commit", CPU_PER_MESSAGE, 0.5, PULSAR),
)
AS_GOOD = (
    at_least("Pulsar's messages/s", "messages_per_s", 1.0, PULSAR),
    at_most("its CPU/message", CPU_PER_MESSAGE, 1.0, PULSAR),
)
UNBATCHED = {"size": 100, "outstanding": 1000}
ROWS = (
    Row(
        "pulsar-unbatched-100B",
        "One producer, 100 B messages one by one, 1,000 on their way.",
        "produce",
        UNBATCHED,
        (at_most("0.5x Pulsar's CPU/message", CPU_PER_MESSAGE, 0.5, PULSAR),),
    ),
    Row(
        "pulsar-unbatched-few",
        "The same with 10 on their way: what one commit carries is little.",
        "produce",
        {**UNBATCHED, "outstanding": 10},
        (at_most("0.4x Pulsar's CPU/message", CPU_PER_MESSAGE, 0.4, PULSAR),),
    ),
    Row(
        "pulsar-batched-100B",
        "The same in batches of the client's.",
        "produce",
        {**UNBATCHED, "batching": 1},
        AS_GOOD,
    ),
    Row(
        "pulsar-batched-1KiB",
        "The same with messages of 1 KiB.",
        "produce",
        {"size": 1024, "outstanding": 1000, "batching": 1},
        AS_GOOD,
    ),
    Row(
        "pulsar-one-in-flight",
        "How long does one durable 100 B message take, nothing else going on?",
        "produce",
        {"size": 100, "outstanding": 1},
        (below("p50 <= 0.5 ms", "p50_ms", 0.5),),
    ),
    Row(
        "pulsar-through",
        "From the producer's call to the consumer's, 1,000 messages/s of 100 B, not batched.",
        "through",
        {"size": 100, "rate": 1000},
        (below("p99 <= 15 ms", "p99_ms", 15.0),),
        counted=False,
    ),
    Row(
        "pulsar-shared-100B",
        "Four consumers of a Shared subscription take 200,000 messages of batches and ack each.",
        "shared",
        {"size": 100, "messages": 200_000, "consumers": 4},
        AS_GOOD,
        counted=False,
    ),
    Row(
        "pulsar-non-persistent-100B",
        "One producer on a topic that is not persistent, 100 B one by one, 1,000 on their way.",
        "produce",
        UNBATCHED,
        AS_GOOD,
        counted=False,
        domain="non-persistent",
    ),
    *(
        Row(
            f"pulsar-commits-{count}",
            f"{count} transactions open at once, each of one message of 100 B: time of a commit, "
            "CPU of the server for a whole transaction.",
            "commits",
            {"size": 100, "open": count},
            COMMIT_GATES if count == 1 else (),
        )
        for count in (1, 10, 100)
    ),
    Row(
        "pulsar-500-topics",
        "A producer on each of 500 new topics, one after the other.",
        "topics",
        {"count": 500},
        (below("<= 1 s", "topics_s", 1.0),),
        counted=False,
    ),
)
WARMING: tuple[dict[str, float], ...] = (
    UNBATCHED,
    {**UNBATCHED, "batching": 1},
    {"size": 100, "outstanding": 1},
)
START = "pulsar-start-and-idle"
START_GATES = (
    below("start <= 0.8 s", "start_s", 0.8),
    below("idle <= 120 MB", "idle_mb", 120.0),
)
NAMES = (START, *(row.name for row in ROWS))


def start_row(servers: list[Contender]) -> dict[str, object]:
    """Of the servers that are measured afterwards, on their fresh data."""
    legs: report.Legs = {}
    for server in servers:
        server.start()
        settle([server.pid])
        time.sleep(1)
        legs[server.name] = [{"start_s": server.started_in, "idle_mb": memory_mb(server.pid)}]
    question = "From exec to the first producer on fresh data; memory of the idle process tree."
    return report.summarise(START, question, legs, START_GATES)


def measure(stage: Stage[Contender], row: Row, rounds: int) -> dict[str, object]:
    legs = stage.in_turn(lambda server, number: row.leg(stage, server, number), rounds)
    return report.summarise(row.name, row.question, legs, row.gates)


def run(chosen: argparse.Namespace, build: Path, done: Callable[[dict[str, object]], None]) -> None:
    """Measure all requested rows; each is passed to `done` when it is there."""
    wanted = chosen.rows.split(",")
    if not set(NAMES) & set(wanted):
        return
    names = [TRILOGUE] if chosen.ours else [PULSAR, TRILOGUE]
    servers = [make(name, chosen.directory / f"pulsar-{name}") for name in names]
    client = f"{jars(f'pulsar-{VERSION}')}/*"
    path: list[object] = [compile_java(DRIVER, build, client), client]
    try:
        started = start_row(servers)
        if START in wanted:
            done(started)
        stage = Stage(DRIVER, path, servers, chosen.seconds, min(4.0, chosen.warm / 4))
        stage.warm(WARMING, chosen.warm)
        for row in ROWS:
            if row.name in wanted:
                done(measure(stage, row, chosen.pulsar_rounds))
    finally:
        for server in servers:
            server.kill9()
