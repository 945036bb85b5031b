"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from tests.conformance.clients.base import DEADLINE, Deadline, Read, Record


class Confluent:
    name = "confluent"
    cannot: frozenset[str] = frozenset()

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
        producer = self.producer(
            address,
            {"compression.type": codec, "acks": acks, "enable.idempotence": idempotent},
        )
        errors: list[KafkaError] = []
        for record in records:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(DEADLINE) == 0, "not acked in time"
        assert errors == []

    def read(self, address: str, topic: str, count: int, *, group: str | None = None) -> list[Read]:
        consumer = self.consumer(address, group or "reader-of-" + topic)
        if group:
            consumer.subscribe([topic])
        else:
            partitions = consumer.list_topics(topic, DEADLINE).topics[topic].partitions
            consumer.assign([Place(topic, number, OFFSET_BEGINNING) for number in partitions])
        reads: list[Read] = []
        deadline = Deadline(f"{count} records of {topic}")
        while len(reads) < count:
            deadline.check(reads)
            reads += [as_read(message) for message in consumer.consume(count - len(reads), 0.5)]
        if group:
            consumer.commit(asynchronous=False)
        consumer.close()
        return reads

    @staticmethod
    def producer(address: str, more: dict[str, object] | None = None) -> Producer:
        own = {"bootstrap.servers": address, "linger.ms": 20, "message.timeout.ms": 90_000}
        return Producer({**own, **(more or {})})

    @staticmethod
    def consumer(address: str, group: str, more: dict[str, object] | None = None) -> Consumer:
        own = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "topic.metadata.refresh.interval.ms": 1000,
            "check.crcs": True,
        }
        given = {**own, **(more or {})}
        if given.get("group.protocol") == "consumer":  # the broker's response sets these
            del given["session.timeout.ms"], given["heartbeat.interval.ms"]
        return Consumer(given)


def as_read(message: Message) -> Read:
    assert message.error() is None, message.error()
    return Read(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
