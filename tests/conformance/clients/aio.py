"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from tests.conformance.clients.base import DEADLINE, Deadline, Read, Record
from tests.conformance.clients.kafka_python import as_read, reading


class Aiokafka:
    name = "aiokafka"
    cannot = frozenset({"nothing at all"})

    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        options = {
            "compression_type": None if codec == "none" else codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent,
        }
        asyncio.run(self.write_async(address, topic, records, options))

    async def write_async(
        self, address: str, topic: str, records: Sequence[Record], options: dict[str, object]
    ) -> None:
        async with (
            asyncio.timeout(DEADLINE),
            AIOKafkaProducer(bootstrap_servers=address, linger_ms=20, **options) as producer,
        ):
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            await asyncio.gather(*sent)

    def read(self, address: str, topic: str, count: int, *, group: str | None = None) -> list[Read]:
        return asyncio.run(self.read_async(address, topic, count, group))

    async def read_async(
        self, address: str, topic: str, count: int, group: str | None
    ) -> list[Read]:
        consumer = self.consumer(address, group)
        await consumer.start()
        try:
            if group:
                consumer.subscribe([topic])
            else:
                partitions = await self.partitions(consumer, topic)
                consumer.assign(partitions)
                await consumer.seek_to_beginning(*partitions)
            reads: list[Read] = []
            deadline = Deadline(f"{count} records of {topic}")
            while len(reads) < count:
                deadline.check(reads)
                got = await consumer.getmany(timeout_ms=500, max_records=count - len(reads))
                reads += [as_read(record) for records in got.values() for record in records]
            if group:
                await consumer.commit()
            return reads
        finally:
            await consumer.stop()

    @staticmethod
    async def partitions(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
        metadata = await consumer._client.fetch_all_metadata()
        return [TopicPartition(topic, number) for number in metadata.partitions_for_topic(topic)]

    @staticmethod
    def consumer(address: str, group: str | None, **more: object) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**{**reading(address, group), **more})
