"""Records deleted by the admin side of foreign clients: readers begin later, also after a kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import Broker
from tests.conformance.clients import CLIENTS, DEADLINE, JAVA, Record
from tests.conformance.clients.aio import TopicPartition as AioPartition
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.clients.kafka_python import TopicPartition as PythonPartition
from tests.conformance.raw import EARLIEST, fetch, list_offset

RECORDS = [Record(b"k", b"%d" % number) for number in range(20)]
OFFSET_OUT_OF_RANGE = 1
ALL = -1


def confluent_delete(address: str, topic: str, offset: int, _: Path) -> int:
    admin = AdminClient({"bootstrap.servers": address})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    return deleted.result(DEADLINE).low_watermark


def aiokafka_delete(address: str, topic: str, offset: int, _: Path) -> int:
    async def delete_once() -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            place = AioPartition(topic, 0)
            reported = await admin.delete_records({place: RecordsToDelete(before_offset=offset)})
            return reported[place]
        finally:
            await admin.close()

    return asyncio.run(delete_once())


def kafka_python_delete(address: str, topic: str, offset: int, _: Path) -> int:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        place = PythonPartition(topic, 0)
        return admin.delete_records({place: offset})[place]["low_watermark"]
    finally:
        admin.close()


def java_delete(address: str, topic: str, offset: int, scratch: Path) -> int:
    """What kafka-delete-records.sh runs."""
    java = JAVA[1]
    assert isinstance(java, Java)
    order = scratch / "offsets.json"
    partition = {"topic": topic, "partition": 0, "offset": offset}
    order.write_text(json.dumps({"partitions": [partition], "version": 1}))
    output = java.run(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        f"--bootstrap-server={address}",
        f"--offset-json-file={order}",
    )
    return int(output.rsplit("low_watermark:", 1)[1])


@pytest.fixture
def filled(address: str, topic: str) -> str:
    CLIENTS[0].write(address, topic, RECORDS)
    return topic


@pytest.mark.parametrize(
    "delete",
    [
        confluent_delete,
        aiokafka_delete,
        kafka_python_delete,
        pytest.param(java_delete, marks=pytest.mark.java),
    ],
)
def test_readers_begin_where_records_were_deleted_up_to(
    address: str, filled: str, delete: object, tmp_path: Path
):
    assert delete(address, filled, 7, tmp_path) == 7

    assert list_offset(address, filled, 0, EARLIEST) == 7
    assert fetch(address, filled, 0, 6).error == OFFSET_OUT_OF_RANGE
    read = Confluent().read(address, filled, 13)
    assert [each.offset for each in read] == list(range(7, 20))
    assert delete(address, filled, ALL, tmp_path) == 20


def test_nothing_beyond_the_end_is_deleted(address: str, filled: str, tmp_path: Path):
    with pytest.raises(KafkaException) as refused:
        confluent_delete(address, filled, 21, tmp_path)

    assert refused.value.args[0].name() == "OFFSET_OUT_OF_RANGE"
    assert list_offset(address, filled, 0, EARLIEST) == 0


def test_deleted_records_stay_deleted_over_a_kill(own_broker: Broker, topic: str, tmp_path: Path):
    if own_broker.name == "kafka":
        pytest.skip("a real Kafka writes down once a minute where its partitions begin")
    address = own_broker.address
    CLIENTS[0].write(address, topic, RECORDS)
    confluent_delete(address, topic, 12, tmp_path)

    own_broker.kill9()
    own_broker.start()

    assert list_offset(address, topic, 0, EARLIEST) == 12
    CLIENTS[0].write(address, topic, [Record(b"k", b"new")])
    read = Confluent().read(address, topic, 9)
    assert [each.offset for each in read] == list(range(12, 21))
