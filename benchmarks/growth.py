"""What one more of each costs when there are many: curves of memory and of CPU.

    python -m benchmarks.growth                         # all curves, about ten minutes
    python -m benchmarks.growth --curves groups,connections --largest 1000

Each curve has a server of its own on fresh data. Its points go up by ten: the server gets as many
partitions (connections, subscriptions, messages, members, groups) and comes to rest; the memory
that it took since the last point is divided by what came since. Then a load that should not depend
on their number is metered. A flat curve means that one more costs what the ones before did.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conformance.asking import Asker

import trilogue
from benchmarks import kafka_legs as legs
from benchmarks.drivers import BUILD, Drivers
from benchmarks.measure import Meter, machine, memory_mb, settle
from benchmarks.report import RESULTS
from benchmarks.servers import Trilogue, create_topic
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from trilogue.wire.kafka.groups.consumer import ConsumerGroupHeartbeatRequest

PARTITIONS_OF_A_TOPIC = 1_000
MESSAGES_AT_ONCE = 10_000_000
SAMPLE = 200_000  # messages of a metered load
REQUESTS = 2_000  # requests of a metered load
NO_LIMITS = {
    "connections.limit": 20_000,
    "connections.per-address": 20_000,
    "groups.consumer-session-timeout": "30min",  # members are silent while others join
}
COMMIT_VERSION, HEARTBEAT_VERSION = 7, 0
MEMORY, EACH = "MiB", "KiB for one more"


class Point(NamedTuple):
    """The cost of one when there are `count`."""

    count: int
    cost: float


class Curve(NamedTuple):
    """A named sequence of points in one unit."""

    name: str
    unit: str
    points: list[Point]


class Room:
    """A server and what drives it."""

    def __init__(self, server: Trilogue, drivers: Drivers, scratch: Path, seconds: float) -> None:
        self.server, self.drivers, self.scratch, self.seconds = server, drivers, scratch, seconds

    def memory_mb(self) -> float:
        """Memory of the server when it is quiet."""
        settle([self.server.pid])
        time.sleep(1)
        return memory_mb(self.server.pid)

    def request_cpu_us(self, topic: str, partitions: int, connections: int = 50) -> float:
        """CPU of a produce request of one record."""
        meters: list[Meter] = []
        used: list[float] = []
        result = self.drivers.load(
            self.server.address, topic, partitions=partitions, connections=connections, window=1,
            size=100, warmup=0.5, seconds=self.seconds,
            begin=lambda: meters.append(Meter(self.server.pid)),
            end=lambda: used.append(meters[0].read().cpu_s),
        )  # fmt: skip
        return used[0] / result["requests"] * 1e6

    def cpu_us(self, work: Callable[[], int]) -> float:
        """CPU of each of the things that `work` does; it returns how many."""
        settle([self.server.pid])
        meter = Meter(self.server.pid)
        count = work()
        return meter.read().cpu_s / count * 1e6

    def fill(self, topic: str, messages: int) -> None:
        """Produce messages of 100 B with librdkafka."""
        self.drivers.rdkafka(
            "fill", self.server.address, topic, settings=legs.PRODUCER, size=100, messages=messages
        )


Measures = Iterator[dict[str, float]]  # unit -> cost, of one point after the other


def grow_partitions(room: Room, counts: list[int]) -> Measures:
    """Topics of at most 1,000 partitions; the load is on one of them."""
    made = counts[0]  # those of the load count: a server has 100,000 at most
    create_topic(room.server.address, "measured", made)
    for count in counts:
        while made < count:
            more = min(PARTITIONS_OF_A_TOPIC, count - made)
            create_topic(room.server.address, f"many-{made}", more)
            made += more
        found = {
            MEMORY: room.memory_mb(),
            "CPU us a request": room.request_cpu_us("measured", counts[0]),
        }
        room.server.kill9()
        room.server.start_loaded()
        yield {**found, "start in s": room.server.started_in}


def grow_connections(room: Room, counts: list[int]) -> Measures:
    """Connections that say nothing, beside fifty that do."""
    host, port = room.server.address.rsplit(":", 1)
    create_topic(room.server.address, "measured", 10)
    idle: list[socket.socket] = []
    try:
        for count in counts:
            idle += [socket.create_connection((host, int(port))) for _ in range(count - len(idle))]
            yield {
                MEMORY: room.memory_mb(),
                "CPU us a request": room.request_cpu_us("measured", 10),
            }
    finally:
        for each in idle:
            each.close()


def grow_subscriptions(room: Room, counts: list[int]) -> Measures:
    """Subscriptions of one Pulsar topic without consumers, while messages come."""
    topic = "persistent/public/default/measured"
    create_topic(room.server.address, "measured", 1)
    made = 0
    for count in counts:
        for number in range(made, count):
            put(f"{room.server.http}/admin/v2/{topic}/subscription/s{number}")
        made = count
        room.server.empty_tail()  # of the messages of the last load: they are no cost of these
        yield {
            MEMORY: room.memory_mb(),
            "CPU us a message": room.cpu_us(lambda: room.fill("measured", SAMPLE) or SAMPLE),
        }


def grow_messages(room: Room, counts: list[int]) -> Measures:
    """Messages of 100 B in one partition."""
    create_topic(room.server.address, "measured", 1)
    made = 0
    for count in counts:
        began = Meter(room.server.pid)
        wrote = count - made
        while made < count:
            more = min(MESSAGES_AT_ONCE, count - made)
            room.fill("measured", more)
            made += more
        settle([room.server.pid])
        cost = began.read().cpu_s / wrote * 1e6
        yield {MEMORY: room.memory_mb(), "CPU us a message": cost}


def grow_members(room: Room, counts: list[int]) -> Measures:
    """Members of one group (KIP-848) of a topic with as many partitions, and their heartbeats."""
    create_topic(room.server.address, "measured", PARTITIONS_OF_A_TOPIC)
    epochs: dict[str, int] = {}
    with Asker(room.server.address) as asker:

        def beat(member: str, *, joins: bool) -> None:
            request = ConsumerGroupHeartbeatRequest(
                group_id="measured",
                member_id=member,
                member_epoch=epochs.get(member, 0),
                rebalance_timeout_ms=300_000 if joins else -1,
                subscribed_topic_names=["measured"] if joins else None,
                topic_partitions=[] if joins else None,
            )
            answer = asker.request(request, HEARTBEAT_VERSION)
            if answer.error_code:
                raise RuntimeError(f"heartbeat: error {answer.error_code} {answer.error_message}")
            epochs[member] = answer.member_epoch

        def beat_all() -> int:
            members = list(epochs)
            for number in range(REQUESTS):
                beat(members[number % len(members)], joins=False)
            return REQUESTS

        for count in counts:
            fresh = [f"member-{number:06}" for number in range(len(epochs), count)]

            def join(fresh: list[str] = fresh) -> int:
                for member in fresh:
                    beat(member, joins=True)
                return len(fresh)

            joined = room.cpu_us(join)
            yield {"CPU us a join": joined, "CPU us a heartbeat": room.cpu_us(beat_all)}


def grow_groups(room: Room, counts: list[int]) -> Measures:
    """Groups that have committed an offset, and commit again."""
    create_topic(room.server.address, "measured", 1)
    room.fill("measured", 1)
    made = 0
    with Asker(room.server.address) as asker:

        def commit(number: int) -> None:
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=""
            )
            topic = OffsetCommitRequestTopic(name="measured", partitions=[partition])
            request = OffsetCommitRequest(
                group_id=f"group-{number:06}", member_id="", topics=[topic]
            )
            answer = asker.request(request, COMMIT_VERSION)
            code = answer.topics[0].partitions[0].error_code
            if code:
                raise RuntimeError(f"commit: error {code}")

        for count in counts:
            for number in range(made, count):
                commit(number)
            made = count

            def commit_all(count: int = count) -> int:
                for number in range(REQUESTS):
                    commit(number % count)
                return REQUESTS

            yield {MEMORY: room.memory_mb(), "CPU us a commit": room.cpu_us(commit_all)}


CURVES: dict[str, tuple[Callable[[Room, list[int]], Measures], list[int]]] = {
    "partitions": (grow_partitions, [10, 100, 1_000, 10_000, 100_000]),
    "connections": (grow_connections, [10, 100, 1_000, 10_000]),
    "subscriptions": (grow_subscriptions, [1, 10, 100, 1_000, 10_000]),
    "messages": (grow_messages, [100_000, 1_000_000, 10_000_000, 100_000_000]),
    "members": (grow_members, [1, 10, 100, 1_000]),
    "groups": (grow_groups, [1, 10, 100, 1_000, 10_000]),
}


def put(url: str) -> None:
    """Send an empty PUT."""
    request = urllib.request.Request(url, b"", {"content-type": "application/json"}, method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        pass


@contextmanager
def room_on(root: Path, drivers: Drivers, seconds: float) -> Iterator[Room]:
    """Start a server for one curve."""
    server = Trilogue(root, doors=("pulsar",), settings=NO_LIMITS)
    server.start_loaded()
    try:
        yield Room(server, drivers, root, seconds)
    finally:
        server.kill9()


def measure(name: str, root: Path, drivers: Drivers, largest: int, seconds: float) -> list[Curve]:
    """Return the curves of one kind, one for each unit."""
    grow, every = CURVES[name]
    counts = [count for count in every if count <= largest]
    found: dict[str, list[Point]] = {}
    last: Point | None = None
    with room_on(root, drivers, seconds) as room:
        for count, costs in zip(counts, grow(room, counts), strict=True):
            if last is not None and MEMORY in costs:
                more = costs[MEMORY] - last.cost
                costs[EACH] = more * 1024 / (count - last.count)
            if MEMORY in costs:
                last = Point(count, costs[MEMORY])
            for unit, cost in costs.items():
                found.setdefault(unit, []).append(Point(count, round(cost, 3)))
            shown = ", ".join(f"{unit}: {cost:,.2f}" for unit, cost in costs.items())
            print(f"{name:14} {count:>11,} {shown}", flush=True)
    return [Curve(name, unit, points) for unit, points in found.items()]


def load_curves(results: Path = RESULTS) -> list[Curve]:
    """Return the curves of the newest file that has some."""
    files = [json.loads(path.read_text()) for path in results.glob("*-growth*.json")]
    newest = max(files, key=lambda each: str(each["date"]), default={"curves": []})
    return [
        Curve(each["name"], each["unit"], [Point(*point) for point in each["points"]])
        for each in newest["curves"]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="What one more of each costs: curves")
    parser.add_argument("--curves", default=",".join(CURVES))
    parser.add_argument("--largest", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each metered load")
    parser.add_argument("--directory", type=Path, default=BUILD)
    parser.add_argument("--no-save", action="store_true")
    chosen = parser.parse_args()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    drivers, curves = Drivers(BUILD), []
    for name in chosen.curves.split(","):
        with tempfile.TemporaryDirectory(dir=chosen.directory) as root:
            curves += measure(name, Path(root), drivers, chosen.largest, chosen.seconds)
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    result = {
        "date": date,
        "machine": machine(chosen.directory),
        "versions": {"trilogue": trilogue.__version__},
        "curves": [curve._asdict() for curve in curves],
    }
    if not chosen.no_save:
        path = RESULTS / f"{date[:10]}-growth.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {path.relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
