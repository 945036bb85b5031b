"""What does our Kafka client cost beside aiokafka, kafka-python and confluent-kafka?

    python -m benchmarks.kafka_client [--messages 200000] [--size 100] [--real]

All send with acks=all and as much lingering (5 ms) as each has room for, then read everything from
the beginning; batches of 64 KiB. Ours and aiokafka by asyncio, the others by their blocking calls
(librdkafka's threads work beside them). `--real` measures a real Kafka 3.9.1 instead of Trilogue.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
from tests.server import start_server
from tools.servers.kafka import RealKafka

from benchmarks.side_by_side import Clock, arguments, compare
from trilogue.client.kafka import EARLIEST, KafkaClient
from trilogue.client.kafka import sync as blocking

BATCH = 64 << 10
LINGER_S = 0.005
SINGLES = 100
"""One message of so many is sent by itself."""
NAMES = ("ours", "aiokafka", "kafka-python", "confluent-kafka")


async def ours(url: str, topic: str, count: int, body: bytes) -> None:
    async with KafkaClient(url) as client:
        producer = await client.producer(linger_s=LINGER_S)
        with Clock("send", count):
            for _ in range(count):
                await producer.submit(topic, body)
            await producer.flush()
        consumer = await client.consumer(reset_to=EARLIEST)
        await consumer.assign([(topic, 0)])
        with Clock("read", count):
            left = count
            while left > 0:
                left -= len(await consumer.poll())
        single = await client.producer()
        with Clock("send one by one", count // SINGLES):
            for _ in range(count // SINGLES):
                await single.send(topic, body)


async def by_aiokafka(url: str, topic: str, count: int, body: bytes) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=url, acks="all", linger_ms=5, max_batch_size=BATCH
    )
    await producer.start()
    with Clock("send", count):
        for _ in range(count):
            future = await producer.send(topic, body)
        await producer.flush()
        await future
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=url, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(topic, 0)])
    with Clock("read", count):
        left = count
        while left > 0:
            left -= sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
    await consumer.stop()
    await producer.stop()
    single = aiokafka.AIOKafkaProducer(bootstrap_servers=url, acks="all")
    await single.start()
    with Clock("send one by one", count // SINGLES):
        for _ in range(count // SINGLES):
            await single.send_and_wait(topic, body)
    await single.stop()


def by_kafka_python(url: str, topic: str, count: int, body: bytes) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=url, acks="all", linger_ms=5, batch_size=BATCH)
    with Clock("send", count):
        for _ in range(count):
            producer.send(topic, body)
        producer.flush()
    consumer = kafka.KafkaConsumer(bootstrap_servers=url, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, 0)])
    with Clock("read", count):
        left = count
        while left > 0:
            left -= sum(map(len, consumer.poll(1000).values()))
    single = kafka.KafkaProducer(bootstrap_servers=url, acks="all")
    with Clock("send one by one", count // SINGLES):
        for _ in range(count // SINGLES):
            single.send(topic, body).get()
    for one in (producer, consumer, single):
        one.close()


def by_confluent(url: str, topic: str, count: int, body: bytes) -> None:
    options = {"bootstrap.servers": url, "batch.size": BATCH, "queue.buffering.max.messages": count}
    producer = confluent_kafka.Producer({**options, "linger.ms": 5})
    with Clock("send", count):
        for _ in range(count):
            producer.produce(topic, body)
        producer.flush()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": url, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    with Clock("read", count):
        left = count
        while left > 0:
            left -= len(consumer.consume(500, 1))
    consumer.close()
    single = confluent_kafka.Producer({**options, "linger.ms": 0})
    with Clock("send one by one", count // SINGLES):
        for _ in range(count // SINGLES):
            single.produce(topic, body)
            single.flush()


def run_one(name: str, url: str, topic: str, count: int, body: bytes) -> None:
    """In a process of its own."""
    with blocking.KafkaClient(url) as client:
        client.admin.create_topic(topic, 1)
    match name:
        case "ours":
            asyncio.run(ours(url, topic, count, body))
        case "aiokafka":
            asyncio.run(by_aiokafka(url, topic, count, body))
        case "kafka-python":
            by_kafka_python(url, topic, count, body)
        case _:
            by_confluent(url, topic, count, body)


def main() -> None:
    chosen = arguments("our Kafka client beside others", run_one)
    if chosen is None:
        return
    with tempfile.TemporaryDirectory() as directory:
        if chosen.real:
            real = RealKafka(Path(directory), durable=True).start()
            compare("benchmarks.kafka_client", NAMES, real.address, chosen.messages, chosen.size)
            real.stop()
            return
        with start_server(Path(directory) / "data") as server:
            compare("benchmarks.kafka_client", NAMES, server.kafka, chosen.messages, chosen.size)


if __name__ == "__main__":
    main()
