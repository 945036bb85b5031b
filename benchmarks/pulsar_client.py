"""What does our Pulsar client cost beside PyPI's pulsar-client, on the same server?

    python -m benchmarks.pulsar_client [--messages 200000] [--size 100] [--real]

Both send batches of at most 1000 messages with at most 10,000 under way, then receive and
acknowledge every one; ours by asyncio, theirs by its blocking calls (its C++ threads work beside
them). `--real` measures a real Pulsar instead of Trilogue.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pulsar
from tests.server import start_server
from tools.servers.pulsar import RealPulsar

from benchmarks.side_by_side import Clock, arguments, compare
from trilogue.client.pulsar import InitialPosition, PulsarClient

UNDER_WAY = 10_000


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


def run_one(name: str, url: str, topic: str, count: int, body: bytes) -> None:
    """In a process of its own."""
    if name == "ours":
        asyncio.run(ours(url, topic, count, body))
    else:
        theirs(url, topic, count, body)


def main() -> None:
    chosen = arguments("our Pulsar client beside pulsar-client", run_one)
    if chosen is None:
        return
    names, count, size = ("ours", "pulsar-client"), chosen.messages, chosen.size
    with tempfile.TemporaryDirectory() as directory:
        if chosen.real:
            real = RealPulsar(Path(directory), heap="1g", direct="2g", durable=True).start()
            compare("benchmarks.pulsar_client", names, f"pulsar://{real.address}", count, size)
            real.stop()
            return
        doors = dict.fromkeys(("pulsar", "kafka", "http"), "127.0.0.1:0")
        with start_server(Path(directory) / "data", listen=doors) as server:
            url = f"pulsar://{server.doors['pulsar']}"
            compare("benchmarks.pulsar_client", names, url, count, size)


if __name__ == "__main__":
    main()
