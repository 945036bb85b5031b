"""The bypass matrix, schema registry: every route, in every spelling of a denied subject."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.security.live_node import LiveNode
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.http.registry.registry_request import Scope
from trilogue.gateway.http.registry.routes import ROOT, all_routes

SECRET = "secret_field_of_orders"
BODY = {
    "schema": json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": SECRET, "type": "int", "default": 1}]}
    ),
    "compatibility": "NONE",
    "mode": "READONLY",
}
SUBJECTS = (
    "orders-value",
    "orders-key",
    "com.acme.Order",
    "public%2Fdefault%2Forders-value",
    "orders%2Dvalue",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    with LiveNode(folder, {"access.authorize": "true"}, ("http",)) as made:
        made.make_topic("orders")
        names = ("public/default/orders", "public/default/com.acme.Order")
        for name in names:
            made.allow("ANONYMOUS", Operation.WRITE, ResourceKind.TOPIC, name)
        for subject in SUBJECTS[:3]:
            reply = post(made, f"/subjects/{subject}/versions")
            assert reply.status_code == 200, reply.text
        for name in names:
            made.withdraw("ANONYMOUS", Operation.WRITE, ResourceKind.TOPIC, name)
        yield made


CLIENT = httpx.Client(timeout=60)


def post(node, path: str, method: str = "POST") -> httpx.Response:
    return CLIENT.request(method, f"http://{node.doors['http']}{ROOT}{path}", json=BODY)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("route", all_routes(), ids=lambda route: f"{route.method} {route.path}")
def test_a_request_without_rights_gets_and_changes_nothing(node, route, subject):
    before = dict(node.node.storage.meta.state.settings)
    path = route.path.format(subject=subject, version="1", id="1")
    reply = post(node, path, route.method)

    assert node.node.storage.meta.state.settings == before
    assert SECRET not in reply.text
    if route.scope is not Scope.SUBJECT:
        assert "orders" not in reply.text
    if route.scope in {Scope.SUBJECT, Scope.CLUSTER} or "{id}" in route.path:
        assert (reply.status_code, reply.json()["error_code"]) == (403, 40301)
    elif route.scope is Scope.LISTED:
        assert reply.json() == []


def test_a_reader_of_one_topic_sees_its_schemas_only(node):
    node.allow("ANONYMOUS", Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/com.acme.Order")
    try:
        assert post(node, "/subjects", "GET").json() == ["com.acme.Order"]
        assert SECRET in post(node, "/schemas/ids/1", "GET").text
        versions = post(node, "/schemas/ids/1/versions", "GET").json()
        assert versions == [{"subject": "com.acme.Order", "version": 1}]
        assert post(node, "/subjects/com.acme.Order", "DELETE").status_code == 403
    finally:
        node.withdraw(
            "ANONYMOUS", Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/com.acme.Order"
        )
