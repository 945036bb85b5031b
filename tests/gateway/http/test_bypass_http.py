"""The bypass matrix, HTTP: the applications of the listener, in every spelling of a denied topic.

The client is a user who logged in and owns a namespace of its own: what a path says must be checked
as the topic that it means. An application that is not known here fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import httpx
import pytest

from tests.gateway.http.secret_node import PASSWORD, SECURED, SecretNode
from tests.security.bypass import ORDERS, SECRET
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.http.pulsar.routes import all_routes
from trilogue.gateway.http.tubemq.routes import TABLE as WEB_METHODS
from trilogue.node import http_apps

MALLORY = ("mallory", PASSWORD)
OWN = "mallory/own"
VALUES = {"cluster": "standalone", "name": "admin", "domain": "persistent", "subscription": "s"}
SPELLINGS = (  # of tenant/namespace/topic in a path
    "public/default/orders",
    "public/default/%6f%72ders",
    "public/default/orders-partition-0",
    "public/default/orders/",
    "public//default/orders",
    "mallory/own/..%2f..%2fpublic%2fdefault%2forders",
    "mallory/own/../../public/default/orders",
    "mallory/own/persistent:%2f%2fpublic%2fdefault%2forders",
    "mallory/own%2f..%2f..%2fpublic%2fdefault/orders",
    "mallory%2f..%2fpublic/default/orders",
    "public/default/orders;a=mallory",
    "public/default/orders%00",
    "public/default/%25%36frders",
)
KNOWN_APPS = {
    "ACCESS_PATHS",
    "CONSOLE_PATHS",
    "KAFKA_REST_PATHS",
    "PUBLISHED_PATHS",
    "REGISTRY_PATHS",
    "TUBEMQ_PATHS",
    "WEBSOCKET_PATHS",
}
OPEN = {"/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/admin/v2/brokers/version"}

pytestmark = pytest.mark.full


class World(SecretNode):
    """A node with the secret topic, and a user who may do everything in another namespace."""

    def denials(self) -> int:
        return self.audit_log.read_text().count('"refused"')


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    listeners = ("pulsar", "tubemq-master", "tubemq-broker", "http")
    with World(tmp_path_factory.mktemp("http"), SECURED, listeners) as made:
        made.prepare(MALLORY[0])
        made.allow(MALLORY[0], Operation.ALL, ResourceKind.TOPIC, f"{OWN}/orders")
        yield made


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{world.doors['http']}", auth=MALLORY, timeout=60) as made:
        yield made


def test_every_application_of_the_listener_is_in_the_matrix():
    """Others have their own: tests/gateway/http/console, …/registry, …/websocket."""
    assert {name for name in vars(http_apps) if name.endswith("_PATHS")} == KNOWN_APPS


def fill_in(path: str, spelling: str) -> str:
    """Return the path of a route with a spelling of the topic, or with its tenant and namespace."""
    place, _, topic = spelling.rstrip("/").rpartition("/")
    old_place = place.replace("/", "/standalone/", 1)
    path = path.replace("{tenant}/{cluster}/{namespace}/{topic}", f"{old_place}/{topic}")
    path = path.replace("{tenant}/{namespace}/{topic}", spelling)
    path = path.replace("{tenant}/{cluster}/{namespace}", "public/standalone/default")
    path = path.replace("{tenant}/{namespace}", "public/default").replace("{tenant}", "public")
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: VALUES.get(found[1], "1"), path)


def send(client: httpx.Client, method: str, path: str, body: bytes = b"{}") -> httpx.Response:
    """Send a path as it is: the library would shorten `..`."""
    url = client.base_url.copy_with(raw_path=path.encode())
    return client.request(method, url, content=body)


def requests_of(spelling: str) -> Iterator[tuple[str, str]]:
    """Iterate over requests: one for each place that reads a name, method and operation.

    That each route is denied is a test of its own (tests/gateway/http/pulsar/test_access.py).
    """
    seen = set()
    for route in all_routes():
        before, is_spelled, _ = route.path.partition("{topic}")
        for method in route.methods.split():
            kind = (before, method, route.operation)
            if kind not in seen and (is_spelled or spelling == SPELLINGS[0]):
                seen.add(kind)
                yield method, fill_in(route.path, spelling)


def check_refused(response: httpx.Response, method: str, path: str) -> None:
    """Check that nothing was done or shown; only a list, which leaves topics out, may succeed."""
    assert SECRET.decode() not in response.text, (method, path)
    if response.is_success and path not in OPEN:
        assert method == "GET", (method, path, response.text)
        assert "orders" not in f"{path} {response.text}", (path, response.text)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_path_of_the_administration_leads_to_the_topic(
    world: World, client: httpx.Client, spelling: str
):
    before = world.state()
    for method, path in requests_of(spelling):
        check_refused(send(client, method, path), method, path)
    assert world.state() == before


@pytest.mark.parametrize("name", ["orders", ORDERS, "orders\0"])
def test_no_method_of_the_web_api_leads_to_the_topic(world: World, client: httpx.Client, name: str):
    """The client even knows the token of the administrator."""
    token = (world.node.storage.directory.path / "tubemq-web-token").read_text().strip()
    more: Mapping[str, str] = {
        "confModAuthToken": token,
        "createUser": "m",
        "modifyUser": "m",
        "brokerId": "1",
        "groupName": "readers",
        "topicName": name,
    }
    before = world.state()
    for method in WEB_METHODS:
        for path in ("/webapi.htm", "/broker.htm"):
            response = client.get(path, params={"method": method, **more})
            assert SECRET.decode() not in response.text, method
            if WEB_METHODS[method].changes:
                assert "is denied" in response.text or not response.json()["result"], method
    assert world.state() == before


def test_users_acls_and_metrics_are_for_administrators(world: World, client: httpx.Client):
    bodies = {"/trilogue/users/admin/password": b'{"password": "another password"}'}
    before = world.state()
    for method, path in (
        ("GET", "/trilogue/users"),
        ("GET", "/trilogue/users/mallory"),
        ("PUT", "/trilogue/users/other"),
        ("DELETE", "/trilogue/users/mallory"),
        ("POST", "/trilogue/users/admin/password"),
        ("POST", "/trilogue/users/admin/tokens"),
        ("DELETE", "/trilogue/users/mallory/tokens"),
        ("GET", "/trilogue/acls"),
        ("POST", "/trilogue/acls"),
        ("POST", "/trilogue/acls/remove"),
        ("GET", "/metrics"),
        ("GET", "/trilogue/%75sers"),
        ("GET", "/admin/v2/../../trilogue/users"),
    ):
        refusals = world.denials()
        response = send(client, method, path, bodies.get(path, b"{}"))
        assert response.status_code in {403, 404}, (method, path, response.text)
        assert response.status_code == 404 or world.denials() == refusals + 1, "a line for each"
    assert world.state() == before


def test_the_same_requests_show_the_topic_to_a_user_with_the_right(
    world: World, client: httpx.Client
):
    """The tests above can fail."""
    world.allow(MALLORY[0], Operation.DESCRIBE, ResourceKind.TOPIC, ORDERS)
    responses = [
        send(client, method, path) for method, path in requests_of(SPELLINGS[0]) if method == "GET"
    ]
    world.withdraw(MALLORY[0], Operation.DESCRIBE, ResourceKind.TOPIC, ORDERS)

    assert any(each.is_success and "orders" in each.url.path for each in responses)
