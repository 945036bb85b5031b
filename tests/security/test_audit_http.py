"""Administrative acts of /trilogue and of the REST proxy are lines of the audit log: each route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.http.secret_node import PASSWORD, SecretNode, with_tokens
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.http.access import build_access_app
from trilogue.gateway.http.kafka_rest.routes import ROOT as REST_ROOT
from trilogue.gateway.http.kafka_rest.routes import all_routes
from trilogue.gateway.kafka.metadata.metadata import cluster_id_text

pytestmark = pytest.mark.full
ADMIN = "ann"
ACL = {
    "resourceType": "TOPIC",
    "resourceName": "public/default/orders",
    "patternType": "LITERAL",
    "principal": "User:bob",
    "host": "*",
    "operation": "READ",
    "permissionType": "ALLOW",
}
BOB = {"password": "a long password"}
OWN = {"password": "another password", "current": PASSWORD}
# Method, path below /trilogue, the body, the user, and the operation and resource of the line.
ACTS: list[tuple[str, str, Any, str, str, str]] = [
    ("PUT", "/users/bob", BOB, ADMIN, "create user", "user bob"),
    ("POST", "/users/bob/password", BOB, ADMIN, "set password", "user bob"),
    ("POST", "/users/carol/password", OWN, "carol", "set password", "user carol"),
    ("POST", "/users/bob/tokens", {"lifetimeMs": 1_000}, ADMIN, "issue token", "user bob"),
    ("DELETE", "/users/bob/tokens", None, ADMIN, "revoke tokens", "user bob"),
    ("POST", "/acls", [ACL], ADMIN, "create ACL", "cluster cluster"),
    ("POST", "/acls/remove", [ACL], ADMIN, "delete ACL", "cluster cluster"),
    ("DELETE", "/users/bob", None, ADMIN, "delete user", "user bob"),
]
SETTING = {"data": [{"name": "retention.ms", "value": "98765432"}]}
RULE = {
    "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL",
    "principal": "User:bob", "host": "*", "operation": "READ", "permission": "ALLOW",
}  # fmt: skip
RULES = "?" + "&".join(f"{name}={text}" for name, text in RULE.items())
MADE = {"topic_name": "made", "partitions_count": 1}
TOPIC, CONFIGS = "/topics/{topic}", "/configs"
# Method, path of the route below the cluster, what it is called with, the body, and the line.
REST_ACTS: list[tuple[str, str, str, Any, str, str]] = [
    ("POST", "/topics", "", MADE, "create topic", "topic public/default/made"),
    ("PATCH", TOPIC, "", {"partitions_count": 2}, "create partitions", "topic public/default/made"),
    ("POST", f"{TOPIC}{CONFIGS}:alter", "", SETTING, "alter settings", "topic public/default/made"),
    (
        "PUT",
        f"{TOPIC}{CONFIGS}/{{name}}",
        "",
        {"value": "98765432"},
        "alter settings",
        "topic public/default/made",
    ),
    (
        "DELETE",
        f"{TOPIC}{CONFIGS}/{{name}}",
        "",
        None,
        "alter settings",
        "topic public/default/made",
    ),
    ("POST", "/acls", "", RULE, "create ACL", "topic public/default/orders"),
    ("POST", "/acls:batch", "", {"data": [RULE]}, "create ACL", "topic public/default/orders"),
    ("DELETE", "/acls", RULES, None, "delete ACL", "topic public/default/orders"),
    ("DELETE", TOPIC, "", None, "delete topic", "topic public/default/made"),
]
DATA = ("/records", "/consumers/", "/topics/{topic}/partitions/{partition}")  # no acts


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretNode]:
    folder = tmp_path_factory.mktemp("audit")
    with SecretNode(folder, with_tokens(folder), ("kafka-sasl", "http")) as made:
        made.prepare(ADMIN, "carol", "dave")
        for kind, name in ((ResourceKind.CLUSTER, "cluster"), (ResourceKind.TOPIC, "*")):
            made.allow(ADMIN, Operation.ALL, kind, name)
        yield made


def send(
    node: SecretNode, method: str, path: str, body: Any, user: str
) -> tuple[httpx.Response, list[dict[str, Any]]]:
    """Return the response, and the lines that came with it."""
    begin = len(node.audit_log.read_text().splitlines())
    url = f"http://{node.doors['http']}{path}"
    response = httpx.request(method, url, json=body, auth=(user, PASSWORD), timeout=60)
    lines = [json.loads(line) for line in node.audit_log.read_text().splitlines()[begin:]]
    return response, lines


def test_each_change_of_users_and_acls_has_its_line(node: SecretNode):
    app: Any = build_access_app(None, None)  # type: ignore[arg-type]
    changes = {
        (method, route.path) for route in app.routes for method in route.methods - {"GET", "HEAD"}
    }
    called = {
        (method, f"/trilogue{path}".replace("bob", "{name}").replace("carol", "{name}"))
        for method, path, *_ in ACTS
    }
    assert called == changes
    for method, path, body, user, operation, resource in ACTS:
        refused, lines = send(
            node, method, f"/trilogue{path}", body, "carol" if user == "carol" else "dave"
        )
        if user == ADMIN:
            assert refused.status_code == 403
            assert [line["event"] for line in lines] == ["refused"], (path, lines)
            done, lines = send(node, method, f"/trilogue{path}", body, user)
        else:
            done = refused
        assert done.is_success, (path, done.text)
        [line] = lines
        assert (line["event"], line["operation"], line["resource"]) == ("done", operation, resource)
        assert (line["principal"], line["address"]) == (f"User:{user}", "127.0.0.1")
    text = node.audit_log.read_text()
    assert BOB["password"] not in text
    assert OWN["password"] not in text
    assert PASSWORD not in text


def test_each_change_by_the_rest_proxy_has_its_line(node: SecretNode):
    cluster = f"/v3/clusters/{cluster_id_text(node.node.storage.meta.state.cluster_id)}"
    place = "/v3/clusters/{cluster}"
    changes = {
        (route.method, route.path.removeprefix(place))
        for route in all_routes()
        if route.method != "GET" and not any(each in route.path for each in DATA)
    }
    changes -= {("POST", "/topics/{topic}")}  # of version 2: it produces
    # Those of brokers have the handlers of those of topics (kafka_rest/configs.py).
    changes -= {each for each in changes if "/configs" in each[1] and TOPIC not in each[1]}
    changes -= {each for each in changes if "/broker-configs" in each[1]}
    assert {(method, path) for method, path, *_ in REST_ACTS} == changes
    for method, path, query, body, operation, resource in REST_ACTS:
        called_path = path.format(topic="made", name="retention.ms") + query
        done, lines = send(node, method, f"{REST_ROOT}{cluster}{called_path}", body, ADMIN)
        assert done.is_success, (path, done.text)
        acts = [(line["event"], line["operation"], line["resource"]) for line in lines]
        assert acts == [("done", operation, resource)], (method, path, lines)
        assert lines[0]["principal"] == f"User:{ADMIN}"
        assert lines[0]["address"] == "127.0.0.1"
    assert "98765432" not in node.audit_log.read_text()
