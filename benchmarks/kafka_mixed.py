"""How late our event loop is when everything happens at once: the row `loop-lag`.

Nine kinds of clients at the same time: single messages over 1,000 partitions, pipelined singles,
batches of 1 KiB, readers from the earliest offset, end to end at 1,000/s, groups that form, topics
of 1,000 partitions that come and go twice a second, fetches of 1,000 that find nothing, in a
session and without.

The lag is what the server itself reports in /metrics, of a process that has done nothing else. The
clients are given way to (nice): on two cores they would otherwise be measured, not the loop. Beside
it stands the lag of the machine, which is that of a process with nothing to do (machine_lag.py): a
host that stops its virtual machine stops every loop in it.
"""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks import kafka_legs as legs
from benchmarks.gates import Figures
from benchmarks.machine_lag import measured_lag, quantile_s
from benchmarks.rows import Stage
from benchmarks.servers import Contender, Trilogue, create_topic, delete_topic

NICE = 15
SECONDS_MIN = 20.0  # a figure each 100 ms: two hundred of them
PARTITIONS = 1_000
READ = 100_000
TOPIC_EVERY_S = 0.5
LAG = "trilogue_loop_lag_seconds"


def mixed_leg(stage: Stage, server: Contender) -> Figures:
    """All loads at once; the lag afterwards."""
    assert isinstance(server, Trilogue)
    seconds = stage.at_least(SECONDS_MIN)
    for topic, partitions in (("mixed", 4), ("mixed-many", PARTITIONS), ("mixed-one", 1)):
        create_topic(server.address, topic, partitions)
    create_topic(server.address, "mixed-groups", 2)
    create_topic(server.address, "mixed-idle", PARTITIONS)
    stage.drivers.niceness = NICE
    try:
        legs.fill("mixed", 1024, READ)(stage, server)
        server.empty_tail()  # a process of its own, too
        stage.settle()
        loads = all_loads(stage, server, seconds)
        end = time.monotonic() + seconds
        with measured_lag() as machine, ThreadPoolExecutor(len(loads)) as threads:
            for done in [threads.submit(until, end, load) for load in loads]:
                done.result()
    finally:
        stage.drivers.niceness = 0
    found = lag_of(server)
    figures = {f"lag_{name}_ms": found[share] * 1e3 for name, share in SHARES.items()}
    return {**figures, "machine_lag_p99_ms": quantile_s(machine, 0.99) * 1e3}


SHARES = {"p50": "0.5", "p99": "0.99", "max": "1.0"}


def until(end: float, load: Callable[[], object]) -> None:
    """Again and again; threads of this process give way as the drivers do."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    while time.monotonic() < end:
        load()


def all_loads(stage: Stage, server: Contender, seconds: float) -> list[Callable[[], object]]:
    """What is done at the same time; some of it is over soon and is done again."""
    address, drivers = server.address, stage.drivers
    timed = {"warmup": 0.0, "seconds": seconds}
    lock = threading.Lock()

    def many(**options: float) -> object:
        return drivers.load(address, "mixed-many", partitions=PARTITIONS, size=100, **options)

    def read() -> object:
        return drivers.rdkafka(
            "consume", address, "mixed", settings=legs.CONSUMER, partitions=4, messages=READ
        )

    def groups() -> object:
        with lock:
            number = next(stage.numbers)
        settings = {"group.id": f"mixed-{number}"}
        return drivers.rdkafka(
            "groups", address, "mixed-groups", settings=settings, partitions=2, groups=10, members=2
        )

    return [
        lambda: many(connections=50, window=1, **timed),
        lambda: many(connections=4, window=100, **timed),
        lambda: drivers.rdkafka(
            "produce", address, "mixed", settings=legs.PRODUCER, size=1024, **timed
        ),
        lambda: drivers.rdkafka(
            "through", address, "mixed-one", settings=legs.THROUGH, size=100, rate=1_000,
            partitions=1, **timed,
        ),
        read,
        groups,
        lambda: made_and_gone(stage, server),
        lambda: legs.poll_idle(server, "mixed-idle", PARTITIONS, 0.5),
    ]  # fmt: skip


def made_and_gone(stage: Stage, server: Contender) -> None:
    """A topic comes and goes, twice a second at most."""
    topic = stage.fresh_topic("mixed-brief", server, PARTITIONS)
    delete_topic(server.address, topic)
    time.sleep(TOPIC_EVERY_S)


def lag_of(server: Trilogue) -> dict[str, float]:
    """Quantile -> seconds, as /metrics has it."""
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    lines = [line for line in text.splitlines() if line.startswith(LAG + "{")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}
