"""What does our TubeMQ client cost beside TubeMQ's own one in Java, on the same server?

    python -m benchmarks.tubemq_client [--messages 200000] [--size 100]

Both send with at most 2,000 messages on their way, read all with a pull consumer that confirms each
pack, and send one by one; each does so once before, so that Java's code is compiled. CPU of the
Java client is its whole process's, its compilers and collector included.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

from tests.server import start_server
from tools.servers.java import jars
from tools.servers.tubemq import VERSION

from benchmarks.drivers import BUILD, compile_java, java_command
from benchmarks.servers import create_topic
from benchmarks.side_by_side import Clock, arguments, compare
from benchmarks.tubemq import DRIVER
from trilogue.client.tubemq import Message, Position, TubeClient
from trilogue.client.tubemq.consumer import Consumer
from trilogue.client.tubemq.producer import Producer

NAMES = ("ours", "java")
UNDER_WAY = 2_000
SINGLES = 100
"""One message of so many is sent by itself."""


async def send_many(producer: Producer, topic: str, count: int, body: bytes) -> None:
    for _ in range(count):
        await producer.submit(Message(topic, body))
    await producer.flush()


async def send_singly(producer: Producer, topic: str, count: int, body: bytes) -> None:
    for _ in range(count):
        await producer.send(Message(topic, body))


async def read(consumer: Consumer, count: int) -> None:
    while count > 0:
        batch = await consumer.get(60)
        count -= len(batch)
        await consumer.confirm(batch)


async def ours(url: str, topic: str, count: int, body: bytes) -> None:
    singles = count // SINGLES
    async with TubeClient(url, max_pending=UNDER_WAY) as client:
        producer = await client.producer(topic)
        await send_many(producer, topic, count, body)
        with Clock("send", count):
            await send_many(producer, topic, count, body)
        await send_singly(producer, topic, singles, body)
        with Clock("send one by one", singles):
            await send_singly(producer, topic, singles, body)
        consumer = await client.consumer(topic, group=topic, initial_position=Position.FIRST)
        await read(consumer, count)
        with Clock("read", count):
            await read(consumer, count)


def theirs(url: str, topic: str, count: int, size: int) -> None:
    library = f"{jars(f'tubemq-{VERSION}')}/*"
    classes = compile_java(DRIVER, BUILD, library)
    options = {"messages": count, "size": size, "outstanding": UNDER_WAY, "singles": SINGLES}
    subprocess.run(
        java_command([classes, library], DRIVER, ["client", url, topic], options), check=True
    )


def run_one(name: str, url: str, topic: str, count: int, body: bytes) -> None:
    """In a process of its own; the topic's name is that of the client, and of a moment."""
    topic = topic.replace("-", "_")
    master, _, kafka = url.partition(",")
    if kafka:
        create_topic(kafka, topic, 1)
    if name == "ours":
        asyncio.run(ours(master, topic, count, body))
    else:
        theirs(master, topic, count, len(body))


def main() -> None:
    chosen = arguments("our TubeMQ client beside TubeMQ's own", run_one, real=False)
    if chosen is None:
        return
    doors = dict.fromkeys(("kafka", "tubemq-master", "tubemq-broker"), "127.0.0.1:0")
    with (
        tempfile.TemporaryDirectory() as directory,
        start_server(Path(directory) / "data", listen=doors) as server,
    ):
        url = f"{server.doors['tubemq-master']},{server.kafka}"
        compare("benchmarks.tubemq_client", NAMES, url, chosen.messages, chosen.size)


if __name__ == "__main__":
    main()
