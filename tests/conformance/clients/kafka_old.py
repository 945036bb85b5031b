"""Clients as they were before record batches: Java's of 0.9 to 0.11, and two that can speak so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tools.servers.java import jars

from tests.conformance.clients.base import DEADLINE, Deadline, Read, Record
from tests.conformance.clients.building import BUILD, HERE, QUICK_START, QUIET, classes
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.driven import Driven
from tests.tools import require_jars, require_program


class OldJava(Driven):
    """org.apache.kafka:kafka-clients of one version; Produce v1-v3, Fetch v1-v5."""

    cannot = frozenset({"timestamps", "headers", "zstd"})

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version
        self.name = f"java-{version}"

    def require(self) -> None:
        require_jars(self.version)
        require_program("javac")

    def command(self) -> list[str | Path]:
        source = HERE / "java-old" / "OldDriver.java"
        path = f"{jars(self.version)}/*"
        made = classes(BUILD / "kafka-clients" / self.name, [source], path)
        return ["java", *QUICK_START, QUIET, "-cp", f"{made}:{path}", "OldDriver"]


class OldKafkaPython:
    """kafka-python configured for an old broker: Produce v0-v3, Fetch v0-v4."""

    cannot = frozenset({"timestamps", "headers", "zstd"})

    def __init__(self, *version: int) -> None:
        self.version = version
        self.name = f"kafka-python-as-of-{'.'.join(map(str, version))}"

    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=address,
            api_version=self.version,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=False,
            linger_ms=20,
        )
        sent = [producer.send(topic, key=each.key, value=each.value) for each in records]
        for each in sent:
            each.get(DEADLINE)
        producer.close(DEADLINE)

    def read(self, address: str, topic: str, count: int, *, group: str | None = None) -> list[Read]:
        assert group is None, "the first of these brokers had no groups"
        consumer = KafkaConsumer(
            bootstrap_servers=address, api_version=self.version, enable_auto_commit=False
        )
        places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        reads: list[Read] = []
        deadline = Deadline(f"{count} records of {topic}")
        while len(reads) < count:
            deadline.check(reads)
            for found in consumer.poll(500).values():
                reads += [
                    Read(
                        each.partition, each.offset, each.key, each.value, (), each.timestamp or -1
                    )
                    for each in found
                ]
        consumer.close()
        return reads


class OldLibrdkafka(Confluent):
    """librdkafka configured for an old broker, without ApiVersions requests."""

    cannot = frozenset({"timestamps", "headers", "zstd"})

    def __init__(self, version: str) -> None:
        self.version = version
        self.name = f"librdkafka-as-of-{version}"

    def producer(self, address: str, more: dict[str, object] | None = None) -> object:  # type: ignore[override]
        return Confluent.producer(address, {**(more or {}), **self.settings()})

    def consumer(self, address: str, group: str, more: dict[str, object] | None = None) -> object:  # type: ignore[override]
        return Confluent.consumer(address, group, {**(more or {}), **self.settings()})

    def settings(self) -> dict[str, object]:
        return {"api.version.request": False, "broker.version.fallback": self.version}


OLD_JAVA = [OldJava(version) for version in ("0.9.0.1", "0.10.2.2", "0.11.0.3")]
OLD_IN_PROCESS = [
    OldKafkaPython(0, 8, 0),
    OldKafkaPython(0, 10),
    OldLibrdkafka("0.8.2.2"),
    OldLibrdkafka("0.10.2"),
]
