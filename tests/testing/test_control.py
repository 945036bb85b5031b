"""The HTTP interface of a test server, in this process: rules, recordings, time, disk, reset."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from starlette.testclient import TestClient

from trilogue.testing import start_broker
from trilogue.testing.control import BODY_BYTES_MAX, TestControl

WAIT_S = 60


@pytest.fixture(scope="module")
def broker():
    with start_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker):
    with TestClient(TestControl(broker, lambda: {"kafka": broker.kafka}).app()) as client:
        yield client


@pytest.fixture(autouse=True)
def _clean(client):
    yield
    assert client.post("/test/reset", json={"keep_messages": True}).status_code == 204


def send(broker, topic, value=b"one", **options):
    """The error of a message, None where it is acknowledged."""
    errors = []
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0, **options})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors[0]


def test_a_rule_fails_requests_and_counts_them(broker, client):
    made = client.post(
        "/test/rules",
        json={"action": "error", "topic": "ruled", "error": "NOT_LEADER_OR_FOLLOWER", "count": 2},
    )
    assert (made.status_code, made.json()["protocol"], made.json()["applied"]) == (201, "kafka", 0)
    path = f"/test/rules/{made.json()['id']}"

    client.delete("/test/rules")
    assert client.get(path).status_code == 404
    made = client.post(
        "/test/rules",
        json={"action": "error", "request": "Produce", "topic": "ruled", "error": "INVALID_RECORD"},
    )
    path = f"/test/rules/{made.json()['id']}"
    assert send(broker, "ruled").name() == "INVALID_RECORD"
    assert client.get(path).json()["applied"] == 1
    assert [each["id"] for each in client.get("/test/rules").json()] == [made.json()["id"]]

    assert client.delete(path).status_code == 204
    assert client.delete(path).status_code == 404
    assert broker.faults == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({}, "a rule has an action"),
        ({"action": "explode"}, "'explode' does not exist"),
        ({"action": "cut", "request": "Produze"}, "there is Produce"),
        ({"action": "cut", "protocol": "mqtt"}, "there is kafka, pulsar, tubemq"),
        ({"action": "cut", "protocol": "pulsar", "request": "Produce"}, "not one of pulsar"),
        ({"action": "cut", "requests": "Produce"}, "no field 'requests'; there is request"),
        ({"action": "cut", "count": 0}, "count is 1 or more"),
        ({"action": "cut", "count": "many"}, "Expected `int"),
        ({"action": "delay", "seconds": -1}, "seconds is 0 or more"),
        ({"action": "error", "request": "SEND"}, "the name of an error"),
        ({"action": "error", "request": "SEND", "error": "INVALID_RECORD"}, "not one of pulsar"),
    ],
)
def test_a_rule_that_would_never_apply_is_refused(client, rule, text):
    reply = client.post("/test/rules", json=rule)

    assert reply.status_code == 400
    assert text in reply.json()["error"]


def test_wrong_bodies_paths_and_parameters_are_refused(client):
    assert client.post("/test/rules", content=b"[]").status_code == 400
    assert client.post("/test/rules", content=b"{").status_code == 400
    assert client.post("/test/rules", content=bytes(BODY_BYTES_MAX + 1)).status_code == 413
    assert client.post("/test/clock", json={"advance": -1}).status_code == 400
    assert client.post("/test/clock", json={"advance": "day"}).status_code == 400
    assert client.post("/test/disk", json={"full": 1}).status_code == 400
    assert client.post("/test/reset", json={"keep": True}).status_code == 400
    assert client.get("/test/recordings?wait=nan").status_code == 400
    assert client.get("/test/recordings?name=Fetch").json()["error"].startswith("there is no")
    assert client.get("/other").json() == {"error": "GET /other does not exist"}
    assert client.put("/test/rules").status_code == 405


def test_recordings_and_messages_are_listed(broker, client):
    assert send(broker, "listed", b"\xff") is None

    (request,) = client.get("/test/recordings?topic=listed&request=Produce&wait=60").json()
    assert (request["protocol"], request["client_id"]) == ("kafka", "rdkafka")
    (message,) = client.get("/test/messages/listed").json()
    assert message["value"] == {"base64": "/w=="}
    assert client.delete("/test/recordings").status_code == 204
    assert client.get("/test/recordings?topic=listed&request=Produce").json() == []
    late = client.get("/test/recordings?request=EndTxn&wait=0.01")
    assert (late.status_code, late.json()["error"][:15]) == (408, "no such request")


def test_time_passes_at_once(client):
    before = client.get("/test/clock").json()["now_ms"]

    after = client.post("/test/clock", json={"advance": 3600}).json()["now_ms"]

    assert after - before >= 3_600_000


def test_a_full_disk_refuses_messages_until_it_is_free(broker, client):
    assert send(broker, "filled") is None
    assert client.post("/test/disk", json={"full": True}).json() == {"full": True}

    assert send(broker, "filled", retries=0).name() == "KAFKA_STORAGE_ERROR"
    assert [each["value"]["text"] for each in client.get("/test/messages/filled").json()] == ["one"]

    client.post("/test/disk", json={"full": False})
    assert send(broker, "filled", b"two") is None


def test_a_crash_keeps_messages_and_a_reset_removes_them(broker, client):
    assert send(broker, "kept") is None
    address = broker.kafka

    assert client.post("/test/crash").status_code == 204
    assert client.post("/test/restart").status_code == 204
    assert len(client.get("/test/messages/kept").json()) == 1

    client.post("/test/clock", json={"advance": 86_400})
    ahead_ms = client.get("/test/clock").json()["now_ms"]
    client.post("/test/rules", json={"action": "cut", "count": None})
    assert client.post("/test/reset").status_code == 204
    assert client.get("/test/rules").json() == []
    assert broker.faults == []
    assert client.get("/test/clock").json()["now_ms"] < ahead_ms
    assert broker.kafka == address
    assert send(broker, "kept", b"new") is None
    assert [each["value"]["text"] for each in client.get("/test/messages/kept").json()] == ["new"]


def test_data_of_a_named_directory_is_not_removed_by_a_reset(tmp_path):
    with (
        start_broker(tmp_path) as broker,
        TestClient(TestControl(broker, dict).app()) as client,
    ):
        assert send(broker, "kept") is None

        assert client.post("/test/reset").status_code == 409
        assert len(client.get("/test/messages/kept").json()) == 1
