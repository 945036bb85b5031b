"""Trilogue beside a real TubeMQ: the rows of `python -m benchmarks.run --only tubemq`.

The driver is TubeMQ's own Java client with its own defaults (drivers/TubeLoad.java), the same for
both, each in the network of its server: the real one has one of its own, since it listens on all
addresses. The real server acknowledges from memory and writes every 1,000 messages or ten seconds;
so Trilogue runs twice, with its default (`trilogue`, an fsync before each ack) and with topics
that are `flush=interval` (`interval`, an ack from memory and an fsync at least every 100 ms).
The real one's master looks for work every ten seconds (its .ini has 30, its code 60), its periods
are its own otherwise. CPU is the broker's process of the real server and all of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tools.servers.java import jars
from tools.servers.tubemq import VERSION, RealTubeMQ, listens

from benchmarks import java, report, servers
from benchmarks.drivers import Result, compile_java
from benchmarks.gates import (
    CPU_PER_MESSAGE,
    TRILOGUE,
    Figures,
    Gate,
    Medians,
    at_least,
    at_most,
    below,
)
from benchmarks.measure import memory_mb, settle
from benchmarks.servers import Trilogue, create_topic

TUBEMQ, INTERVAL = "tubemq", "interval"
DURABILITY = (
    "TubeMQ acks from memory, Trilogue after an fsync, and once more with topics of flush=interval"
)
DRIVER = "TubeLoad"
BALANCE_MS = 10_000
ACKED = 1_000


class Contender(servers.Contender, Protocol):
    """A server under measurement."""

    def inside(self) -> AbstractContextManager[None]: ...
    def create_topics(self, topics: Mapping[str, int]) -> None: ...
    def memory_mb(self) -> float: ...


class Ours(Trilogue):
    """With both endpoints of TubeMQ, and topics of one kind of flush."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(root, doors=("tubemq-master", "tubemq-broker"))
        self.name = name

    @property
    def address(self) -> str:
        return self.doors["tubemq-master"]

    def inside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def create_topics(self, topics: Mapping[str, int]) -> None:
        config = {"flush": "interval"} if self.name == INTERVAL else {}
        for topic, partitions in topics.items():
            create_topic(self.doors["kafka"], topic, partitions, config)

    def answers(self) -> bool:
        return all(listens(int(address.rsplit(":", 1)[1])) for address in self.doors.values())

    def memory_mb(self) -> float:
        return memory_mb(self.pid)


class Real(RealTubeMQ):
    """The real one, with what the benchmark wants to know."""

    def memory_mb(self) -> float:
        return sum(memory_mb(pid) for pid in self.pids)


def make(name: str, root: Path) -> Contender:
    root.mkdir(parents=True, exist_ok=True)
    if name != TUBEMQ:
        return Ours(root, name)
    return Real(
        root,
        master={
            "consumerBalancePeriodMs": BALANCE_MS, "firstBalanceDelayAfterStartMs": BALANCE_MS
        },
        broker={"heartbeatPeriodMs": 8000},
        master_heap="512m", heap="2g", direct="2g", nice=False,
    )  # fmt: skip


class Stage(java.Stage[Contender]):
    """Clients run in the network of their server."""

    def drive(self, mode: str, server: Contender, topic: str, **more: Any) -> Result:
        with server.inside():
            return super().drive(mode, server, topic, **more)


@dataclass(frozen=True)
class Row:
    """One question about messages."""

    name: str
    question: str
    mode: str
    options: dict[str, float]
    gates: tuple[Gate, ...] = ()

    def leg(self, stage: Stage, server: Contender, number: int) -> Figures:
        return stage.measured(self.mode, server, topic_of(self.name, number), self.options)


def topic_of(name: str, number: int) -> str:
    """TubeMQ's topics have no dashes in their names."""
    return f"{name.removeprefix('tubemq-').replace('-', '_')}_{number}"


DURABLE_TIMES, INTERVAL_TIMES, CPU_SHARE = 0.4, 1.5, 0.8
ALONE = {"size": 100, "outstanding": 1}
MANY = {"size": 100, "outstanding": 2000}
WARMING = (MANY, {**MANY, "size": 1024}, ALONE)


def of_interval(key: str) -> Callable[[Medians], float]:
    """Trilogue's figure with flush=interval as a share of TubeMQ's: summarise puts it there."""
    return lambda medians: medians[TRILOGUE][f"{INTERVAL}_{key}"] / medians[TUBEMQ][key]


PRODUCING = (
    at_least("0.4x TubeMQ's messages/s, with fsync", "messages_per_s", DURABLE_TIMES, TUBEMQ),
    Gate(
        "1.5x with flush=interval",
        of_interval("messages_per_s"),
        INTERVAL_TIMES,
        at_least=True,
        beside=TUBEMQ,
    ),
    at_most("0.8x its CPU/message", CPU_PER_MESSAGE, CPU_SHARE, TUBEMQ),
)
ASYNC_GATES = (*PRODUCING, below("none refused", "refused", 0.0))

ROWS = (
    Row(
        "tubemq-sync-100B",
        "One thread sends 100 B and waits; TubeMQ acks from memory, Trilogue after its fsync.",
        "produce",
        ALONE,
        PRODUCING,
    ),
    Row(
        "tubemq-async-100B",
        "One producer, 100 B messages, 2,000 on their way.",
        "produce",
        MANY,
        ASYNC_GATES,
    ),
    Row(
        "tubemq-async-1KiB",
        "The same with messages of 1 KiB.",
        "produce",
        {**MANY, "size": 1024},
        ASYNC_GATES,
    ),
    Row(
        "tubemq-through-push",
        "From the producer's call to the listener's, 200 messages/s, the client as it is.",
        "through",
        {"size": 100, "rate": 200},
        (below("p50 <= 5 ms", "p50_ms", 5.0),),
    ),
    Row(
        "tubemq-through-pull",
        "The same with a pull consumer that confirms each get.",
        "through",
        {"size": 100, "rate": 200, "pull": 1},
        (below("p50 <= 5 ms", "p50_ms", 5.0),),
    ),
)
START, GROUPS, KILLED, LOST, TOPIC = (
    "tubemq-start-and-idle",
    "tubemq-groups",
    "tubemq-member-killed",
    "tubemq-acked-and-killed",
    "tubemq-new-topic",
)
WAITING = {GROUPS, KILLED}
GATES = {
    START: (
        below("start <= 0.8 s", "start_s", 0.8),
        below("idle <= 120 MB", "idle_mb", 120.0),
    ),
    GROUPS: (
        # the client's own first heartbeats are what is waited for: 13 s apart
        at_most("as quick as TubeMQ", "group_s", 1.0, TUBEMQ),
    ),
    TOPIC: (below("usable <= 0.5 s", "usable_s", 0.5),),
    LOST: (below("nothing lost", "lost", 0.0),),
}
QUESTIONS = {
    START: "From exec to both doors answering on fresh data; memory of the idle processes.",
    GROUPS: "One pull consumer until it has all 4 partitions; a second, and the first one's close "
    "until the second has all; client heartbeats of 13 s.",
    KILLED: "A consumer is killed: until another has its partitions (time-out of 30 s on both).",
    LOST: f"kill -9 right after the {ACKED}th ack of a sync producer: how many can be read again.",
    TOPIC: "A new topic, from asking for it until a producer's first message is taken.",
}
NAMES = (START, TOPIC, GROUPS, KILLED, *(row.name for row in ROWS), LOST)


@dataclass
class Run:
    """One run: its options and servers."""

    chosen: argparse.Namespace
    stage: Stage
    done: Callable[[dict[str, object]], None]
    wanted: set[str] = field(default_factory=set)

    def row(self, name: str, leg: Callable[[Contender], Figures]) -> None:
        """A row of one leg a server, if it is requested; those that only wait run together."""
        if name not in self.wanted:
            return
        chosen = [s for s in self.stage.servers if s.name != INTERVAL or name == LOST]
        with ThreadPoolExecutor(len(chosen) if name in WAITING else 1) as threads:
            found = list(threads.map(leg, chosen))
        legs = {server.name: [figures] for server, figures in zip(chosen, found, strict=True)}
        self.done(summarise(name, QUESTIONS[name], legs, GATES.get(name, ())))


def summarise(
    name: str, question: str, legs: report.Legs, gates: tuple[Gate, ...]
) -> dict[str, object]:
    """A row of the file: what flush=interval did stands beside the default, as `interval_…`."""
    beside = legs.pop(INTERVAL, [])
    for leg, other in zip(legs.get(TRILOGUE, []), beside, strict=False):
        leg |= {f"{INTERVAL}_{key}": value for key, value in other.items()}
    gates = tuple(gate for gate in gates if beside or INTERVAL not in gate.label)
    return report.summarise(name, question, legs, gates)


def topics_of(chosen: argparse.Namespace) -> dict[str, int]:
    """All that the rows want: the real server takes half a minute for one or for all."""
    names = [topic_of(row.name, n) for row in ROWS for n in range(chosen.tubemq_rounds)]
    return {**dict.fromkeys(names, 1), "warm": 1, "groups": 4, "killed": 4, "lost": 1}


def start_leg(server: Contender, topics: Mapping[str, int]) -> Figures:
    server.start()
    settle([server.pid])
    time.sleep(1)
    figures = {"start_s": server.started_in, "idle_mb": server.memory_mb()}
    server.create_topics(topics)
    return figures


def groups_leg(stage: Stage) -> Callable[[Contender], Figures]:
    def leg(server: Contender) -> Figures:
        figures = stage.drive("group", server, "groups", partitions=4)
        return {key: value for key, value in figures.items() if key.endswith("_s")}

    return leg


def killed_leg(stage: Stage) -> Callable[[Contender], Figures]:
    """A member is killed when it has everything; another one waits from that moment on."""

    def leg(server: Contender) -> Figures:
        moments: list[float] = []

        def kill() -> None:
            moments.append(time.monotonic())
            raise KilledOnPurposeError

        with contextlib.suppress(KilledOnPurposeError):
            stage.drive("member", server, "killed", begin=kill, partitions=4, seconds=300)
        stage.drive(
            "member", server, "killed", begin=lambda: moments.append(time.monotonic()),
            partitions=4, seconds=0,
        )  # fmt: skip
        return {"takeover_killed_s": moments[1] - moments[0]}

    return leg


class KilledOnPurposeError(Exception):
    """Out of the reading of a driver's output: the driver is killed for it."""


def lost_leg(stage: Stage) -> Callable[[Contender], Figures]:
    """The server is killed at the moment of the last ack, started again, and read."""

    def leg(server: Contender) -> Figures:
        acked = stage.drive("until-killed", server, "lost", begin=server.kill9, count=ACKED)
        server.start()
        present = stage.drive("present", server, "lost", count=ACKED)
        lost = acked["messages"] - present["messages"]
        return {"acked": acked["messages"], "lost": lost, "restart_s": server.started_in}

    return leg


def topic_leg(stage: Stage) -> Callable[[Contender], Figures]:
    """The start of the driver's Java between the two is nobody's."""

    def leg(server: Contender) -> Figures:
        began = time.monotonic()
        server.create_topics({"brand_new": 1})
        made = time.monotonic() - began
        return {"usable_s": made + stage.drive("usable", server, "brand_new")["seconds"]}

    return leg


def measure(stage: Stage, row: Row, rounds: int) -> dict[str, object]:
    legs = stage.in_turn(lambda server, number: row.leg(stage, server, number), rounds)
    return summarise(row.name, row.question, legs, row.gates)


def run(chosen: argparse.Namespace, build: Path, done: Callable[[dict[str, object]], None]) -> None:
    """Measure all requested rows; each is passed to `done` when it is there."""
    wanted = set(chosen.rows.split(",")) & set(NAMES)
    if not wanted:
        return
    names = [TRILOGUE, INTERVAL] if chosen.ours else [TUBEMQ, TRILOGUE, INTERVAL]
    contenders = [make(name, chosen.directory / f"tubemq-{name}") for name in names]
    client = f"{jars(f'tubemq-{VERSION}')}/*"
    path: list[object] = [compile_java(DRIVER, build, client), client]
    stage = Stage(DRIVER, path, contenders, chosen.seconds, min(4.0, chosen.warm / 4))
    run = Run(chosen, stage, done, wanted)
    try:
        topics = topics_of(chosen)
        legs = {server.name: [start_leg(server, topics)] for server in contenders}
        del legs[INTERVAL]
        if START in wanted:
            done(summarise(START, QUESTIONS[START], legs, GATES[START]))
        run.row(TOPIC, topic_leg(stage))
        run.row(GROUPS, groups_leg(stage))
        run.row(KILLED, killed_leg(stage))
        selected = [row for row in ROWS if row.name in wanted]
        if selected:
            stage.warm(WARMING, chosen.warm)
        for row in selected:
            done(measure(stage, row, chosen.tubemq_rounds))
        run.row(LOST, lost_leg(stage))
    finally:
        for server in contenders:
            server.kill9()
            shutil.rmtree(chosen.directory / f"tubemq-{server.name}", ignore_errors=True)
