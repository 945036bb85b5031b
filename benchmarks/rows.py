"""The questions: each row is one load on one server, measured, and the gates its answer must pass.

A leg (one row on one server, once) gives a flat dictionary of figures. CPU is that of the server's
whole process tree, divided by requests or messages; "with settling" adds what it still did after
the load ended (flushing, compacting), because put-off work is work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drivers import Drivers, Result
from benchmarks.measure import Meter, counted_syncs, settle, syncs_in
from benchmarks.servers import Contender, create_topic, stored_messages

Figures = dict[str, float]
PRODUCER = {"acks": "all", "linger.ms": 5}
FIFTY = {"connections": 50, "window": 1, "size": 100}
CONSUMER = {"group.id": "bench", "enable.auto.commit": "false", "fetch.message.max.bytes": 4 << 20}


@dataclass
class Stage:
    """What a leg runs on."""

    drivers: Drivers
    servers: list[Contender]
    scratch: Path
    seconds: float

    def settle(self) -> None:
        settle([server.pid for server in self.servers])


@dataclass(frozen=True)
class Gate:
    """A figure that must not be missed; `value` sees the figures of both servers."""

    label: str
    value: Callable[[Figures, Figures], float]
    wanted: float
    at_least: bool

    def passed(self, got: float) -> bool:
        return got >= self.wanted if self.at_least else got <= self.wanted


@dataclass(frozen=True)
class Row:
    """One question."""

    name: str
    question: str
    topic: str
    partitions: int
    leg: Callable[[Stage, Contender], Figures]
    gates: tuple[Gate, ...] = ()
    syncs: Callable[[Stage, Contender], Figures] | None = None
    fill: Callable[[Stage, Contender], None] | None = None
    warm_s: float = 0.0

    def prepare(self, stage: Stage, server: Contender) -> None:
        """Make the topic, and what is going to be read."""
        create_topic(server.address, self.topic, self.partitions)
        if self.fill:
            self.fill(stage, server)
        if self.warm_s:
            stage.drivers.load(
                server.address,
                self.topic,
                partitions=self.partitions,
                **FIFTY,
                warmup=0,
                seconds=self.warm_s,
            )

    def check(self, server: Contender, legs: list[Figures]) -> None:
        """What was acked or read must be there: a server that drops is not fast."""
        stored = stored_messages(server.address, self.topic, self.partitions)
        moved = [int(leg["messages"]) for leg in legs]
        wanted = max(moved) if self.fill else sum(moved)
        if stored < wanted:
            raise RuntimeError(f"{self.name}: {server.name} has {stored} of {wanted} messages")


def metered(stage: Stage, server: Contender, drive: Callable[..., Result], unit: str) -> Figures:
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


def load_leg(topic: str, **options: float) -> Callable[[Stage, Contender], Figures]:
    """Ready-made requests."""

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.load(
                server.address, topic, **moments, **options, warmup=1.0, seconds=stage.seconds
            )

        return metered(stage, server, drive, "request")

    return leg


def load_syncs(topic: str, **options: float) -> Callable[[Stage, Contender], Figures]:
    """How many requests share a sync, in a short traced run that is not measured otherwise."""

    def count(stage: Stage, server: Contender) -> Figures:
        log = stage.scratch / f"syncs-{topic}-{server.name}"
        with counted_syncs(server.pid, log):
            result = stage.drivers.load(server.address, topic, **options, warmup=0.0, seconds=1.5)
        return {"syncs_per_request": syncs_in(log) / result["requests"]}

    return count


def produce_leg(topic: str, size: int) -> Callable[[Stage, Contender], Figures]:
    """librdkafka with its usual batches."""

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "produce",
                server.address,
                topic,
                settings=PRODUCER,
                **moments,
                size=size,
                warmup=1.0,
                seconds=stage.seconds,
            )

        return metered(stage, server, drive, "message")

    return leg


def fill(topic: str, size: int, messages: int) -> Callable[[Stage, Contender], None]:
    """Write what is going to be read."""

    def write(stage: Stage, server: Contender) -> None:
        stage.drivers.rdkafka(
            "fill", server.address, topic, settings=PRODUCER, size=size, messages=messages
        )

    return write


def consume_leg(topic: str, partitions: int, messages: int) -> Callable[..., Figures]:
    """Read it all from the earliest offset."""

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "consume",
                server.address,
                topic,
                settings=CONSUMER,
                **moments,
                partitions=partitions,
                messages=messages,
            )

        return metered(stage, server, drive, "message")

    return leg


def ratio(key: str) -> Callable[[Figures, Figures], float]:
    return lambda kafka, ours: ours[key] / kafka[key]


def our(key: str) -> Callable[[Figures, Figures], float]:
    return lambda _, ours: ours[key]


CPU_PER_REQUEST = "cpu_us_per_request_settled"
CPU_PER_MESSAGE = "cpu_us_per_message_settled"
THREE_TIMES = (
    Gate("3x Kafka's requests/s", ratio("requests_per_s"), 3.0, at_least=True),
    Gate("a third of its CPU/request", ratio(CPU_PER_REQUEST), 1 / 3, at_least=False),
)
EQUAL = (
    Gate("Kafka's messages/s", ratio("messages_per_s"), 1.0, at_least=True),
    Gate("its CPU/message", ratio(CPU_PER_MESSAGE), 1.0, at_least=False),
)
READ_1K, READ_100 = 600_000, 3_000_000

ROWS = (
    Row(
        "one-in-flight",
        "How long does one durable 100 B record take, raw socket, nothing else going on?",
        "one",
        1,
        load_leg("one", connections=1, window=1, size=100),
        (Gate("p50 <= 0.3 ms", our("p50_ms"), 0.3, at_least=False),),
        load_syncs("one", connections=1, window=1, size=100),
    ),
    Row(
        "fifty-connections",
        "50 connections with one 100 B record a request, one in flight each, over 4 partitions.",
        "fifty",
        4,
        load_leg("fifty", partitions=4, **FIFTY),
        THREE_TIMES,
        load_syncs("fifty", partitions=4, **FIFTY),
    ),
    Row(
        "thousand-partitions",
        # a Kafka that meets 1,000 partitions stalls for 15 s (81 requests/s), then it is steady
        "The same over 1,000 partitions, after 16 s of it.",
        "thousand",
        1000,
        load_leg("thousand", partitions=1000, **FIFTY),
        THREE_TIMES,
        load_syncs("thousand", partitions=1000, **FIFTY),
        warm_s=16.0,
    ),
    Row(
        "batched-1KiB",
        "librdkafka, acks=all, linger 5 ms, 1 KiB messages over 4 partitions.",
        "batched",
        4,
        produce_leg("batched", 1024),
        EQUAL,
    ),
    Row(
        "batched-100B",
        "The same with 100 B messages.",
        "small",
        4,
        produce_leg("small", 100),
    ),
    Row(
        "consume-1KiB",
        f"librdkafka reads {READ_1K:,} messages of 1 KiB from the earliest offset, 4 partitions.",
        "read1k",
        4,
        consume_leg("read1k", 4, READ_1K),
        fill=fill("read1k", 1024, READ_1K),
    ),
    Row(
        "consume-100B",
        f"The same with {READ_100:,} messages of 100 B.",
        "read100",
        4,
        consume_leg("read100", 4, READ_100),
        fill=fill("read100", 100, READ_100),
    ),
)

START_GATES = (
    Gate("start <= 0.8 s", our("start_s"), 0.8, at_least=False),
    Gate("idle <= 120 MB", our("idle_mb"), 120.0, at_least=False),
)
