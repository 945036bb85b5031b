"""Version 3 of the REST proxy: settings, rules, lag, streams and batches of records."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.gateway.http.kafka_rest.test_rest import make_instance, produce, read
from tests.server import Server, start_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("node") / "data") as made:
        yield made


@pytest.fixture
def rest(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.http}/kafka-rest", timeout=60) as made:
        yield made


@pytest.fixture
def root(rest: httpx.Client) -> str:
    return f"/v3/clusters/{rest.get('/v3/clusters').json()['data'][0]['cluster_id']}"


def find_config(server: Server, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    return admin.describe_configs([resource])[resource].result(60)[name].value


def test_settings_of_a_topic_are_changed_and_reset(server, rest, root):
    rest.post(f"{root}/topics", json={"topic_name": "set"})
    path = f"{root}/topics/set/configs"
    assert rest.put(f"{path}/retention.ms", json={"value": "60000"}).status_code == 204
    assert find_config(server, "set", "retention.ms") == "60000"
    found = rest.get(f"{path}/retention.ms").json()
    assert (found["value"], found["source"]) == ("60000", "DYNAMIC_TOPIC_CONFIG")
    assert {"name", "value", "source"} == set(found["synonyms"][0])
    assert rest.delete(f"{path}/retention.ms").status_code == 204
    assert rest.get(f"{path}/retention.ms").json()["is_default"]

    changes = [
        {"name": "cleanup.policy", "value": "compact"},
        {"name": "retention.ms", "operation": "DELETE"},
    ]
    only = {"data": changes, "validate_only": True}
    assert rest.post(f"{path}:alter", json=only).status_code == 204
    assert find_config(server, "set", "cleanup.policy") == "delete"
    assert rest.post(f"{path}:alter", json={"data": changes}).status_code == 204
    assert find_config(server, "set", "cleanup.policy") == "compact"

    wrong = [{"name": "cleanup.policy", "value": "burn"}]
    assert rest.post(f"{path}:alter", json={"data": wrong}).json()["error_code"] == 40002
    assert rest.put(f"{path}/no.such", json={"value": "1"}).status_code == 404
    every = rest.get(f"{root}/topics/-/configs").json()["data"]
    assert "compact" in {each["value"] for each in every if each["topic_name"] == "set"}


def test_settings_of_brokers_are_changed_and_reset(rest, root):
    node = rest.get(f"{root}/brokers").json()["data"][0]["broker_id"]
    assert rest.get(f"{root}/brokers/{node}").json()["broker_id"] == node
    one, every = f"{root}/brokers/{node}/configs", f"{root}/broker-configs"
    assert rest.put(f"{every}/log.retention.ms", json={"value": "1000000"}).status_code == 204
    (found,) = rest.get(every).json()["data"]
    assert (found["name"], found["value"], found["config_type"]) == (
        "log.retention.ms", "1000000", "BROKER",
    )  # fmt: skip
    assert rest.get(f"{one}/log.retention.ms").json()["value"] == "1000000"
    assert rest.delete(f"{every}/log.retention.ms").status_code == 204
    assert rest.get(every).json()["data"] == []
    assert rest.get(f"{root}/brokers/-/configs").json()["data"][0]["broker_id"] == node


def test_partitions_are_added_and_their_offsets_shown(rest, root):
    produce(rest, "grow", 1, 2)
    assert rest.patch(f"{root}/topics/grow", json={"partitions_count": 3}).json()[
        "partitions_count"
    ] == 3  # fmt: skip
    offsets = rest.get(f"{root}/topics/grow/partitions/0/offset").json()
    assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, 2)


def test_lag_of_a_group(rest, root):
    produce(rest, "lagging", *range(5))
    address = make_instance(rest, "lagging", **{"auto.commit.enable": "false"})
    read(rest, address, 5)
    group = f"{root}/consumer-groups/group-of-lagging"
    assert rest.get(f"{group}/lags").status_code == 404
    place = {"topic": "lagging", "partition": 0, "offset": 1}
    assert rest.post(f"{address}/offsets", json={"offsets": [place]}).is_success

    (lag,) = rest.get(f"{group}/lags").json()["data"]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 5, 3)
    assert rest.get(f"{group}/lags/lagging/partitions/0").json() == lag
    summary = rest.get(f"{group}/lag-summary").json()
    assert (summary["max_lag"], summary["total_lag"]) == (3, 3)
    assert summary["max_lag_consumer_id"] == lag["consumer_id"]
    (assigned,) = rest.get(f"{group}/consumers/{lag['consumer_id']}/assignments").json()["data"]
    assert (assigned["topic_name"], assigned["partition_id"]) == ("lagging", 0)
    rest.delete(address)


def test_records_of_a_stream_are_answered_before_it_ends(server, rest, root):
    host, port = server.doors["http"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as peer, peer.makefile("rb") as f:

        def send(text: str) -> None:
            peer.sendall(b"%x\r\n%s\r\n" % (len(text), text.encode()))

        def receive() -> dict[str, object]:
            line = b""
            while not line.endswith(b"}\r\n"):
                size = int(f.readline(), 16)
                line += f.read(size)
                f.readline()
            return json.loads(line)

        path = f"/kafka-rest{root}/topics/streamed/records"
        peer.sendall(
            f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        send('{"value": {"type": "JSON", "data": 0}}')
        assert f.readline().startswith(b"HTTP/1.1 200")
        while f.readline() != b"\r\n":
            pass
        assert receive()["offset"] == 0
        send('{"value": {"type": "STRING", "data": "}{\\"')
        send('"}} {"value": {"type": "NONE", "data": 1}}')
        assert receive()["offset"] == 1
        assert receive()["error_code"] == 422
        send('{"partition_id": -1}')
        assert receive()["error_code"] == 40402
        send("nonsense")
        assert receive()["error_code"] == 422
        assert f.readline() == b"0\r\n"


@pytest.mark.parametrize(
    ("content", "code"), [(b"", 422), (b"[]", 422), (b'{"value": ', 422), (b'{"value": 3}', 422)]
)
def test_a_body_without_a_record_is_refused(rest, root, content, code):
    reply = rest.post(f"{root}/topics/refused/records", content=content)
    last = json.loads(reply.content.splitlines()[-1])
    assert last["error_code"] == code


def test_the_reply_to_a_batch_has_the_stored_records(rest, root):
    entries = [
        {"id": "1", "value": {"type": "JSON", "data": 1}, "timestamp": "2024-01-02T03:04:05Z"},
        {"id": "2", "partition_id": 99, "value": {"type": "JSON", "data": 2}},
    ]
    path = f"{root}/topics/batched/records:batch"
    reply = rest.post(path, json={"entries": entries})
    assert reply.status_code == 207
    (stored,), (failed,) = reply.json()["successes"], reply.json()["failures"]
    assert (stored["id"], stored["offset"], stored["timestamp"]) == ("1", 0, "2024-01-02T03:04:05Z")
    assert (failed["id"], failed["error_code"]) == ("2", 40401)
    assert rest.post(path, json={"entries": []}).json()["error_code"] == 42208
    twice = [{"id": "1"}, {"id": "1"}]
    assert rest.post(path, json={"entries": twice}).json()["error_code"] == 42208
