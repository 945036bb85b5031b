"""The bypass matrix of the REST proxy, and the logins and permissions of its clients."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.http.secret_node import PASSWORD, SecretNode, make_token, with_tokens
from tests.security.bypass import ORDERS, SECRET
from trilogue.broker.access.authorizer import Operation, Principal, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.gateway.http.kafka_rest import consumers
from trilogue.gateway.http.kafka_rest.routes import ROOT, all_routes
from trilogue.gateway.http.node_clients import NodeClients
from trilogue.gateway.http.request_limits import CREDENTIALS
from trilogue.gateway.kafka.metadata.metadata import cluster_id_text

JSON = "application/vnd.kafka.json.v2+json"
SPELLINGS = (
    "orders",
    "%6frders",
    "public%2Fdefault%2Forders",
    "public.default.orders",
    "orders%00",
)
BODY = {
    "records": [{"value": 1}], "value": {"type": "JSON", "data": 1}, "topic_name": "orders",
    "topics": ["orders"],
    "partitions": [{"topic": "orders", "partition": 0}],
    "offsets": [{"topic": "orders", "partition": 0, "offset": 0}], "name": "i",
    "data": [{"name": "retention.ms", "value": "1000"}], "partitions_count": 9,
    "entries": [{"id": "1", "value": {"type": "JSON", "data": 1}}],
}  # fmt: skip
LISTS = {"/brokers", "/topics", "/v3/clusters", "/v3/clusters/{cluster}"}
OF_INSTANCES = "/consumers/{group}"

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretNode]:
    folder = tmp_path_factory.mktemp("rest")
    with SecretNode(folder, with_tokens(folder), ("kafka-sasl", "http")) as made:
        made.prepare("mallory", "alice", "carol", "dave")
        yield made


def send(world: SecretNode, method: str, path: str, user: str = "mallory", **how) -> httpx.Response:
    how.setdefault("auth", (user, PASSWORD))
    url = httpx.URL(f"http://{world.doors['http']}").copy_with(raw_path=f"{ROOT}{path}".encode())
    with httpx.Client(timeout=60) as client:
        body = {**BODY, "value": "1000"} if "configs/" in path else BODY
        return client.request(method, url, json=body, **how)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_path_leads_to_the_topic(world, spelling):
    before = world.state()
    cluster = cluster_id_text(world.node.storage.meta.state.cluster_id)
    for route in all_routes():
        path = route.path.format(
            topic=spelling, partition="0", group="g", instance="i", name="a", cluster=cluster,
            broker="1", member="m",
        )  # fmt: skip
        reply = send(world, route.method, path, headers={"content-type": JSON})
        assert "{topic}" not in route.path or "cannot be read" not in reply.text, route
        assert SECRET.decode() not in reply.text, route
        assert base64.b64encode(SECRET).decode() not in reply.text, route
        if route.path in LISTS:
            assert "orders" not in reply.text, (route, reply.text)
        elif not route.path.startswith(OF_INSTANCES) and "topic}" in route.path:
            refused = reply.status_code >= 400 or '"successes":[]' in reply.text
            assert refused, (route, reply.text)
    assert world.state() == before


def test_schemas_of_the_topic_are_as_closed_as_the_topic(world):
    world.allow("carol", Operation.ALL, ResourceKind.TOPIC, "public/default/closed")
    world.allow("dave", Operation.ALL, ResourceKind.TOPIC, "public/default/mine")
    for each in ("mine", "other", "closed"):
        world.make_topic(each)
    body = {"value_schema": '{"type":"enum","name":"Secret","symbols":["A"]}',
            "records": [{"value": "A"}]}  # fmt: skip
    avro = {"content-type": "application/vnd.kafka.avro.v2+json"}

    def produce(user: str, topic: str, **body: object) -> httpx.Response:
        url = f"http://{world.doors['http']}{ROOT}/topics/{topic}"
        return httpx.post(url, json=body, headers=avro, auth=(user, PASSWORD), timeout=60)

    made = produce("carol", "closed", **body)
    assert made.status_code == 200, made.text
    by_id = {"value_schema_id": made.json()["value_schema_id"], "records": [{"value": "A"}]}
    assert produce("carol", "closed", **by_id).status_code == 200
    assert produce("dave", "mine", **by_id).json()["error_code"] == 40301
    assert produce("dave", "other", **body).json()["error_code"] == 40301
    assert produce("dave", "mine", **body).status_code == 200


def test_rules_are_created_found_and_deleted(world):
    rule = {
        "resource_type": "TOPIC", "resource_name": "ruled", "pattern_type": "LITERAL",
        "principal": "User:ada", "host": "*", "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
    cluster = cluster_id_text(world.node.storage.meta.state.cluster_id)
    base = f"http://{world.doors['http']}{ROOT}/v3/clusters/{cluster}"
    auth = ("carol", PASSWORD)
    with httpx.Client(base_url=base, auth=auth, timeout=60) as rest:
        assert rest.post("/acls", json=rule).json()["error_code"] == 40301
        for operation in (Operation.ALTER, Operation.DESCRIBE):
            world.allow("carol", operation, ResourceKind.CLUSTER, "cluster")
        made = rest.post("/acls", json=rule)
        assert made.status_code == 201, made.text
        assert "resource_name=ruled" in made.headers["location"]
        (found,) = rest.get("/acls", params={"principal": "User:ada"}).json()["data"]
        assert {name: found[name] for name in rule} == rule
        assert rest.get(found["metadata"]["self"]).json()["data"] == [found]
        batch = [{**rule, "operation": each} for each in ("WRITE", "DESCRIBE")]
        assert rest.post("/acls:batch", json={"data": batch}).status_code == 201
        assert rest.delete("/acls", params={"principal": "User:ada"}).status_code == 400
        query = {**rule, "operation": "any"}
        deleted = rest.delete("/acls", params=query).json()["data"]
        assert {each["operation"] for each in deleted} == {"READ", "WRITE", "DESCRIBE"}
        assert rest.get("/acls", params={"principal": "User:ada"}).json()["data"] == []
        assert rest.post("/acls", json={**rule, "operation": "EAT"}).status_code == 400


def test_a_login_is_needed(world):
    for auth in (None, ("mallory", "wrong"), ("nobody", "x")):
        assert send(world, "GET", "/topics", auth=auth).status_code == 401


def test_a_user_with_rights_produces_and_reads(world):
    name = "public/default/shared"
    world.make_topic("shared")
    for user in ("mallory", "alice"):
        world.allow(user, Operation.ALL, ResourceKind.TOPIC, name)
        world.allow(user, Operation.ALL, ResourceKind.GROUP, "team")
    token = make_token("alice")
    by_token = {"auth": None, "headers": {"authorization": f"Bearer {token}", "content-type": JSON}}

    produced = send(world, "POST", "/topics/shared", **by_token)
    assert produced.json()["offsets"][0]["offset"] == 0
    assert send(world, "GET", "/topics").json() == ["shared"]
    made = send(world, "POST", "/consumers/team")
    assert made.status_code == 200, made.text
    place = "/consumers/team/instances/i"
    assert send(world, "GET", f"{place}/records", "alice").status_code == 404, "another user's"
    body = {"partitions": [{"topic": "shared", "partition": 0}]}
    url = f"http://{world.doors['http']}{ROOT}{place}"
    with httpx.Client(timeout=60, auth=("mallory", PASSWORD)) as client:
        assert client.post(f"{url}/assignments", json=body).status_code == 204
        assert client.post(f"{url}/positions/beginning", json=body).status_code == 204
        found = client.get(f"{url}/records", params={"timeout": 20_000}).json()
        assert [base64.b64decode(each["value"]) for each in found] == [b"1"]
        assert client.delete(url).status_code == 204


def test_a_user_leaves_others_room_for_consumers(world, monkeypatch):
    """The instances of one, who needs no right for them, are half of all at most."""
    monkeypatch.setattr(consumers, "INSTANCES_MAX", 6)

    def make(user, name):
        body = {"name": name, "format": "json"}
        url = f"http://{world.doors['http']}{ROOT}/consumers/crowd"
        return httpx.post(url, json=body, auth=(user, PASSWORD), headers={"content-type": JSON})

    made = [make("mallory", f"m{number}") for number in range(4)]
    assert [each.status_code for each in made] == [200, 200, 200, 429]
    assert made[-1].json()["message"] == "User:mallory has 3 consumer instances, 3 are free"
    assert make("carol", "c").status_code == 200
    for user, names in (("mallory", ("m0", "m1", "m2")), ("carol", ("c",))):
        for name in names:
            path = f"/consumers/crowd/instances/{name}"
            assert send(world, "DELETE", path, user).status_code == 204
    assert make("mallory", "again").status_code == 200
    assert send(world, "DELETE", "/consumers/crowd/instances/again").status_code == 204


def test_spellings_of_one_login_are_one_client():
    """There are 100 clients at a time: one user would have all by the case of its letters."""
    clients = NodeClients(
        {}, {}, requires_login=True, anonymous="", sasl_mechanisms=lambda: ("PLAIN",)
    )
    access = ClientAccess(host="192.0.2.7", principal=Principal("User", "mallory"))
    made = {
        clients.identify({"access": access, CREDENTIALS: [each]})
        for each in ("Basic YTpi", "basic YTpi", "BASIC  YTpi ", "bAsIc YTpi")
    }
    assert len(made) == 1


def test_a_refused_client_is_in_the_audit_log(world):
    before = world.audit_log.read_text().count('"refused"')
    reply = send(world, "POST", "/topics/orders", headers={"content-type": JSON})
    lines = [each for each in world.audit_log.read_text().splitlines() if '"refused"' in each]

    assert (reply.status_code, reply.json()["error_code"]) == (403, 40301)
    assert len(lines) > before
    assert ORDERS in lines[-1]
    assert "127.0.0.1" in lines[-1]
