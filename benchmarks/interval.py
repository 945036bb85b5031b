"""What do acknowledgements from memory buy, and what do readers pay for a longer interval?

    python -m benchmarks.interval [--scratch DIR] [--seconds S] [--json FILE]

One server for each line: `commit` is the default, the others have `topics.flush=interval` and
`journal.interval` as named. `alone` is one client with one small request in flight, `many` are 50
such clients. CPU is the server's whole process tree, for each request, and the one figure to trust
on a machine that does other things. `reader` is the time from a producer's call to the consumer's,
for one message at a time, by librdkafka: the interval and a little, since it is the message itself
that begins it. Where messages come all the time they wait half of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.server import Server, launch_server
from tools.servers.probe import free_port, wait_for_answer

from benchmarks.drivers import Drivers
from benchmarks.measure import Meter
from benchmarks.servers import create_topic

INTERVALS_MS = (1, 5, 10, 20, 50, 100)
LOADS = {"alone": 1, "many": 50}
MESSAGES = 200
PAUSE_S = 0.007  # between two messages: no multiple of an interval

Figures = dict[str, float]


def settings_of(interval_ms: int | None) -> dict[str, str]:
    """The setting of the server; None is the default."""
    if interval_ms is None:
        return {}
    return {"topics.flush": "interval", "journal.interval": f"{interval_ms}ms"}


def measure(drivers: Drivers, root: Path, interval_ms: int | None, seconds: float) -> Figures:
    """Start a server and drive it."""
    address = f"127.0.0.1:{free_port()}"
    listen = {"kafka": address, "http": "127.0.0.1:0"}
    server = launch_server(root, listen=listen, settings=settings_of(interval_ms))
    try:
        wait_for_answer(address, server.pid)
        server.wait_ready()
        figures: Figures = {}
        for name, connections in LOADS.items():
            create_topic(address, name, 1)
            figures |= load(drivers, server, name, connections, seconds)
        create_topic(address, "read", 1)
        figures |= reader(address)
    finally:
        server.kill9()
    return figures


def load(drivers: Drivers, server: Server, name: str, connections: int, seconds: float) -> Figures:
    """Requests a second and what each of them cost."""
    meters: list[Meter] = []
    costs: list[float] = []
    result = drivers.load(
        server.kafka,
        name,
        connections=connections,
        window=1,
        size=100,
        warmup=0.5,
        seconds=seconds,
        begin=lambda: meters.append(Meter(server.pid)),
        end=lambda: costs.append(meters[0].read().cpu_s),
    )
    return {
        f"{name}_requests_per_s": result["requests_per_s"],
        f"{name}_p50_ms": result["p50_ms"],
        f"{name}_cpu_us": costs[0] / result["requests"] * 1e6,
    }


def reader(address: str) -> Figures:
    """How long a message takes from one client to the other."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader"})
    consumer.assign([TopicPartition("read", 0, 0)])
    took: list[float] = []
    for _ in range(MESSAGES):
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        producer.produce("read", b"x")
        producer.flush()
        found = consumer.poll(10)
        assert found is not None
        assert found.error() is None
        took.append((time.perf_counter() - began) * 1e3)
    consumer.close()
    took = took[MESSAGES // 10 :]
    return {"reader_p50_ms": statistics.median(took), "reader_p99_ms": sorted(took)[-2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        drivers = Drivers(Path(scratch) / "build")
        for interval_ms in (None, *INTERVALS_MS):
            name = "commit" if interval_ms is None else f"{interval_ms} ms"
            figures = measure(
                drivers, Path(scratch) / str(interval_ms), interval_ms, options.seconds
            )
            found[name] = {key: round(value, 3) for key, value in figures.items()}
            print(f"{name:>7}", *(f"{key}={value:g}" for key, value in found[name].items()))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
