"""The REST proxy as its documentation uses it: messages, consumers, topics, version 3."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from tests.conformance.clients.building import BUILD, node_folder
from tests.server import Server, start_server
from tests.tools import require_program

NUMBERS = itertools.count(1)
JSON, BINARY = "application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json"
V2 = "application/vnd.kafka.v2+json"
EMPTY_REPLIES_MAX = 12  # of 5 s each


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("node") / "data") as made:
        yield made


@pytest.fixture
def rest(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.http}/kafka-rest", timeout=60) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"rest-{next(NUMBERS)}"


def produce(rest: httpx.Client, topic: str, *values: object, media: str = JSON) -> list[int]:
    """Produce messages in one request, and return their offsets."""
    body = {"records": [{"value": value} for value in values]}
    reply = rest.post(f"/topics/{topic}", headers={"content-type": media}, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == V2
    return [each["offset"] for each in reply.json()["offsets"]]


def make_instance(rest: httpx.Client, topic: str, **how: object) -> str:
    """Make a consumer instance that is subscribed, and return its address."""
    body = {"format": "json", "auto.offset.reset": "earliest", **how}
    made = rest.post(f"/consumers/group-of-{topic}", headers={"content-type": V2}, json=body)
    assert made.status_code == 200, made.text
    address = made.json()["base_uri"]
    assert rest.post(f"{address}/subscription", json={"topics": [topic]}).status_code == 204
    return str(address)


def read(rest: httpx.Client, address: str, count: int, **query: object) -> list[dict]:
    """Read until so many messages have come; a group takes its time to assign partitions."""
    found: list[dict] = []
    empty = 0
    while len(found) < count and empty < EMPTY_REPLIES_MAX:
        reply = rest.get(f"{address}/records", params={"timeout": 5_000, **query})
        assert reply.status_code == 200, reply.text
        found += reply.json()
        empty += not reply.json()
    assert len(found) >= count, f"{found} within {EMPTY_REPLIES_MAX} empty replies"
    return found


def test_messages_of_the_proxy_are_those_of_kafka(server, rest, topic):
    body = {"records": [{"key": "a", "value": {"foo": "bar"}}, {"value": None, "key": "b"}]}
    reply = rest.post(f"/topics/{topic}", headers={"content-type": JSON}, json=body)
    assert reply.json() == {
        "offsets": [
            {"partition": 0, "offset": offset, "error_code": None, "error": None}
            for offset in (0, 1)
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = consumer.consume(2, 60)
    consumer.close()
    assert [(each.key(), each.value()) for each in found] == [
        (b'"a"', b'{"foo":"bar"}'),
        (b'"b"', None),
    ]


def test_a_consumer_reads_what_kafka_clients_produce(server, rest, topic):
    producer = Producer({"bootstrap.servers": server.kafka})
    for value in (b"\x00\xff", b""):
        producer.produce(topic, value, key=b"k")
    producer.flush(60)
    address = make_instance(rest, topic, format="binary")

    found = read(rest, address, 2)
    assert [base64.b64decode(each["value"]) for each in found] == [b"\x00\xff", b""]
    assert {(each["topic"], each["key"], each["partition"]) for each in found} == {
        (topic, base64.b64encode(b"k").decode(), 0)
    }
    assert rest.delete(address).status_code == 204
    assert rest.get(f"{address}/records").json()["error_code"] == 40403


def test_another_instance_goes_on_at_the_committed_offset(rest, topic):
    produce(rest, topic, *range(4))
    place = {"topic": topic, "partition": 0}
    first = make_instance(rest, topic, **{"auto.commit.enable": "false"})
    read(rest, first, 4)
    assert rest.post(f"{first}/offsets", json={"offsets": [{**place, "offset": 1}]}).is_success
    committed = rest.request("GET", f"{first}/offsets", json={"partitions": [place]})
    assert committed.json() == {"offsets": [{**place, "offset": 2, "metadata": ""}]}
    rest.delete(first)

    second = make_instance(rest, topic)
    assert [each["value"] for each in read(rest, second, 2)] == [2, 3]
    assert rest.post(f"{second}/offsets").is_success, "what was read"
    committed = rest.request("GET", f"{second}/offsets", json={"partitions": [place]})
    assert committed.json()["offsets"][0]["offset"] == 4
    rest.delete(second)


def test_positions_and_assignments(rest, topic):
    produce(rest, topic, *range(3))
    place = {"topic": topic, "partition": 0}
    made = rest.post(f"/consumers/{topic}", json={"format": "json", "name": "by-hand"}).json()
    address = made["base_uri"]
    assert made["instance_id"] == "by-hand"
    again = rest.post(f"/consumers/{topic}", json={"format": "json", "name": "by-hand"})
    assert (again.status_code, again.json()["error_code"]) == (409, 40902)
    assert rest.post(f"{address}/assignments", json={"partitions": [place]}).status_code == 204
    assert rest.get(f"{address}/assignments").json() == {"partitions": [place]}

    assert rest.post(f"{address}/positions/beginning", json={"partitions": [place]}).is_success
    assert [each["value"] for each in read(rest, address, 1, max_bytes=1)] == [0]
    assert rest.post(f"{address}/positions", json={"offsets": [{**place, "offset": 2}]}).is_success
    assert [each["value"] for each in read(rest, address, 1)] == [2]
    assert rest.post(f"{address}/positions/end", json={"partitions": [place]}).is_success
    assert rest.get(f"{address}/records", params={"timeout": 10}).json() == []
    rest.delete(address)


def test_an_instance_subscribes_or_is_assigned(rest, topic):
    """Java's consumer refuses another way until it is unsubscribed, and seeks what it reads."""
    produce(rest, topic, 1)
    place = {"topic": topic, "partition": 0}
    address = make_instance(rest, topic)

    def choose(path: str, **body: object) -> tuple[int, int]:
        reply = rest.post(f"{address}/{path}", json=body)
        return reply.status_code, reply.json()["error_code"] if reply.content else 0

    refused = (409, 40903)
    assert choose("subscription", topics=[topic], topic_pattern="b.*") == refused
    assert choose("subscription", topic_pattern="b.*") == refused
    assert choose("assignments", partitions=[place]) == refused
    for path in ("positions/beginning", "positions/end"):
        assert choose(path, partitions=[{**place, "partition": 9}]) == refused
    assert choose("positions", offsets=[{**place, "topic": "faulty", "offset": 1}]) == refused
    assert choose("subscription", topics=[topic]) == (204, 0)
    assert choose("subscription", topics=[]) == (204, 0)
    assert rest.get(f"{address}/subscription").json() == {"topics": []}
    assert choose("assignments", partitions=[place]) == (204, 0)
    assert choose("subscription", topics=[topic]) == refused
    assert choose("positions", offsets=[{**place, "offset": 0}]) == (204, 0)
    assert [each["value"] for each in read(rest, address, 1)] == [1]
    rest.delete(address)


def test_a_path_may_end_with_a_slash(rest, topic):
    body = {"records": [{"value": 1, "partition": "0"}]}  # numbers may be texts
    stored = rest.post(f"/topics/{topic}/", headers={"content-type": JSON}, json=body)
    assert stored.json()["offsets"][0]["offset"] == 0
    assert topic in rest.get("/topics/").json()
    made = rest.post(f"/consumers/{topic}/", json={"name": "slash"}).json()
    assert made["base_uri"].endswith(f"/consumers/{topic}/instances/slash")
    assert rest.delete(f"{made['base_uri']}/").status_code == 204


def test_a_message_in_another_format_is_named_and_kept(rest, topic):
    produce(rest, topic, 1)
    produce(rest, topic, base64.b64encode(b"{no json").decode(), media=BINARY)
    address = make_instance(rest, topic)

    assert [each["value"] for each in read(rest, address, 1)] == [1]
    for _ in range(2):
        reply = rest.get(f"{address}/records", params={"timeout": 10_000})
        assert (reply.status_code, reply.json()["error_code"]) == (422, 42208)
    refused = rest.get(f"{address}/records", headers={"accept": BINARY})
    assert (refused.status_code, refused.json()["error_code"]) == (406, 40601)
    rest.delete(address)


def test_topics_and_partitions_are_described(rest, topic):
    produce(rest, topic, 1, 2)

    assert topic in rest.get("/topics").json()
    found = rest.get(f"/topics/{topic}").json()
    replica = {"broker": 1, "leader": True, "in_sync": True}
    assert found["partitions"] == [{"partition": 0, "leader": 1, "replicas": [replica]}]
    assert found["configs"]["cleanup.policy"] == "delete"
    assert rest.get(f"/topics/{topic}/partitions").json() == found["partitions"]
    assert rest.get(f"/topics/{topic}/partitions/0").json() == found["partitions"][0]
    offsets = rest.get(f"/topics/{topic}/partitions/0/offsets").json()
    assert offsets == {"beginning_offset": 0, "end_offset": 2}
    assert rest.get("/brokers").json() == {"brokers": [1]}


@pytest.mark.parametrize(
    ("request_line", "media", "body", "code"),
    [
        ("GET /topics/missing", V2, "", 40401),
        ("GET /topics/missing/partitions/x", V2, "", 404),
        ("GET /nothing", V2, "", 404),
        ("DELETE /topics", V2, "", 405),
        ("POST /topics/t", JSON, "{", 422),
        ("POST /topics/t", JSON, "[" * 100_000, 422),
        ("POST /topics/t", JSON, '{"records": []}', 422),
        ("POST /topics/t", JSON, '{"records": [' + "{}," * 10_000 + "{}]}", 422),
        ("POST /topics/t", JSON, '{"records": [{"valur": 7}]}', 422),  # not a tombstone
        ("POST /topics/t", BINARY, '{"records": [{"value": "%"}]}', 422),
        ("POST /topics/t", BINARY, '{"records": [{"value": 7}]}', 422),
        ("POST /topics/t", "application/vnd.kafka.xml.v2+json", "{}", 415),
        ("POST /topics/a*b", JSON, '{"records": [{"value": 7}]}', 42202),
        ("POST /topics/t", JSON, '{"records": [{"value": "' + "x" * (1 << 20) + '"}]}', 413),
        ("POST /consumers/g", V2, '{"format": "xml"}', 422),
        ("POST /consumers/g", V2, '{"auto.offset.reset": "middle"}', 422),
        ("POST /consumers/g", V2, '{"fetch.min.bytes": "many"}', 422),
        ("POST /consumers/g", V2, '{"fetch.min.bytes": -10}', 42204),
        ("GET /consumers/g/instances/i/records", V2, "", 40403),
        ("GET /v3/clusters/other/topics", V2, "", 404),
    ],
)
def test_a_wrong_request_gets_its_code(rest, request_line, media, body, code):
    method, path = request_line.split()
    reply = rest.request(method, path, headers={"content-type": media}, content=body)
    assert (reply.status_code, reply.json()["error_code"]) == (int(str(code)[:3]), code)


def test_version_3_creates_fills_and_deletes_a_topic(rest, topic):
    cluster = rest.get("/v3/clusters").json()["data"][0]
    root = f"/v3/clusters/{cluster['cluster_id']}"
    assert rest.get(root).json() == cluster
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    body = {"topic_name": topic, "partitions_count": 2, "configs": configs}
    created = rest.post(f"{root}/topics", json=body)
    assert created.status_code == 201
    assert created.json()["partitions_count"] == 2
    assert rest.post(f"{root}/topics", json=body).json()["error_code"] == 40002
    assert rest.get(f"{root}/topics/{topic}").json() == created.json()
    assert topic in {each["topic_name"] for each in rest.get(f"{root}/topics").json()["data"]}
    setting = rest.get(f"{root}/topics/{topic}/configs/cleanup.policy").json()
    assert (setting["value"], setting["is_default"]) == ("compact", False)
    partitions = rest.get(f"{root}/topics/{topic}/partitions").json()["data"]
    assert [each["partition_id"] for each in partitions] == [0, 1]

    records = [
        {"partition_id": 0, "key": {"type": "STRING", "data": "k"},
         "value": {"type": "JSON", "data": {"a": 1}}},
        {"partition_id": 0, "key": {"type": "BINARY", "data": "aw=="},
         "value": {"type": "BINARY", "data": "YQ=="}, "headers": [{"name": "h", "value": "YQ=="}]},
    ]  # fmt: skip
    reply = rest.post(
        f"{root}/topics/{topic}/records", content="\n".join(json.dumps(each) for each in records)
    )
    answers = [json.loads(each) for each in reply.text.splitlines() if each]
    assert [(each["error_code"], each["offset"]) for each in answers] == [(200, 0), (200, 1)]
    missing = rest.post(f"{root}/topics/{topic}/records", json={"partition_id": 9})
    assert missing.json()["error_code"] == 40401
    assert rest.delete(f"{root}/topics/{topic}").status_code == 204
    assert rest.get(f"{root}/topics/{topic}").status_code == 404


def test_version_3_describes_groups(rest, topic):
    produce(rest, topic, 1)
    address = make_instance(rest, topic)
    read(rest, address, 1)
    root = f"/v3/clusters/{rest.get('/v3/clusters').json()['data'][0]['cluster_id']}"
    name = f"group-of-{topic}"

    groups = rest.get(f"{root}/consumer-groups").json()["data"]
    assert name in {each["consumer_group_id"] for each in groups}
    assert rest.get(f"{root}/consumer-groups/{name}").json()["state"] == "STABLE"
    members = rest.get(f"{root}/consumer-groups/{name}/consumers").json()["data"]
    assert [each["client_id"] for each in members] == ["kafka-rest"]
    assert rest.get(f"{root}/consumer-groups/none").status_code == 404
    rest.delete(address)


def test_the_page_of_another_server_produces_nothing(rest, topic):
    headers = {"content-type": JSON, "origin": "http://elsewhere.example"}
    body = {"records": [{"value": 1}]}
    assert rest.post(f"/topics/{topic}", headers=headers, json=body).status_code == 403
    assert topic not in rest.get("/topics").json()


@pytest.mark.full
def test_the_kafka_rest_package_of_npm_works(server, topic):
    """It sends the media types of version 1."""
    require_program("node")
    require_program("npm")
    made = node_folder(Path(__file__).parent / "node-kafka-rest", BUILD / "kafka-rest-npm")
    done = subprocess.run(
        ["node", made / "driver.js", f"{server.http}/kafka-rest", topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = {each["what"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert {name: each["answer"] for name, each in found.items() if name != "missing"} == {
        "produced": [0, 1],
        "keyed": [2],
        "topics": True,
        "partitions": 1,
        "brokers": [1],
    }
    assert "404" in found["missing"]["error"]


@pytest.mark.parametrize(
    ("level", "expected"), [("read_uncommitted", [1, 2, 3]), ("read_committed", [2, 3])]
)
def test_an_instance_reads_aborted_messages_unless_it_refuses(server, rest, topic, level, expected):
    made = Producer({"bootstrap.servers": server.kafka, "transactional.id": topic})
    made.init_transactions(60)
    for value, ending in ((b"1", made.abort_transaction), (b"2", made.commit_transaction)):
        made.begin_transaction()
        made.produce(topic, value, partition=0)
        assert made.flush(60) == 0
        ending(60)
    produce(rest, topic, 3)

    address = make_instance(rest, topic, **{"isolation.level": level})

    assert [each["value"] for each in read(rest, address, len(expected))] == expected
    assert rest.delete(f"{address}/subscription").status_code == 204
    assert rest.post(f"{address}/subscription", json={"topics": [topic]}).status_code == 204
    where = {"partitions": [{"topic": topic, "partition": 0}]}
    while rest.post(f"{address}/positions/beginning", json=where).status_code != 204:
        rest.get(f"{address}/records", params={"timeout": 100})  # it is assigned by polling
    assert [each["value"] for each in read(rest, address, len(expected))] == expected


def test_json_is_returned_as_it_was_produced(server, rest, topic):
    producer = Producer({"bootstrap.servers": server.kafka})
    for value in (b' {"a": 1.50, "b": "\xc3\xa4"}', b'{"a": "\xff"}'):
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    address = make_instance(rest, topic)

    assert [each["value"] for each in read(rest, address, 1)] == [{"a": 1.5, "b": "ä"}]
    refused = rest.get(f"{address}/records", params={"timeout": 5_000})
    assert refused.status_code == 422
    assert "utf-8" in refused.json()["message"]


def test_an_unknown_isolation_level_is_refused(rest):
    body = {"isolation.level": "serializable"}
    refused = rest.post("/consumers/any", headers={"content-type": V2}, json=body)

    assert refused.status_code == 422
    assert "read_committed" in refused.json()["message"]
