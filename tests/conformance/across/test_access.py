"""What administrators' tools of the three systems change holds at every listener of every node.

Kafka's `kafka-acls.sh`, `kafka-configs.sh --entity-type users` and `kafka-delegation-tokens.sh`,
Pulsar's administration and TubeMQ's web API change users and rights at the last node; librdkafka,
pulsar-client, TubeMQ's Java client and HTTP meet them at each.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.conformance.across.secured import (
    ALLOWED,
    DENIED,
    LISTEN,
    MECHANISM,
    NO_LOGIN,
    SecuredCluster,
    has_ended,
)
from tests.conformance.clients.kafka_tools import TOOLS_3, TOOLS_4
from tests.conformance.clients.pulsar import Process
from tests.conformance.clients.tubemq import Out, driver_process
from tests.conformance.conftest import unique
from tests.server import start_server
from tests.waiting import wait_until

PASSWORD, OTHER = "the first password", "the second password"
CONFIGS, TOKENS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.DelegationTokenCommand"
GRANTS = "/admin/v2/persistent/public/default/{topic}/permissions"
HEARTBEAT_S, REFUSED_S = 0.3, 3.0
AT_ONCE_S = 30.0  # a second on a machine of its own

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((1, TOOLS_3), id="one node", marks=pytest.mark.long),
        pytest.param((2, TOOLS_4), id="two nodes"),
        pytest.param((3, TOOLS_4), id="three nodes", marks=pytest.mark.long),
    ],
)
def cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tube_drivers: dict[str, Process],
) -> Iterator[SecuredCluster]:
    nodes, tools = request.param
    tools.require()
    driver = tube_drivers.setdefault("trilogue", driver_process())
    data = tmp_path_factory.mktemp("secured") / "data"
    listen = dict.fromkeys(LISTEN, "127.0.0.1:0")
    with start_server(data, listen=listen, arguments=["--secure"], nodes=nodes) as server:
        made = SecuredCluster(server, nodes, tools, driver)
        yield made
        made.close()
        shown = server.output + (data / "audit.log").read_text()
        for secret in (PASSWORD, OTHER, made.admin[1]):
            assert secret not in shown


def run_acls(cluster: SecuredCluster, *arguments: str) -> str:
    package = "org.apache.kafka.tools" if cluster.tools is TOOLS_4 else "kafka.admin"
    return cluster.tool(f"{package}.AclCommand", *arguments).text


def reads(cluster: SecuredCluster, login: tuple[str, str], group: str, topic: str) -> bool:
    """Return whether a consumer gets partitions, which take a heartbeat or two, and messages."""
    consumer = cluster.java(login).pull(group, {topic: []})
    ends = time.monotonic() + REFUSED_S
    try:
        while not consumer.positions:
            if time.monotonic() > ends:
                return False
            consumer.ready(HEARTBEAT_S)
        return bool(consumer.get().messages)
    finally:
        consumer.close()


def run_configs(cluster: SecuredCluster, user: str, *arguments: str) -> str:
    name = ("--entity-type", "users", "--entity-name", user)
    return cluster.tool(CONFIGS, "--alter", *name, *arguments).text


def test_acls_of_kafkas_tool_hold_everywhere(cluster: SecuredCluster):
    topic, user = cluster.make_topic(unique("acls")), unique("user")
    login = cluster.put_user(user, PASSWORD)
    assert cluster.ask_all(login, topic) == {DENIED}
    assert not cluster.writes_by_tubemq(login, topic)

    rights = ("--operation", "Read", "--operation", "Write", "--topic", topic)
    run_acls(cluster, "--add", "--allow-principal", f"User:{user}", *rights)
    assert cluster.ask_all(login, topic) == {ALLOWED}
    wait_until(lambda: cluster.writes_by_tubemq(login, topic))
    granted = cluster.change(cluster.first, "GET", GRANTS.format(topic=topic))
    assert sorted(granted[user]) == ["consume", "produce"]

    run_acls(cluster, "--add", "--deny-principal", f"User:{user}", "--topic", topic)
    assert cluster.ask_all(login, topic) == {DENIED}
    assert not cluster.writes_by_tubemq(login, topic)
    assert "permissionType=DENY" in run_acls(cluster, "--list", "--topic", topic)

    run_acls(cluster, "--remove", "--force", "--topic", topic)
    assert cluster.ask_all(login, topic) == {DENIED}
    assert f"User:{user}" not in run_acls(cluster, "--list", "--topic", topic)


def test_users_of_kafkas_tool_log_in_everywhere(cluster: SecuredCluster):
    topic, user = cluster.make_topic(unique("users")), unique("user")
    assert cluster.ask_all((user, PASSWORD), topic) == {NO_LOGIN}

    verifier = f"{MECHANISM}=[iterations=8192,password={{}}]"
    run_configs(cluster, user, "--add-config", verifier.format(PASSWORD))
    assert cluster.ask_all((user, PASSWORD), topic) == {DENIED}
    assert cluster.ask_all((user, OTHER), topic) == {NO_LOGIN}

    sessions = [node.log_in_to_kafka(user, PASSWORD) for node in cluster.nodes]
    sessions += [node.log_in_to_pulsar(user, PASSWORD) for node in cluster.nodes]
    run_configs(cluster, user, "--add-config", verifier.format(OTHER))
    for session in sessions:
        assert session is not None
        assert has_ended(session)
    assert cluster.ask_all((user, PASSWORD), topic) == {NO_LOGIN}
    assert cluster.ask_all((user, OTHER), topic) == {DENIED}

    run_configs(cluster, user, "--delete-config", MECHANISM)
    assert cluster.ask_all((user, OTHER), topic) == {NO_LOGIN}


def test_sessions_of_a_deleted_user_end_at_every_node_at_once(cluster: SecuredCluster):
    topic, user = cluster.make_topic(unique("ends")), unique("user")
    login = cluster.put_user(user, PASSWORD)
    for node in cluster.nodes:  # a grant of a topic's own at one node
        cluster.change(node, "POST", f"{GRANTS.format(topic=topic)}/{user}", ["produce"])
    producer = cluster.java(login).producer(topic)
    producer.wait_for(topic)
    producer.sent(Out(topic, b"before"))
    sessions = [node.log_in_to_kafka(*login) for node in cluster.nodes]
    sessions += [node.log_in_to_pulsar(*login) for node in cluster.nodes]

    began = time.monotonic()
    cluster.change(cluster.first, "DELETE", f"/trilogue/users/{user}")
    for session in sessions:
        assert session is not None
        assert has_ended(session)
    took = time.monotonic() - began

    assert took < AT_ONCE_S
    (refused,) = producer.send(Out(topic, b"after"))
    assert not refused.ok
    assert cluster.ask_all(login, topic) == {NO_LOGIN}
    assert not cluster.writes_by_tubemq(login, topic)


def test_delegation_tokens_of_kafkas_tool_hold_at_every_node(cluster: SecuredCluster):
    made = cluster.tool(TOKENS, "--create", "--max-life-time-period", "-1").text
    found = re.search(r"^([\w-]{22})\s+(\S{86}==)\s", made, re.MULTILINE)
    assert found is not None, made
    token_id, secret = found.groups()
    sessions = [
        node.log_in_to_kafka(token_id, secret, extension=",tokenauth=true")
        for node in cluster.nodes
    ]
    assert None not in sessions
    for node in cluster.nodes:
        assert node.log_in_to_kafka(token_id, secret) is None, "it is no user"

    cluster.tool(TOKENS, "--renew", "--renew-time-period", "3600000", "--hmac", secret)
    cluster.tool(
        TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", secret, node=cluster.first
    )
    for node, session in zip(cluster.nodes, sessions, strict=True):
        assert session is not None
        assert has_ended(session)
        assert node.log_in_to_kafka(token_id, secret, extension=",tokenauth=true") is None


@pytest.mark.parametrize("scope", ["namespace", "topic"])
def test_grants_of_pulsars_administration_hold_everywhere(cluster: SecuredCluster, scope: str):
    topic, user = cluster.make_topic(unique("grants")), unique("user")
    login = cluster.put_user(user, PASSWORD)
    grant = f"/admin/v2/namespaces/public/default/permissions/{user}"
    if scope == "topic":
        grant = f"{GRANTS.format(topic=topic)}/{user}"

    cluster.change(cluster.last, "POST", grant, ["produce", "consume"])
    assert cluster.ask_all(login, topic) == {ALLOWED}
    wait_until(lambda: cluster.writes_by_tubemq(login, topic))
    listed = run_acls(cluster, "--list", "--principal", f"User:{user}")
    assert {"READ", "WRITE"} <= set(re.findall(r"operation=(\w+)", listed))

    cluster.change(cluster.last, "DELETE", grant)
    assert cluster.ask_all(login, topic) == {DENIED}
    assert not cluster.writes_by_tubemq(login, topic)


def test_rules_of_tubemqs_web_api_hold_at_the_master_and_every_broker(cluster: SecuredCluster):
    topic, user, group = unique("web"), unique("user"), unique("group").replace(".", "-")
    new = {"brokerId": "1", "topicName": topic, "numPartitions": "2"}
    cluster.web(cluster.first, "admin_add_new_topic_record", **new)
    login = cluster.put_user(user, PASSWORD)
    for resource in ("--topic", topic), ("--group", group):
        run_acls(cluster, "--add", "--allow-principal", f"User:{user}", *resource)
    assert cluster.ask_all(login, topic) == {ALLOWED}
    wait_until(lambda: cluster.writes_by_tubemq(login, topic))

    rule = {"groupName": group, "topicName": topic}
    cluster.web(cluster.first, "admin_add_black_consumergroup_info", **rule)
    assert not reads(cluster, login, group, topic)
    cluster.web(cluster.first, "admin_delete_black_consumergroup_info", **rule)
    wait_until(lambda: reads(cluster, login, group, topic))
    response = cluster.first.request("GET", "/webapi.htm?method=admin_query_topic_info", login)
    assert [each["topicName"] for each in response.json()["data"]] == [topic]
