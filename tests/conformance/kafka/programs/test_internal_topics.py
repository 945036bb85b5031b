"""`__consumer_offsets` and `__transaction_state` as Kafka's own tools read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conformance.asking import Asker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.kafka_tools import TOOLS_3, TOOLS_4, Tools
from tests.server import Server, start_server
from trilogue.broker.internal.state_topic import java_hash
from trilogue.wire.kafka.groups.share import ShareGroupHeartbeatRequest

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"
GROUPS = [f"group-{number}" for number in range(4)]
LISTEN = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0"}

pytestmark = pytest.mark.timeout(300)


def commit(address: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition("orders", 0, offset, f"at {offset}")], asynchronous=False
    )
    consumer.close()


def print_records(
    tools: Tools, address: str, topic: str, formatter: str, *, name: str, count: int
) -> list[dict[str, Any]]:
    """Return what the console consumer prints of the records of a name's partition."""
    output = tools.run(
        CONSOLE,
        *("--bootstrap-server", address, "--topic", topic, "--partition", java_hash(name) % 50),
        *("--offset", "earliest", "--max-messages", count),
        *("--timeout-ms", int(DEADLINE * 1_000)),
        *("--formatter", f"{FORMATTERS}.{formatter}"),
    )
    found = re.findall(r'\{"key":\{.*?\}\}\}(?=\{"key"|Processed|\s|$)', output.text)
    assert found, output.text
    return [json.loads(each) for each in found]


def read_offsets(address: str, count: int) -> dict[str, int]:
    """Return the last offset of each group by name, from records of all 50 partitions."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False}
    )
    topic = consumer.list_topics(OFFSETS, timeout=DEADLINE).topics[OFFSETS]
    assert len(topic.partitions) == 50
    consumer.assign([TopicPartition(OFFSETS, number, 0) for number in topic.partitions])
    found: dict[str, int] = {}
    seen = 0
    while seen < count:
        message = consumer.poll(DEADLINE)
        assert message is not None, f"{seen} of {count}"
        assert message.error() is None
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        if key[:2] == b"\0\1":
            seen += 1
            size = int.from_bytes(key[2:4], "big")
            found[key[4 : 4 + size].decode()] = int.from_bytes(value[2:10], "big")
    consumer.close()
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("internal") / "data"
    settings = {"groups.initial-delay": "0s"}  # partitions with the first heartbeat
    with start_server(data, listen=LISTEN, settings=settings) as server:
        IN_PROCESS[0].write(server.kafka, "orders", [Record(None, b"value")] * 10)
        yield server.kafka
        assert server.stop() == 0


@pytest.mark.java
@pytest.mark.parametrize("tools", [TOOLS_3, TOOLS_4], ids=lambda tools: tools.version)
def test_formatters_of_kafka_print_offsets(address: str, tools: Tools):
    group = f"readers-{tools.version}"
    commit(address, group, 3)
    AdminClient({"bootstrap.servers": address}).list_topics(OFFSETS, timeout=DEADLINE)
    commit(address, group, 4)

    records = print_records(tools, address, OFFSETS, "OffsetsMessageFormatter", name=group, count=2)
    version = "version" if tools is TOOLS_3 else "type"
    for record, offset in zip(records, (3, 4), strict=True):
        assert record["value"]["data"].pop("commitTimestamp") > 0
        assert record == {
            "key": {version: 1, "data": {"group": group, "topic": "orders", "partition": 0}},
            "value": {
                "version": 3,
                "data": {"offset": offset, "leaderEpoch": -1, "metadata": f"at {offset}\0"},
            },
        }


@pytest.mark.java
def test_formatters_of_kafka_print_groups_and_transactions(address: str):
    client = AdminClient({"bootstrap.servers": address})
    for topic in (OFFSETS, TRANSACTIONS):
        client.list_topics(topic, timeout=DEADLINE)
    IN_PROCESS[0].read(address, "orders", 10, group="members")
    producer = Producer({"bootstrap.servers": address, "transactional.id": "payments"})
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    producer.produce("orders", b"value")
    producer.commit_transaction(DEADLINE)

    (group, *_) = print_records(
        TOOLS_4, address, OFFSETS, "GroupMetadataMessageFormatter", name="members", count=1
    )
    value = group["value"]["data"]
    (member,) = value["members"]
    assert (group["key"]["data"]["group"], value["protocolType"]) == ("members", "consumer")
    assert value["leader"] == member["memberId"]
    assert member["clientHost"].endswith("127.0.0.1")
    assert member["subscription"]
    assert member["assignment"]

    states = print_records(
        TOOLS_4, address, TRANSACTIONS, "TransactionLogMessageFormatter", name="payments", count=4
    )
    assert {each["key"]["data"]["transactionalId"] for each in states} == {"payments"}
    values = [each["value"]["data"] for each in states]
    assert [each["transactionStatus"] for each in values] == [0, 1, 2, 4]
    assert values[1]["transactionPartitions"] == [{"topic": "orders", "partitionIds": [0]}]


@pytest.mark.java
def test_formatters_of_kafka_print_members_of_share_groups(address: str):
    AdminClient({"bootstrap.servers": address}).list_topics(OFFSETS, timeout=DEADLINE)
    asker = Asker(address)
    request = ShareGroupHeartbeatRequest(
        group_id="sharers", member_id="s", subscribed_topic_names=["orders"]
    )
    assert not asker.request(request, 1).error_code
    asker.close()

    records = print_records(
        TOOLS_4, address, OFFSETS, "ShareGroupMessageFormatter", name="sharers", count=6
    )
    values = {each["key"]["type"]: each["value"]["data"] for each in records}
    assert values.keys() == set(range(10, 16))
    assert values[10]["subscribedTopicNames"] == ["orders"]
    assert values[11]["epoch"] == values[12]["assignmentEpoch"] == values[14]["memberEpoch"]
    (target,) = values[13]["topicPartitions"]
    assert values[14]["assignedPartitions"] == [target]
    assert target["partitions"]


def test_clients_cannot_write_to_it(address: str):
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": address})
    producer.list_topics(OFFSETS, timeout=DEADLINE)
    for key in (b"key", None):
        producer.produce(OFFSETS, b"value", key, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE) == 0
    assert [each.code() for each in errors] == [KafkaError.TOPIC_EXCEPTION] * 2


def test_offsets_go_on_after_a_kill_on_several_nodes(tmp_path: Path):
    """Each group's records are where its coordinator is, and none is lost or repeated."""

    def start() -> Server:
        return start_server(tmp_path / "data", listen=LISTEN, nodes=3)

    with start() as server:
        IN_PROCESS[0].write(server.kafka, "orders", [Record(None, b"value")] * 10)
        for group in GROUPS[:2]:
            commit(server.kafka, group, 1)
        assert read_offsets(server.kafka, 2) == dict.fromkeys(GROUPS[:2], 1)
        for group in GROUPS:
            commit(server.kafka, group, 5)
        assert read_offsets(server.kafka, 6) == dict.fromkeys(GROUPS, 5)
        server.kill9()
    with start() as server:
        assert read_offsets(server.kafka, 6) == dict.fromkeys(GROUPS, 5)
        for group in GROUPS:
            commit(server.kafka, group, 7)
        assert read_offsets(server.kafka, 10) == dict.fromkeys(GROUPS, 7)
        assert server.stop() == 0
