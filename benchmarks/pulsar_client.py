"""What does our Pulsar client cost beside PyPI's pulsar-client, on the same server?

    python -m benchmarks.pulsar_client [--messages 200000] [--size 100] [--real]

Both send batches of at most 1000 messages with at most 10,000 under way, then receive and
acknowledge every one; ours by asyncio, theirs by its blocking calls (its C++ threads work beside
them). Read the CPU column first: it counts all threads of the client and not the server, and says
the most on a machine that does other things too. `--real` asks a real Pulsar instead of Trilogue.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pulsar
from tests.server import start_server
from tools.servers.pulsar import RealPulsar

from trilogue.client.pulsar import InitialPosition, PulsarClient

UNDER_WAY = 10_000
ROUNDS = 3


class Clock:
    """Time and CPU time of one leg, told as a row."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count

    def __enter__(self) -> None:
        self.began, self.cpu = time.perf_counter(), cpu()

    def __exit__(self, *_: object) -> None:
        passed, used = time.perf_counter() - self.began, cpu() - self.cpu
        print(self.name, self.count / passed, 1e6 * used / self.count, sep="\t")


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def ours(url: str, topic: str, count: int, body: bytes) -> None:
    async with PulsarClient(url) as client:
        producer = await client.producer(topic, max_pending=UNDER_WAY)
        consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.EARLIEST)
        with Clock("send", count):
            for _ in range(count):
                await producer.submit(body)
            await producer.flush()
        with Clock("receive and ack", count):
            for _ in range(count):
                await consumer.ack(await consumer.receive())
        with Clock("send one by one", count // 100):
            for _ in range(count // 100):
                await producer.send(body)


def theirs(url: str, topic: str, count: int, body: bytes) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=1,
        block_if_queue_full=True, max_pending_messages=UNDER_WAY,
    )  # fmt: skip
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    with Clock("send", count):
        for _ in range(count):
            producer.send_async(body, lambda _result, _id: None)
        producer.flush()
    with Clock("receive and ack", count):
        for _ in range(count):
            consumer.acknowledge(consumer.receive())
    with Clock("send one by one", count // 100):
        for _ in range(count // 100):
            producer.send(body)
    client.close()


def run_one(name: str, url: str, count: int, size: int) -> None:
    """In a process of its own."""
    topic, body = f"bench-{name}-{time.time_ns()}", b"x" * size
    if name == "ours":
        asyncio.run(ours(url, topic, count, body))
    else:
        theirs(url, topic, count, body)


def compare(url: str, count: int, size: int) -> None:
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for name in ("ours", "pulsar-client"):
            command = [sys.executable, "-m", "benchmarks.pulsar_client", "--child", name]
            command += ["--url", url, "--messages", str(count), "--size", str(size)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                leg, rate, used = line.split("\t")
                rows.setdefault((leg, name), []).append((float(rate), float(used)))
    print(f"{count:,} messages of {size} bytes, medians of {ROUNDS} rounds")
    for (leg, name), found in rows.items():
        rate = statistics.median(one[0] for one in found)
        used = statistics.median(one[1] for one in found)
        print(f"{leg:16} {name:14} {rate:>10,.0f} messages/s {used:>8.2f} µs of CPU a message")


def main() -> None:
    parser = argparse.ArgumentParser(description="our Pulsar client beside pulsar-client")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--child", default="")
    parser.add_argument("--url", default="")
    chosen = parser.parse_args()
    if chosen.child:
        run_one(chosen.child, chosen.url, chosen.messages, chosen.size)
        return
    with tempfile.TemporaryDirectory() as directory:
        if chosen.real:
            real = RealPulsar(Path(directory), heap="1g", direct="2g", durable=True).start()
            compare(f"pulsar://{real.address}", chosen.messages, chosen.size)
            real.stop()
            return
        doors = dict.fromkeys(("pulsar", "kafka", "http"), "127.0.0.1:0")
        with start_server(Path(directory) / "data", listen=doors) as server:
            compare(f"pulsar://{server.doors['pulsar']}", chosen.messages, chosen.size)


if __name__ == "__main__":
    main()
