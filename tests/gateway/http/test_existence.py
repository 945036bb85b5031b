"""Whether a thing exists: every application of HTTP answers a taken name as it does a free one.

Three users try both names: one without rights, one with all rights on things of its own, and one
that may do everything but for what an ACL denies.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping

import httpx
import pytest

from tests.gateway.http.secret_node import PASSWORD, SECURED, SecretNode
from tests.gateway.http.websocket.sockets import refusal
from tests.gateway.kafka.rig import batch
from tests.security.live_node import make_acl
from trilogue.broker.access.acls import Pattern
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.names import parse_kafka
from trilogue.gateway.http.console.app import CHANGES, PAGES
from trilogue.gateway.http.kafka_rest.routes import ROOT as REST_ROOT
from trilogue.gateway.http.kafka_rest.routes import all_routes as rest_routes
from trilogue.gateway.http.pulsar.published import PATHS as PUBLISHED_PATHS
from trilogue.gateway.http.pulsar.routes import all_routes as admin_routes
from trilogue.gateway.http.registry.registry_request import Scope
from trilogue.gateway.http.registry.routes import ROOT as REGISTRY_ROOT
from trilogue.gateway.http.registry.routes import all_routes as registry_routes
from trilogue.gateway.http.tubemq.routes import TABLE as WEB_METHODS
from trilogue.gateway.http.websocket.routes import PATHS as SOCKET_PATHS

TAKEN, FREE = "vault-here", "vault-gone"  # of one length
OWN = "own"
USERS = ("nobody", "owner", "denied")
KINDS = (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTION)
NAMESPACE = "public/default/"
FIELD = "secret_field_of_the_vault"
REST_JSON = {"content-type": "application/vnd.kafka.json.v2+json"}
VALUES = {"domain": "persistent", "subscription": "s", "instance": "i", "name": "x"}
VALUES |= {"cluster": "standalone", "partition": "0", "version": "1", "id": "1"}
RANDOM = re.compile(r"rest-consumer-[0-9a-f]+|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{13}")

pytestmark = pytest.mark.full


class World(SecretNode):
    """A node with a vault: a topic with a message, a schema, positions and a subscription."""

    client: httpx.Client

    def prepare(self, *users: str) -> None:
        super().prepare(*users)
        for name in (TAKEN, OWN):
            self.make_topic(name)
            self.run(self._fill(name))
        acls = self.node.storage.broker.acls
        for kind in KINDS:
            place = NAMESPACE if kind is ResourceKind.TOPIC else ""
            self.allow("owner", Operation.ALL, kind, f"{place}{OWN}")
            vault = make_acl("denied", Operation.ALL, kind, f"{place}vault-")
            denial = vault._replace(pattern=Pattern.PREFIXED, allow=False)
            every = make_acl("denied", Operation.ALL, kind, "*")
            self.write(acls.plan_create([denial, every]))

    async def _fill(self, name: str) -> None:
        broker = self.node.storage.broker
        partition = broker.cluster.find_topic(parse_kafka(name)).partitions[0]
        partition.append(memoryview(batch(b"secret")), now_ms=self.node.now_ms())
        for protocol in (Protocol.KAFKA, Protocol.TUBEMQ):
            broker.commit(protocol, name, [CursorMove(partition.partition_id, 1, -1, "")])
        broker.subscriptions.create(partition.partition_id, "s", 1, None)

    def add_schema(self, subject: str, field: str) -> None:
        """Register a schema as a user that may do so for the moment."""
        topic = f"{NAMESPACE}{subject.removesuffix('-value')}"
        self.allow("nobody", Operation.WRITE, ResourceKind.TOPIC, topic)
        path = f"{REGISTRY_ROOT}/subjects/{subject}/versions"
        reply = self.send("nobody", "POST", path, content=make_schema(field))
        assert reply.status_code == 200, reply.text
        self.withdraw("nobody", Operation.WRITE, ResourceKind.TOPIC, topic)

    def send(self, user: str, method: str, path: str, **how: object) -> httpx.Response:
        base = httpx.URL(f"http://{self.doors['http']}")
        raw = path.encode()
        url = base.copy_with(raw_path=raw)
        return self.client.request(method, url, auth=(user, PASSWORD), **how)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    listeners = ("kafka-sasl", "pulsar", "tubemq-master", "tubemq-broker", "http")
    with (
        httpx.Client(timeout=60) as client,
        World(tmp_path_factory.mktemp("existence"), SECURED, listeners) as made,
    ):
        made.client = client
        made.prepare(*USERS)
        made.add_schema(f"{TAKEN}-value", FIELD)
        made.add_schema(f"{OWN}-value", "open_field")
        yield made


def make_schema(field: str, references: list[dict[str, object]] | None = None) -> str:
    fields = [{"name": field, "type": "int", "default": 1}]
    schema = {"type": "record", "name": field, "fields": fields}
    return json.dumps({"schema": json.dumps(schema), "references": references or []})


def normalize(text: str, name: str) -> str:
    """Return a reply as it would be for the free name, without what differs each time."""
    return RANDOM.sub("…", text.replace(name, FREE))


def check_alike(ask: Callable[[str], tuple[int, str]], *, about: object) -> tuple[int, str]:
    """Check that both names have the same answer, and return it."""
    taken, free = ask(TAKEN), ask(FREE)
    assert FIELD not in taken[1], about
    assert (taken[0], normalize(taken[1], TAKEN)) == (free[0], normalize(free[1], FREE)), about
    return free


def send_to(world: World, user: str, method: str, path: str, **how: str) -> tuple[int, str]:
    reply = world.send(user, method, path, **how)
    return reply.status_code, reply.text


@pytest.mark.parametrize("user", USERS)
def test_subjects_of_the_schema_registry(world: World, user: str):
    for route in registry_routes():
        if route.scope is Scope.SUBJECT:
            path = f"{REGISTRY_ROOT}{route.path}"
            status, _ = check_alike(
                lambda name, path=path, method=route.method: send_to(
                    world,
                    user,
                    method,
                    path.format(subject=f"{name}-value", version="1"),
                    content=make_schema("x"),
                ),
                about=route,
            )
            assert status == 403, route


@pytest.mark.parametrize("path", ["/subjects/own-value/versions", "/subjects/own-value"])
def test_references_of_a_schema(world: World, path: str):
    """A reference shows whether its subject exists, and `format=resolved` all of its text."""

    def post(name: str) -> tuple[int, str]:
        reference = {"name": FREE, "subject": f"{name}-value", "version": 1}
        body = make_schema("mine", [reference])
        return send_to(
            world, "owner", "POST", f"{REGISTRY_ROOT}{path}?format=resolved", content=body
        )

    status, text = check_alike(post, about=path)
    assert (status, json.loads(text)["error_code"]) == (422, 42201)


def test_references_to_a_schema_that_one_sees(world: World):
    """The check above is of the rights, not of all references."""
    reference = {"name": "open_field", "subject": "own-value", "version": 1}
    body = make_schema("mine", [reference])
    path = f"{REGISTRY_ROOT}/compatibility/subjects/own-value/versions"
    assert world.send("owner", "POST", path, content=body).status_code == 200


def test_those_that_reference_a_schema(world: World):
    """An id of a subject that one may not see is no referrer."""
    reference = {"name": "open_field", "subject": f"{OWN}-value", "version": 1}
    for kind in (OWN, TAKEN):
        world.allow("nobody", Operation.WRITE, ResourceKind.TOPIC, f"{NAMESPACE}{kind}")
    body = make_schema("referrer", [reference])
    path = f"{REGISTRY_ROOT}/subjects/{TAKEN}-key/versions"
    found = world.send("nobody", "POST", path, content=body).json()["id"]
    path = f"{REGISTRY_ROOT}/subjects/{OWN}-value/versions/1/referencedby"

    assert world.send("nobody", "GET", path).json() == [found]
    assert world.send("owner", "GET", path).json() == []
    for kind in (OWN, TAKEN):
        world.withdraw("nobody", Operation.WRITE, ResourceKind.TOPIC, f"{NAMESPACE}{kind}")


@pytest.mark.parametrize("user", USERS)
def test_topics_and_groups_of_the_rest_proxy(world: World, user: str):
    clusters = world.send(user, "GET", f"{REST_ROOT}/v3/clusters").json()["data"]
    cluster = clusters[0]["cluster_id"]
    for route in rest_routes():
        if "{topic}" not in route.path and "{group}" not in route.path:
            continue

        def ask(name: str, route: object = route) -> tuple[int, str]:
            values = {**VALUES, "cluster": cluster, "topic": name, "group": name, "member": "m"}
            path = f"{REST_ROOT}{route.path.format(**values)}?timeout=0"
            return send_to(
                world, user, route.method, path, content=rest_body(name, path), headers=REST_JSON
            )

        status, text = check_alike(ask, about=route)
        if "{topic}" in route.path:
            assert status == 403 or '"error_code":40301' in text, (route, text)


def rest_body(name: str, path: str) -> str:
    place = {"topic": name, "partition": 0}
    body = {
        "records": [{"value": 1}], "value": {"data": 1}, "topic_name": name, "topics": [name],
        "partitions": [place], "offsets": [{**place, "offset": 0}], "name": "i",
        "data": [{"name": "retention.ms", "value": "1000"}], "partitions_count": 9,
        "entries": [{"id": "1", "value": {"data": 1}}],
    }  # fmt: skip
    if "configs/" in path:
        body["value"] = "1000"
    return json.dumps(body)


def test_consumer_instances_of_another_user(world: World):
    """Neither is their name taken, nor may others know or use it."""
    path = f"{REST_ROOT}/consumers/{OWN}"
    made = world.send("owner", "POST", path, json={"name": TAKEN})
    assert made.status_code == 200, made.text
    for method in ("GET", "POST"):
        for rest in ("subscription", "assignments", "offsets", "records"):
            check_alike(
                lambda name, method=method, rest=rest: send_to(
                    world, "nobody", method, f"{path}/instances/{name}/{rest}"
                ),
                about=rest,
            )
    check_alike(
        lambda name: send_to(world, "nobody", "POST", path, content=json.dumps({"name": name})),
        about=path,
    )
    again = world.send("owner", "POST", path, json={"name": TAKEN})
    assert again.json()["error_code"] == 40902, "one's own name is taken"


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("path", SOCKET_PATHS)
def test_topics_of_websockets(world: World, user: str, path: str):
    login = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()

    def ask(name: str) -> tuple[int, str]:
        filled = path.format(**VALUES, tenant="public", namespace="default", topic=name)
        header = [f"Authorization: Basic {login}"]
        return refusal(world.doors["http"], filled.removeprefix("/v2/"), header=header)

    assert check_alike(ask, about=path)[0] == 403


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("path", PUBLISHED_PATHS)
def test_topics_of_pulsars_rest_producers(world: World, user: str, path: str):
    def ask(name: str) -> tuple[int, str]:
        filled = path.format(**VALUES, tenant="public", namespace="default", topic=name)
        body = json.dumps({"messages": [{"payload": "x"}]})
        return send_to(world, user, "POST", filled, content=body)

    assert check_alike(ask, about=path)[0] == 403


def test_topics_of_pulsars_administration(world: World):
    for route in admin_routes():
        if "{topic}" not in route.path or "transactionIn" in route.path:
            continue
        for method in route.methods.split():

            def ask(name: str, path: str = route.path, method: str = method) -> tuple[int, str]:
                values: Mapping[str, str] = {
                    "tenant": "public", "namespace": "default", "topic": name, **VALUES
                }  # fmt: skip
                filled = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: values.get(found[1], "1"), path)
                return send_to(world, "owner", method, filled, content="{}")

            status, _ = check_alike(ask, about=(method, route))
            assert status in {403, 405, 412}, (method, route)


def test_topics_and_groups_of_tubemqs_web_api(world: World):
    for method in WEB_METHODS:

        def ask(name: str, method: str = method) -> tuple[int, str]:
            query = f"method={method}&topicName={name}&groupName={name}&brokerId=1&createUser=u"
            return send_to(world, "owner", "GET", f"/webapi.htm?{query}&modifyUser=u")

        check_alike(ask, about=method)


@pytest.mark.parametrize("user", USERS)
def test_pages_of_the_console(world: World, user: str):
    for path, _ in PAGES:

        def ask(name: str, path: str = path) -> tuple[int, str]:
            query = f"name={name}&topic={name}&q={name}&to=earliest"
            return send_to(world, user, "GET", f"/console{path}?{query}")

        check_alike(ask, about=path)


@pytest.mark.parametrize("user", ["owner", "denied"])
def test_forms_of_the_console(world: World, user: str):
    page = world.send(user, "GET", f"/console/produce?name={OWN}").text
    token = re.search(r'name="token" value="([0-9a-f]+)"', page)[1]
    for path, _ in CHANGES:

        def ask(name: str, path: str = path) -> tuple[int, str]:
            fields = {"name": name, "topic": name, "to": "earliest", "value": "x", "token": token}
            reply = world.send(user, "POST", f"/console{path}", data=fields)
            return reply.status_code, reply.text

        assert check_alike(ask, about=path)[0] == 403, path


def test_the_same_requests_show_the_vault_to_a_user_with_rights(world: World):
    """The tests above can fail."""
    world.allow("nobody", Operation.ALL, ResourceKind.TOPIC, f"{NAMESPACE}{TAKEN}")
    paths = (
        f"{REGISTRY_ROOT}/subjects/{TAKEN}-value/versions/1",
        f"{REST_ROOT}/topics/{TAKEN}",
        f"/console/topic?name={TAKEN}",
        f"/admin/v2/persistent/public/default/{TAKEN}/partitioned-stats",
    )
    shown = [world.send("nobody", "GET", path).status_code for path in paths]
    world.withdraw("nobody", Operation.ALL, ResourceKind.TOPIC, f"{NAMESPACE}{TAKEN}")

    assert shown == [200] * len(paths)
