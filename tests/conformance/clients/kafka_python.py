"""kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from tests.conformance.clients.base import DEADLINE, Deadline, Read, Record

with warnings.catch_warnings():  # it reads its schemas through a deprecated function
    warnings.simplefilter("ignore")
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition


class KafkaPython:
    name = "kafka-python"
    cannot = frozenset({"nothing at all", "null headers"})

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
        producer = KafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(DEADLINE)
            for future in sent:
                future.get(DEADLINE)
        finally:
            producer.close(DEADLINE)

    def read(self, address: str, topic: str, count: int, *, group: str | None = None) -> list[Read]:
        consumer = self.consumer(address, group)
        try:
            if group:
                consumer.subscribe([topic])
            else:
                partitions = [
                    TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)
                ]
                consumer.assign(partitions)
                consumer.seek_to_beginning(*partitions)
            reads: list[Read] = []
            deadline = Deadline(f"{count} records of {topic}")
            while len(reads) < count:
                deadline.check(reads)
                got = consumer.poll(500, max_records=count - len(reads))
                reads += [as_read(record) for records in got.values() for record in records]
            if group:
                consumer.commit()
            return reads
        finally:
            consumer.close()

    @staticmethod
    def consumer(address: str, group: str | None, **more: object) -> KafkaConsumer:
        return KafkaConsumer(**{**reading(address, group), **more})


def reading(address: str, group: str | None) -> dict[str, object]:
    """Settings of a consumer, which aiokafka took over from kafka-python by name."""
    return {
        "bootstrap_servers": address,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 500,
    }


def as_read(record: object) -> Read:
    return Read(
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple(record.headers),
        record.timestamp,
    )
