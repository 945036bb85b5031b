"""The routes of Pulsar's REST API, its errors and limits; clusters, tenants, brokers, lookups."""

from __future__ import annotations

import re

import pytest

from tests.gateway.http.admin_client import Admin
from tests.server import start_server
from trilogue.broker import errors
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.topics.policies import POLICIES
from trilogue.gateway.http.pulsar.admin_request import STATUS, status_of
from trilogue.gateway.http.pulsar.policies import (
    ALLOWED_CLUSTERS,
    NAMED_RATES,
    NAMESPACE_PATHS,
    QUOTA,
    REPLICATION,
    TOPIC_PATHS,
)
from trilogue.gateway.http.pulsar.routes import all_routes
from trilogue.gateway.http.request_limits import BODY_MAX

NAMED = {
    ResourceKind.TOPIC: ("topic",),
    ResourceKind.NAMESPACE: ("tenant",),
    ResourceKind.CLUSTER: (),
}


def test_every_path_names_what_it_touches_and_an_operation():
    """One authorizer decides for all protocols."""
    for row in all_routes():
        assert isinstance(row.operation, Operation), row
        assert all(f"{{{parameter}}}" in row.path for parameter in NAMED[row.resource]), row
        assert set(row.methods.split()) <= {"GET", "PUT", "POST", "DELETE"}, row
        if row.operation is Operation.DESCRIBE_SETTINGS:
            assert row.methods == "GET", row


def test_no_path_hides_another():
    """The first matching route serves a request.

    No later one may match the same path and method.
    """
    seen: list[tuple[str, re.Pattern[str]]] = []
    for row in all_routes():
        example = re.sub(r"\{[^}]*\}", "x-1", row.path)
        for method in row.methods.split():
            for other, pattern in seen:
                assert other != method or not pattern.fullmatch(example), (row.path, pattern)
            parts = re.split(r"\{[^}]*\}", row.path)
            seen.append((method, re.compile("[^/]+".join(map(re.escape, parts)))))


def test_every_refusal_has_a_status():
    for kind in errors.ALL_ERRORS:
        found = [each for each in kind.__mro__ if each in STATUS]
        assert found
        problem = Exception.__new__(kind)
        assert 400 <= status_of(problem) <= 503


def test_every_path_of_a_policy_is_one_of_the_table():
    assert {each.policy for each in (*NAMESPACE_PATHS, *TOPIC_PATHS)} <= set(POLICIES)
    paths = (*NAMESPACE_PATHS, *TOPIC_PATHS, REPLICATION, ALLOWED_CLUSTERS)
    served = {name for name, row in POLICIES.items() if not row.refused}
    assert served <= {each.policy for each in paths} | {QUOTA, NAMED_RATES}


# -- over a socket --------------------------------------------------------------------------------


def test_unknown_route_returns_a_json_reason(admin: Admin):
    assert admin("GET", "nothing/here") == (
        404,
        {"reason": "/admin/v2/nothing/here: there is nothing at this path"},
    )
    status, response = admin("PATCH", "tenants/acme")
    assert (status, list(response)) == (405, ["reason"])


def test_a_body_that_is_too_large_or_no_json_costs_its_sender_only(admin: Admin):
    large = b" " * (BODY_MAX + 1)
    assert admin.client.put("/admin/v2/tenants/large", content=large).status_code == 413
    pieces = (b" " * 65536 for _ in range(BODY_MAX // 65536 + 1))
    assert admin.client.put("/admin/v2/tenants/large", content=pieces).status_code == 413
    for content in (b"{", b"\xff", b"[1,2", b'{"adminRoles": 5}', b"[" * 100_000):
        answer = admin.client.put("/admin/v2/tenants/broken", content=content)
        assert (answer.status_code, list(answer.json())) == (400, ["reason"]), content[:20]
    assert admin.request("GET", "brokers/version").text == "4.0.7"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 403),
        ({"origin": "http://evil.example:8080", "host": "evil.example:8080"}, 421),
    ],
)
def test_a_page_in_a_browser_changes_nothing(admin: Admin, sent: dict[str, str], status: int):
    """A browser needs no password; DNS rebinding gives a page this origin and a foreign name."""
    body = {"allowedClusters": ["standalone"]}

    assert admin("PUT", "tenants/lured", body, headers=sent)[0] == status
    assert admin("GET", "tenants/lured")[0] == 404


def test_there_is_one_cluster(admin: Admin):
    assert admin.get("clusters") == ["standalone"]
    result = admin.get("clusters/standalone")
    assert result["brokerServiceUrl"] == f"pulsar://{admin.server.doors['pulsar']}"
    assert result["serviceUrl"] == f"http://{admin.server.doors['http']}"
    assert admin("GET", "clusters/other") == (404, {"reason": "Cluster does not exist"})
    assert admin("PUT", "clusters/standalone", {}) == (409, {"reason": "Cluster already exists"})
    assert admin("PUT", "clusters/other", {})[0] == 412


def test_tenants_are_made_changed_and_deleted(admin: Admin):
    body = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}

    assert admin("PUT", "tenants/t1", body) == (204, None)
    assert admin("PUT", "tenants/t1", body)[0] == 409
    assert admin.get("tenants/t1") == body
    assert admin("POST", "tenants/t1", {**body, "adminRoles": []}) == (204, None)
    assert admin.get("tenants/t1")["adminRoles"] == []
    assert {"public", "t1"} <= set(admin.get("tenants"))
    admin.do("PUT", "namespaces/t1/ns")
    assert admin("DELETE", "tenants/t1")[0] == 409
    assert admin("DELETE", "tenants/t1?force=true") == (204, None)
    assert admin("GET", "tenants/t1") == (404, {"reason": "Tenant does not exist"})
    assert admin("POST", "tenants/t1", body)[0] == 404


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("bad%20name", {"allowedClusters": ["standalone"]}, 412),
        ("elsewhere", {"allowedClusters": ["other"]}, 412),
        ("nowhere", {}, 412),
        ("shape", {"allowedClusters": "standalone"}, 400),
    ],
)
def test_a_tenant_that_cannot_be_is_refused(admin: Admin, name: str, body: object, status: int):
    answer, response = admin("PUT", f"tenants/{name}", body)

    assert (answer, list(response)) == (status, ["reason"])


def test_brokers_are_this_one(admin: Admin):
    address = admin.server.doors["http"]

    assert admin.get("brokers/standalone") == [address]
    assert admin.get("brokers/leaderBroker")["serviceUrl"] == f"http://{address}"
    assert admin.request("GET", "brokers/health").text == "ok"
    assert admin.get("brokers/configuration/values") == {}
    assert admin.get("brokers/configuration/runtime")["clusterName"] == "standalone"


def test_owned_namespaces_are_those_with_topics(admin: Admin):
    """A namespace without topics has no bundle that a broker would have loaded."""
    address = admin.server.doors["http"]
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    for name in ("full", "void"):
        admin("PUT", f"namespaces/public/{name}", {})
    admin("PUT", "persistent/public/full/t/partitions", 2)

    owned = admin.get(f"brokers/standalone/{address}/ownedNamespaces")

    assert owned["public/full/0x00000000_0xffffffff"] == status
    assert not [each for each in owned if each.startswith("public/void/")]
    for path, reason in (
        ("standalone/absent", "Broker id 'absent' not found in available brokers."),
        (f"absent/{address}", "Cluster does not exist"),
    ):
        response = admin("GET", f"brokers/{path}/ownedNamespaces")
        assert response == (404, {"reason": reason})


def test_lookup_returns_the_pulsar_service_url(admin: Admin):
    url = f"pulsar://{admin.server.doors['pulsar']}"

    admin("PUT", "tenants/acme", {"allowedClusters": ["standalone"]})
    admin.do("PUT", "/admin/namespaces/acme/eu/old")
    for name in (
        "topic/persistent/public/default/t",
        "topic/persistent/public/default/a%2520b%2Bc",
        "topic/persistent/acme/eu/old/t",
        "destination/persistent/acme/eu/old/t",
    ):
        result = admin.get(f"/lookup/v2/{name}")
        assert (result["brokerUrl"], result["nativeUrl"]) == (url, url)
    assert admin.request("GET", "/lookup/v2/topic/persistent/public/default/t/bundle").text == (
        "0x00000000_0xffffffff"
    )
    assert admin("GET", "/lookup/v2/topic/persistent/none/such/t") == (
        404,
        {"reason": "Namespace not found"},
    )
    assert admin.get("/lookup/v2/topic/non-persistent/public/default/t")["brokerUrl"] == url
    assert admin("GET", "/lookup/v2/topic/strange/public/default/t")[0] == 412
    assert admin("GET", "/lookup/v2/topic/persistent/public/default/t?listenerName=x")[0] == 404


def test_tenants_and_namespaces_are_there_after_a_kill(tmp_path):
    with start_server(tmp_path / "data") as server, Admin(server) as admin:
        name = admin.namespace("kept")
        admin.do("POST", f"namespaces/{name}/messageTTL", 60)
        admin.do("PUT", f"persistent/{name}/many/partitions", 2)
        admin.do("POST", f"persistent/{name}/many/partitions", 5)
        admin.do("POST", f"persistent/{name}/many/maxProducers", 3)
        admin.do("PUT", f"persistent/{name}/bare")
        admin.do("PUT", f"persistent/{name}/bare/subscription/s")
        server.kill9()
    with start_server(tmp_path / "data") as server, Admin(server) as admin:
        assert admin.get("tenants") == ["acme", "public"]
        assert admin.get(f"namespaces/{name}/messageTTL") == 60
        assert admin.get(f"persistent/{name}/many/partitions")["partitions"] == 5
        assert admin.get(f"persistent/{name}/many/maxProducers") == 3
        assert admin.get(f"persistent/{name}/bare/partitions")["partitions"] == 0
        assert admin.get(f"persistent/{name}/bare/subscriptions") == ["s"]


def test_administrative_changes_are_logged(admin: Admin):
    """One line per administrative change."""
    admin.do("PUT", "tenants/audited", {"allowedClusters": ["standalone"]})

    assert "admin.done method=PUT path=/admin/v2/tenants/audited" in (
        admin.server.log_file.read_text()
    )
