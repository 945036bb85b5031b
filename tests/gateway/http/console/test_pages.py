"""The console over a real server, about what clients that we did not write have sent."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from contextlib import closing

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.gateway.http.console.page import ConsoleClient
from tests.server import Server, start_server
from tests.waiting import wait_until

WAIT_S = 60


class Reading(pulsar.schema.Record):
    sensor = pulsar.schema.String()
    value = pulsar.schema.Integer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("node") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def console(server: Server) -> Iterator[ConsoleClient]:
    made = ConsoleClient(server.http)
    yield made
    made.client.close()


@pytest.fixture
def topic(server: Server) -> str:
    """A topic with 3 partitions and 300 messages of a Kafka producer."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.create_topics([NewTopic(name, 3)])[name].result()
    producer = Producer({"bootstrap.servers": server.kafka, "compression.type": "zstd"})
    for number in range(300):
        value = json.dumps({"number": number, "note": "<script>alert(1)</script>"})
        producer.produce(name, value, f"key-{number}", headers={"trace": b"abc"})
    producer.flush()
    return name


def commit(server: Server, group: str, *positions: TopicPartition) -> None:
    config = {"bootstrap.servers": server.kafka, "group.id": group}
    consumer = Consumer(config)
    consumer.commit(offsets=list(positions), asynchronous=False)
    consumer.close()


def test_the_root_leads_to_the_console(console: ConsoleClient):
    answer = console.client.get("/")

    assert answer.url.path == "/console/"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"


def test_topics_are_listed_and_searched(console: ConsoleClient, topic: str):
    page = console.get("/topics", q=topic)
    name = f"public/default/{topic}"

    assert page.row(name)[1:3] == ["3", "300"]
    described = console.follow(page, name)
    assert [row[0] for row in described.rows if len(row) == 8][1:] == ["0", "1", "2"]
    assert "retention.ms" in described.text


def test_messages_of_a_kafka_producer_are_shown_as_text(console: ConsoleClient, topic: str):
    page = console.get("/messages", name=topic, key="key-17", across="1")

    found = [row for row in page.rows if row[2] == "key-17"]
    assert len(found) == 1
    assert '"number": 17' in found[0][3]
    assert "<script>alert(1)</script>" in found[0][3]
    assert "<script>alert" not in page.html
    assert found[0][4] == "trace: abc"
    assert "1 found among 300 messages, to the end. Produce a message" in page.text


def test_messages_are_paged_in_both_directions(console: ConsoleClient, topic: str):
    newest = console.get("/messages", name=topic, partition=0)
    first = console.get("/messages", name=topic, partition=0, offset=0)
    second = console.follow(first, "Newer")

    offsets = [int(row[0].removesuffix("kafka")) for row in first.rows[1:] + second.rows[1:]]
    assert offsets[:51] == list(range(51))
    assert "Newer" not in newest.links
    assert "Older" in newest.links
    assert "Older" not in first.links


def test_a_message_of_a_pulsar_producer_is_decoded_by_its_schema(
    server: Server, console: ConsoleClient
):
    topic = f"sensors-{uuid.uuid4().hex[:8]}"
    client = pulsar.Client(server.pulsar)
    schema = pulsar.schema.AvroSchema(Reading)
    producer = client.create_producer(topic, schema=schema)
    consumer = client.subscribe(topic, "analytics", schema=schema)
    for number in range(5):
        producer.send(Reading(sensor="inside", value=number), partition_key=f"p{number}")
    consumer.acknowledge(consumer.receive(60_000))
    consumer.close()  # which sends the acknowledgement

    page = console.get("/messages", name=topic)
    assert '"value": 4' in page.rows[-1][3]
    assert page.rows[-1][3].startswith("Avro, schema 0")
    described = console.get("/topic", name=topic)
    assert '"sensor"' in described.text
    assert producer.producer_name() in described.text
    listed = console.get("/subscriptions", q=topic)
    assert listed.row("analytics")[3] == "4"
    subscription = console.follow(listed, "analytics")
    moved = console.send(subscription, "/subscription/reset", to="earliest")
    assert moved.row("0")[4] == "5"
    again = client.subscribe(topic, "analytics", schema=schema)
    assert again.receive(60_000).value().value == 0
    client.close()


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Basket { repeated Order orders = 1; }
message Order {
  int32 number = 1;
  google.protobuf.Timestamp at = 2;
  message Line { string item = 1; }
}
"""


def test_messages_of_protobuf_are_decoded_by_the_schema_of_the_registry(
    server: Server, console: ConsoleClient
):
    topic = f"baskets-{uuid.uuid4().hex[:8]}"
    with SchemaRegistryClient({"url": f"{server.http}/schema-registry"}) as registry:
        schema_id = registry.register_schema(f"{topic}-value", Schema(PROTO, "PROTOBUF"))
        descriptor = registry.get_schema(schema_id, fmt="serialized").schema_str
    file = FileDescriptorProto.FromString(base64.b64decode(descriptor))
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    basket = GetMessageClass(pool.FindMessageTypeByName("shop.Basket"))()
    basket.orders.add(number=5).at.FromJsonString("2026-01-31T12:00:00Z")
    line = GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line"))(item="lamp")
    frame = b"\0" + schema_id.to_bytes(4)
    payloads = {
        "alone": basket.SerializeToString(),
        "framed": frame + b"\0" + basket.SerializeToString(),
        "nested": frame + b"\x04\x02\x00" + line.SerializeToString(),  # 2 numbers: 1, 0
        "unknown": frame + b"\x02\x7e" + basket.SerializeToString(),
        "broken": b"\xff\xff\xff",
    }
    producer = Producer({"bootstrap.servers": server.kafka})
    for key, payload in payloads.items():
        producer.produce(topic, payload, key)
    producer.flush()

    rows = {row[2]: row[3] for row in console.get("/messages", name=topic).rows[1:]}
    for key in ("alone", "framed"):
        assert rows[key].startswith("Protobuf, schema 0")
        assert '"number": 5' in rows[key]
        assert '"at": "2026-01-31T12:00:00Z"' in rows[key]
    assert '"item": "lamp"' in rows["nested"]
    for key in ("unknown", "broken"):
        assert not rows[key].startswith("Protobuf")


def test_a_group_that_lags_is_found_and_reset(server: Server, console: ConsoleClient, topic: str):
    group = f"billing-{uuid.uuid4().hex[:8]}"
    commit(server, group, TopicPartition(topic, 1, 7))
    ends = {row[0]: row[4] for row in console.get("/topic", name=topic).rows if len(row) == 8}
    end = int(ends["1"])

    listed = console.get("/groups", q=group)
    assert listed.row(group)[5] == str(end - 7)
    described = console.follow(listed, group)
    assert described.row(f"public/default/{topic}")[2:5] == ["7", str(end), str(end - 7)]
    fields = {"topic": f"public/default/{topic}", "partition": "1"}
    moved = console.send(described, "/group/reset", to="offset", at="20", **fields)
    assert moved.row(f"public/default/{topic}")[2] == "20"
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": group})
    (position,) = consumer.committed([TopicPartition(topic, 1)], timeout=60)
    assert position.offset == 20
    consumer.close()


def test_a_produced_message_is_read_by_a_client(server: Server, console: ConsoleClient, topic: str):
    form = console.get("/produce", name=topic)
    shown = console.send(
        form, "/produce", key="by-hand", value="größe", headers="a: 1\nb: 2", partition="2"
    )

    assert shown.rows[-1][2] == "by-hand"
    offset = int(shown.rows[-1][0].removesuffix("kafka"))
    config = {"bootstrap.servers": server.kafka, "group.id": "reader"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 2, offset)])
    message = consumer.poll(60)
    assert (message.key(), message.value().decode()) == (b"by-hand", "größe")
    assert message.headers() == [("a", b"1"), ("b", b"2")]
    consumer.close()


def describe_topic(server: Server, name: str) -> tuple[int, dict[str, str]]:
    """The number of partitions and the settings, as a Kafka client sees them."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    found = admin.describe_topics(TopicCollection([name]))[name].result()
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    settings = admin.describe_configs([resource])[resource].result()
    return len(found.partitions), {key: entry.value for key, entry in settings.items()}


def test_a_topic_is_created_changed_and_deleted(server: Server, console: ConsoleClient):
    name = f"made-{uuid.uuid4().hex[:8]}"
    fields = {"name": name, "partitions": "2", "settings": "retention.ms=60000\n"}

    page = console.send(console.get("/topics"), "/topic/create", **fields)
    assert page.row("retention.ms")[1:] == ["60000", "of this topic"]
    count, settings = describe_topic(server, name)
    assert (count, settings["retention.ms"]) == (2, "60000")

    page = console.send(page, "/topic/partitions", partitions="4")
    page = console.send(page, "/topic/setting", key="cleanup.policy", value="compact")
    count, settings = describe_topic(server, name)
    assert (count, settings["cleanup.policy"]) == (4, "compact")
    assert settings["retention.ms"] == "60000"
    page = console.send(page, "/topic/setting", key="retention.ms", value="", reset="1")
    assert describe_topic(server, name)[1]["retention.ms"] != "60000"

    refused = console.send(page, "/topic/delete", 400, confirm="made")
    assert f"type its name: public/default/{name}" in refused.text
    assert describe_topic(server, name)[0] == 4
    console.send(page, "/topic/delete", confirm=f"public/default/{name}")
    console.get("/topic", 404, name=name)
    assert name not in AdminClient({"bootstrap.servers": server.kafka}).list_topics().topics


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"name": "a/b/c/d/e"}, 400, ""),
        ({"name": ""}, 400, ""),
        ({"name": "t", "partitions": "0"}, 400, ""),
        ({"name": "t", "partitions": "many"}, 400, "partitions is a number"),
        ({"name": "t", "partitions": "9" * 18}, 400, ""),
        ({"name": "t", "settings": "retention.ms"}, 400, "a setting is a line"),
        ({"name": "t", "settings": "retention.ms=soon"}, 400, "retention.ms"),
        ({"name": "t", "settings": "colour=blue"}, 400, "colour"),
        ({"name": "nowhere/here/t"}, 404, "there is no namespace"),
        ({"name": "non-persistent://public/default/t"}, 400, "non-persistent"),
        ({"name": "t-partition-1"}, 400, "part of another"),
    ],
)
def test_a_topic_that_cannot_be_created_gets_a_page_with_the_reason(
    console: ConsoleClient, fields: dict[str, str], status: int, reason: str
):
    page = console.send(console.get("/topics"), "/topic/create", status, **fields)

    assert "This did not work" in page.text
    assert reason in page.text


def test_a_taken_name_and_fewer_partitions_are_refused(console: ConsoleClient, topic: str):
    page = console.send(console.get("/topics"), "/topic/create", 409, name=topic)
    assert "the name is taken" in page.text

    shown = console.get("/topic", name=topic)
    assert "not more" in console.send(shown, "/topic/partitions", 400, partitions="1").text
    unknown = console.send(shown, "/topic/setting", 400, key="colour", value="1")
    assert "colour" in unknown.text


def test_users_and_acls_are_made_and_removed(console: ConsoleClient):
    name = f"user-{uuid.uuid4().hex[:8]}"

    page = console.send(console.get("/users"), "/user/create", name=name, password="a secret of it")
    assert page.row(name)
    assert console.send(page, "/user/create", 409, name=name, password="a secret of it")
    console.send(page, "/user/password", name=name, password="another secret")
    acl = {"resourceType": "TOPIC", "resourceName": "orders", "operation": "READ"}
    page = console.send(page, "/acl/add", principal=f"User:{name}", host="", **acl)
    shown = [row for row in page.rows if f"User:{name}" in row]
    assert len(shown) == 1
    assert "READ" in shown[0]
    refused = console.send(page, "/acl/add", 400, principal="alice", **acl)
    assert "This did not work" in refused.text
    page = console.send(page, "/acl/remove")
    assert not [row for row in page.rows if f"User:{name}" in row]

    console.send(page, "/user/delete", 400, name=name, confirm="other")
    page = console.send(page, "/user/delete", name=name, confirm=name)
    assert not [row for row in page.rows if name in row]
    console.send(page, "/user/delete", 404, name=name, confirm=name)


def test_a_quota_throttles_a_client_until_it_is_removed(
    server: Server, console: ConsoleClient, topic: str
):
    name = f"<client> {uuid.uuid4().hex[:8]}"
    entity = {"client-id": name, "key": "producer_byte_rate"}

    page = console.send(console.get("/quotas"), "/quota/set", rate="1000", **entity)
    assert page.row(name) == ["", name, "", "producer_byte_rate", "1\u202f000", "Remove"]
    throttled: list[object] = []
    config = {"bootstrap.servers": server.kafka, "client.id": name, "throttle_cb": throttled.append}
    producer = Producer(config)
    producer.produce(topic, b"x" * 3_000)
    assert producer.flush(WAIT_S) == 0
    wait_until(lambda: producer.poll(0.1) or throttled, "a throttled response")
    for wrong in (
        {"rate": "much"},
        {"rate": "-1"},
        {"rate": "1.5"},
        {"rate": "nan"},
        {"rate": "1", "key": "colour"},
        {"rate": "1", "client-id": ""},
        {"rate": "1", "ip": "192.0.2.1"},
        {"rate": "1", "client-id": "", "ip": "example.net", "key": "connection_creation_rate"},
    ):
        console.send(page, "/quota/set", 400, **{**entity, **wrong})

    page = console.send(page, "/quota/remove")
    assert not [row for row in page.rows if name in row]
    assert console.get("/quotas", q="client> ").rows == page.rows


def test_writers_are_shown(server: Server, console: ConsoleClient, topic: str):
    with closing(pulsar.Client(server.pulsar)) as client:
        writer = client.create_producer(topic + "-partition-1", producer_name="press")
        config = {
            "bootstrap.servers": server.kafka,
            "client.id": "shop",
            "enable.idempotence": True,
        }
        producer = Producer({**config, "enable.idempotence": True})
        producer.produce(topic, b"one", partition=2)
        producer.flush(WAIT_S)
        writer.send(b"two")
        page = console.get("/topic", name=topic)
        connections = console.get("/connections")

    (row,) = (each for each in page.rows if len(each) == 5 and each[0] == "2")
    assert int(row[1]) >= 0
    assert row[2:4] == ["0", "0"]
    assert page.row("press")[0] == "1"
    clients = [each[2] for each in connections.rows if len(each) == 3]
    assert any(each.startswith("shop ") and "rdkafka" in each for each in clients), clients
    assert any("Pulsar" in each for each in clients), clients


def test_the_figures_of_charts_move_with_the_messages(console: ConsoleClient, topic: str):
    before = console.client.get("/console/topic.json", params={"name": topic}).json()
    form = console.get("/produce", name=topic)
    console.send(form, "/produce", value="one more")
    after = console.client.get("/console/topic.json", params={"name": topic}).json()

    assert after["counters"]["messages"] == before["counters"]["messages"] + 1
    figures = console.client.get("/console/live.json").json()
    assert figures["counters"]["trilogue_messages_total"] >= 301
    assert figures["gauges"]["trilogue_connections"] > 0


def test_the_charts_of_a_subscription_follow_its_consumer(
    server: Server, console: ConsoleClient, topic: str
):
    parameters = {"topic": topic, "name": "audit"}
    with closing(pulsar.Client(server.pulsar)) as client:
        consumer = client.subscribe(
            f"{topic}-partition-1", "audit", initial_position=pulsar.InitialPosition.Earliest
        )
        page = console.client.get("/console/subscription", params=parameters).text
        first = console.client.get("/console/subscription.json", params=parameters).json()
        backlog = first["gauges"]["lag"]
        messages = [consumer.receive(WAIT_S * 1000) for _ in range(backlog)]
        consumer.acknowledge_cumulative(messages[-1])

        def read_figures() -> dict[str, dict[str, int]]:
            figures = console.client.get("/console/subscription.json", params=parameters).json()
            return figures if figures["gauges"]["lag"] == 0 else {}

        then = wait_until(read_figures, "the acknowledged messages")

    assert f'data-live="/console/subscription.json?topic=public%2Fdefault%2F{topic}' in page
    assert first["counters"]["offset"] == 0
    assert then["counters"]["offset"] == backlog > 50


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/static/app.py", 404),
        ("/static/%2e%2e%2fapp.py", 404),
        ("/topic?name=missing", 404),
        ("/topic?name=a/b", 400),
        ("/topic?name=", 400),
        ("/topic?name=non-persistent://public/default/x", 400),
        ("/messages?name=TOPIC&partition=99", 404),
        ("/messages?name=TOPIC&partition=-1", 400),
        ("/messages?name=TOPIC&offset=x", 400),
        ("/messages?name=TOPIC&time=tomorrow", 400),
        ("/messages?name=TOPIC&text=" + "x" * 2_000, 400),
        ("/messages?name=TOPIC&offset=999999999999", 200),
        ("/group?name=missing", 404),
        ("/tubemq-group?name=missing", 404),
        ("/subscription?topic=TOPIC&name=missing", 404),
        ("/connections", 200),
        ("/transactions", 200),
        ("/users", 200),
        ("/", 200),
    ],
)
def test_bad_input_gets_a_page_with_its_reason(
    console: ConsoleClient, topic: str, path: str, status: int
):
    answer = console.client.get("/console" + path.replace("TOPIC", topic))

    assert answer.status_code == status, answer.text
    assert "<h1>" in answer.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"partition": "9"}, 404),
        ({"partition": "x"}, 400),
        ({"headers": "no colon"}, 400),
        ({"value": "x" * (1 << 20)}, 413),
    ],
)
def test_bad_forms_are_refused(
    console: ConsoleClient, topic: str, fields: dict[str, str], status: int
):
    form = console.get("/produce", name=topic)
    page = console.send(form, "/produce", status, **fields)

    assert "This did not work" in page.text
