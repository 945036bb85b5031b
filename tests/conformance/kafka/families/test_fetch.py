"""What every library reads of a topic that is larger than a fetch, in all codecs it knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from tests.brokers import Broker
from tests.conformance.clients import EVERYONE, Client, each
from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.base import DEADLINE
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_programs import JAVA_2
from tests.conformance.conftest import unique

PARTITIONS, RECORDS, VALUE_BYTES = (
    3,
    200,
    4000,
)  # 2.4 MB, where a fetch requests 1 MiB of each partition
CODECS = ("none", "gzip", "snappy", "lz4")
Place = tuple[int, int]


def fill(address: str, topic: str, codecs: Sequence[str]) -> dict[Place, bytes]:
    """Stretches of records in each codec, and a last one that is as large as it may be."""
    CONFLUENT.create(address, topic, PARTITIONS)
    written: dict[Place, bytes] = {}
    for stretch, codec in enumerate(codecs):
        producer: Producer = Confluent.producer(address, {"compression.type": codec})
        for number in range(RECORDS // len(codecs)):
            for partition in range(PARTITIONS):
                offset = stretch * (RECORDS // len(codecs)) + number
                value = b"%d/%d " % (partition, offset) * (VALUE_BYTES // 8)
                producer.produce(topic, value, partition=partition)
                written[partition, offset] = value
        assert producer.flush(DEADLINE) == 0
    last = Confluent.producer(address)
    for partition in range(PARTITIONS):
        value = bytes([65 + partition]) * 990_000
        last.produce(topic, value, partition=partition)
        written[partition, RECORDS] = value
    assert last.flush(DEADLINE) == 0
    return written


@pytest.fixture(scope="module")
def large(broker: Broker) -> tuple[str, dict[Place, bytes]]:
    topic = unique("larger-than-a-fetch")
    return topic, fill(broker.address, topic, CODECS)


@pytest.mark.parametrize("client", each(EVERYONE))
def test_a_topic_larger_than_a_fetch_is_read_whole(
    address: str, large: tuple[str, dict[Place, bytes]], client: Client
):
    topic, written = large

    reads = client.read(address, topic, len(written))

    assert written == {(read.partition, read.offset): read.value for read in reads}
    for partition in range(PARTITIONS):
        offsets = [read.offset for read in reads if read.partition == partition]
        assert offsets == list(range(RECORDS + 1))


@pytest.mark.java
def test_a_client_without_zstd_gets_an_error(address: str, topic: str):
    """Of a topic of zstd, Fetch before version 10 answers 76: 2.0.0 has no name for that and reads
    nothing; a real 3.9.1 sends null besides, which it cannot parse; 4.3.1 sends it the zstd."""
    CONFLUENT.create(address, topic, 1, {"compression.type": "zstd"})
    producer: Producer = Confluent.producer(address, {"compression.type": "zstd"})
    producer.produce(topic, b"v" * 1000)
    assert producer.flush(DEADLINE) == 0

    with pytest.raises(Exception, match=r"0 of 1 in time|record_set|compression type id: 4"):
        JAVA_2.read(address, topic, 1, wait_ms=3_000)
