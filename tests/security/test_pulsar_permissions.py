"""Permissions granted over Pulsar's administration are ACLs that every protocol obeys."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import httpx
import msgspec
import pytest
from confluent_kafka import Producer

from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user
from trilogue.broker.names import NamespaceName, TopicName
from trilogue.broker.topics.namespaces import Namespace
from trilogue.broker.topics.policies import PERMISSIONS
from trilogue.gateway.http.pulsar.non_persistent import PATHS as NON_PERSISTENT_PATHS
from trilogue.gateway.http.pulsar.subscriptions import PATHS

SETTINGS = {
    "access.authenticate": "true",
    "access.authorize": "true",
    "access.super-users": "User:admin",
}
LISTENERS = ("kafka", "pulsar", "http")
HOME = NamespaceName("public", "default")

pulsar = pytest.importorskip("pulsar")


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path, SETTINGS, LISTENERS) as live:
        put_user(live, "admin")
        live.make_topic("orders")
        yield live


def put_user(node, name):
    user = make_user(name, b"wonder", node.node.now_ms(), key=node.key)
    node.write(node.node.storage.broker.users.plan_put(user))


def request(node, method, path, body=None, user="admin"):
    url = f"http://{node.doors['http']}/admin/v2/{path}"
    return httpx.request(method, url, json=body, auth=(user, "wonder"))


def produce(node):
    """Send a message as Kafka's anonymous client; return the error's name, or None."""
    names = []
    producer = Producer(
        {"bootstrap.servers": node.doors["kafka"], "message.timeout.ms": 5_000, "log_level": 0}
    )
    producer.produce(
        "orders", b"x", on_delivery=lambda problem, _: names.append(problem and problem.name())
    )
    producer.flush(60)
    return names[0]


def test_a_kafka_client_is_refused_then_allowed_then_refused(node):
    grants = "namespaces/public/default/permissions"
    assert produce(node) == "TOPIC_AUTHORIZATION_FAILED"

    assert request(node, "POST", f"{grants}/ANONYMOUS", ["produce"]).status_code == 204
    assert request(node, "GET", grants).json() == {"ANONYMOUS": ["produce"]}
    assert produce(node) is None

    assert request(node, "DELETE", f"{grants}/ANONYMOUS").status_code == 204
    assert request(node, "GET", grants).json() == {}
    assert produce(node) == "TOPIC_AUTHORIZATION_FAILED"
    assert '"grant permission"' in node.audit_log.read_text()


@pytest.mark.parametrize("operation", [Operation.ALTER, Operation.ALTER_SETTINGS, Operation.READ])
def test_a_user_without_all_rights_grants_nothing(node, operation):
    put_user(node, "alice")
    node.allow("alice", operation, ResourceKind.TOPIC, "*")
    for path in ("namespaces/public/default", "persistent/public/default/orders"):
        answer = request(node, "POST", f"{path}/permissions/alice", ["produce"], user="alice")
        assert answer.status_code == 403


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_tenant_changes_require_alter_on_the_cluster(node, method):
    put_user(node, "alice")
    node.allow("alice", Operation.ALL, ResourceKind.TOPIC, "*")
    body = {"adminRoles": ["alice"], "allowedClusters": ["standalone"]}

    assert request(node, method, "tenants/acme", body, user="alice").status_code == 403
    node.allow("alice", Operation.ALTER, ResourceKind.CLUSTER, "cluster")
    assert request(node, method, "tenants/acme", body, user="alice").status_code in {204, 404}


def test_the_permissions_of_a_deleted_topic_are_not_those_of_the_next(node):
    path = "persistent/public/default/orders"
    request(node, "POST", f"{path}/permissions/alice", ["consume"])
    assert request(node, "GET", f"{path}/permissions").json() == {"alice": ["consume"]}

    assert request(node, "DELETE", f"{path}/partitions").status_code == 204

    assert len(node.node.storage.broker.acls) == 0


def test_stored_permissions_of_an_older_version_are_moved_at_the_start(tmp_path):
    name = TopicName(*HOME, "orders")
    with LiveNode(tmp_path, SETTINGS, LISTENERS) as node:
        node.make_topic("orders")
        broker = node.node.storage.broker
        stored = Namespace(permissions={"alice": ["consume", "functions"], "bob": ["produce"]})
        node.write(broker.namespaces.plan_alter(HOME, stored))
        text = msgspec.json.encode({"carol": ["produce"], "dave": ["sinks"]}).decode()
        node.write(broker.cluster.plan_alter(name, {PERMISSIONS: text}))
        assert len(broker.acls) == 0

    for _start in range(2):
        with LiveNode(tmp_path, SETTINGS, LISTENERS) as node:
            put_user(node, "admin")
            broker = node.node.storage.broker
            assert len(broker.acls) == 3
            assert broker.namespaces.namespace(HOME).permissions == {"alice": ["functions"]}
            assert request(node, "GET", "persistent/public/default/orders/permissions").json() == {
                "alice": ["consume", "functions"],
                "bob": ["produce"],
                "carol": ["produce"],
                "dave": ["sinks"],
            }


@pytest.mark.parametrize("mode", ["roles", "prefix"])
def test_a_subscription_of_another_role_is_not_administered(node, mode):
    """Who may consume from the topic may not move, delete or look into it over HTTP either."""
    put_user(node, "alice")
    node.allow("alice", Operation.READ, ResourceKind.TOPIC, "public/default/orders")
    topic = "persistent/public/default/orders-partition-0"
    for name in ("billing", "alice-own"):
        path = f"{topic}/subscription/{name}"
        assert request(node, "PUT", path, {"entryId": -1, "ledgerId": -1}).status_code == 204
    if mode == "roles":
        roles = "namespaces/public/default/permissions/subscription/billing"
        assert request(node, "POST", roles, ["bob"]).status_code == 204
    else:
        path = "namespaces/public/default/subscriptionAuthMode"
        assert request(node, "POST", path, "Prefix").status_code == 204
    for method, path in administered("billing"):
        answer = request(node, method, path, {}, user="alice")
        assert answer.status_code == 403, (method, path, answer.text)
    fields = {"topic": "public/default/orders", "name": "billing", "to": "latest"}
    assert reset_in_console(node, "alice", fields).status_code == 403
    audit = node.audit_log.read_text()
    assert audit.count('"group billing"') == len(administered("billing")) + 1
    assert "delete subscription" not in audit

    assert reset_in_console(node, "alice", {**fields, "name": "alice-own"}).status_code == 303
    for user, name in (("alice", "alice-own"), ("admin", "billing")):
        answer = request(node, "DELETE", f"{topic}/subscription/{name}", user=user)
        assert answer.status_code == 204, answer.text


POLICY = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_client_that_may_only_describe_a_topic_does_not_create_it(node, domain):
    """Neither by a lookup nor over HTTP; who may read or write it does, as at a real broker."""
    put_user(node, "alice")
    node.allow("alice", Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/new")
    path = "namespaces/public/default/autoTopicCreation"
    assert request(node, "POST", path, POLICY).status_code == 204
    partitions = f"{domain}/public/default/new/partitions?checkAllowAutoCreation=true"
    client = connect(node, "alice")
    with pytest.raises(pulsar.PulsarException):
        client.get_topic_partitions(f"{domain}://public/default/new")
    assert request(node, "GET", partitions, user="alice").status_code == 404
    assert list_topics(node, domain) == []

    node.allow("alice", Operation.READ, ResourceKind.TOPIC, "public/default/new")
    assert send_from_page(node, partitions).status_code == 403
    assert list_topics(node, domain) == []
    assert len(client.get_topic_partitions(f"{domain}://public/default/new")) == 3
    client.close()
    assert request(node, "GET", partitions, user="alice").json()["partitions"] == 3
    assert list_topics(node, domain) == [f"{domain}://public/default/new"]


def test_a_page_makes_no_subscription(node):
    """To peek creates a subscription, as at a real broker, but not where a page has sent it."""
    one = "persistent/public/default/orders-partition-0/subscription"
    assert send_from_page(node, f"{one}/paged/position/1").status_code == 403
    assert request(node, "GET", f"{one}s").json() == []
    request(node, "GET", f"{one}/peeked/position/1")
    assert request(node, "GET", f"{one}s").json() == ["peeked"]


@pytest.mark.parametrize("sees", ["administers a tenant", "lists tenants"])
def test_a_tenant_that_does_not_exist(node, sees):
    """Administrators get a real broker's answer; others cannot find tenants by trying names."""
    for user in ("alice", "mallory"):
        put_user(node, user)
    node.allow("mallory", Operation.READ, ResourceKind.TOPIC, "public/default/orders")
    body = {"adminRoles": ["alice"], "allowedClusters": ["standalone"]}
    if sees == "lists tenants":
        node.allow("alice", Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        body["adminRoles"] = []
    assert request(node, "PUT", "tenants/acme", body).status_code == 204
    policy, topic = "namespaces/{}/ns/autoTopicCreation", "persistent/{}/ns/t/partitions"
    missing = (404, {"reason": "Tenant does not exist"})
    for method, path in (("POST", policy), ("GET", policy), ("GET", topic), ("PUT", topic)):
        answers = {
            (user, tenant): request(node, method, path.format(tenant), POLICY, user=user)
            for user in ("alice", "mallory")
            for tenant in ("nobody", "public")
        }
        found = answers.pop(("alice", "nobody"))
        assert (found.status_code, found.json()) == missing, (method, path)
        assert {each.status_code for each in answers.values()} == {403}
    audit = node.audit_log.read_text()
    assert audit.count("namespace nobody/ns") == 4  # each is a refusal, whatever the answer says

    client = connect(node, "alice")
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("nobody/ns/t")
    client.close()

    gone = "tenants/acme"
    if sees == "administers a tenant":
        assert request(node, "DELETE", gone).status_code == 204
        answer = request(node, "GET", policy.format("nobody"), user="alice")
        assert answer.status_code == 403


def list_topics(node, domain):
    found = request(node, "GET", f"{domain}/public/default/partitioned").json()
    return [each for each in found if each.endswith("/new")]


def send_from_page(node, path):
    """GET with an administrator's password, which a browser adds by itself."""
    url = f"http://{node.doors['http']}/admin/v2/{path}"
    return httpx.get(url, auth=("admin", "wonder"), headers={"sec-fetch-site": "cross-site"})


def administered(name):
    """Return each request that reads or changes a subscription of orders, or all of them."""
    values = {"subscription": name, "topic": "orders", "tenant": "public", "namespace": "default"}
    values |= dict.fromkeys(("count", "timestamp", "seconds", "position"), "1")
    return [
        (method, f"{domain}/public/default/orders{path.format_map(values)}")
        for domain, paths in (("persistent", PATHS), ("non-persistent", NON_PERSISTENT_PATHS))
        for methods, path, _, operation in paths
        for method in methods.split()
        if operation is Operation.READ and "ubscription" in path
    ]


def reset_in_console(node, user, fields):
    base = f"http://{node.doors['http']}/console"
    page = httpx.get(f"{base}/subscription?{urlencode(fields)}", auth=(user, "wonder")).text
    token = re.search(r'name="token" value="([0-9a-f]+)"', page)[1]
    fields = {**fields, "token": token}
    return httpx.post(f"{base}/subscription/reset", data=fields, auth=(user, "wonder"))


@pytest.mark.full
@pytest.mark.parametrize("change", ["roles", "prefix"])
def test_an_open_consumer_whose_role_is_revoked_ends(node, change):
    for name in ("alice", "bob"):
        put_user(node, name)
        node.allow(name, Operation.READ, ResourceKind.TOPIC, "public/default/orders")
    path = "namespaces/public/default"
    roles = f"{path}/permissions/subscription/billing"
    assert request(node, "POST", roles, ["alice", "bob"]).status_code == 204
    clients = {name: connect(node, name) for name in ("alice", "bob")}
    consumers = {
        name: client.subscribe("orders-partition-0", "billing", pulsar.ConsumerType.Shared)
        for name, client in clients.items()
    }
    clients["bob"].subscribe("orders-partition-0", "bob-own")
    gateway = node.node.gateways.pulsar

    def readers() -> list[str]:
        return sorted(
            f"{each.principal.name} {consumer.dispatcher.name}"
            for each in list(gateway.connections)
            for consumer in list(each.consumers.values())
            if consumer.dispatcher is not None
        )

    assert readers() == ["alice billing", "bob billing", "bob bob-own"]
    if change == "roles":
        request(node, "DELETE", f"{path}/permissions/billing/bob")
    else:
        request(node, "DELETE", f"{path}/permissions/billing/alice")
        request(node, "DELETE", f"{path}/permissions/billing/bob")
        request(node, "POST", f"{path}/subscriptionAuthMode", "Prefix")

    left = ["alice billing", "bob bob-own"] if change == "roles" else ["bob bob-own"]
    wait_until(lambda: readers() == left, "the end of the consumer")
    with pytest.raises(pulsar.PulsarException):
        consumers["bob"].receive(3_000)
    assert '"group billing"' in node.audit_log.read_text(), "the client came again"
    for client in clients.values():
        client.close()


def connect(node, user):
    return pulsar.Client(
        f"pulsar://{node.doors['pulsar']}",
        authentication=pulsar.AuthenticationBasic(user, "wonder"),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
