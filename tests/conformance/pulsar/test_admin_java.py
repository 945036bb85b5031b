"""Java's administration client against our HTTP listener: every call that applies here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools.pulsar_answers.__main__ import Call, call_all
from tools.servers.java import jars
from tools.servers.pulsar import VERSION

from tests.server import start_server
from tests.tools import require_pulsar_jars

SOURCES = Path(__file__).parents[1] / "clients" / "java-pulsar-admin"
SOURCE = SOURCES / "Admin.java"
REFUSED = {
    "notfound": "404 Topic persistent://public/default/nope not found",
}
ANSWERS = {
    "clusters": "[standalone]",
    "tenantInfo": "TenantInfoImpl(adminRoles=[x], allowedClusters=[standalone])",
    "setRetention": "RetentionPolicies{retentionTimeInMinutes=10, retentionSizeInMB=10}",
    "tp dispatchRate set": "5",
    "tp publishRate set": "7",
    "props": "{k=v}",
    "createPartitioned props": "{a=b}",
    "createSub props": "{x=y}",
    "stats": "10",
    "peek": "m0k0{a=b}1:0:-1 m1k1{a=b}1:1:-1 m2k0{a=b}1:2:-1 ",
    "getMessageById": "m3",
    "skip": "7",
    "resetId": "5",
    "resetId excl": "4",
    "resetTime": "10",
    "expire id": "7",
    "terminate": "1:9:-1",
    "txn coordinators": "1",
    "txn coordinator": "1",
    "txn coordinatorStats": "Ready",
    "txn inBuffer": "false",
    "txn inPendingAck": "true",
    "txn metadata": "OPEN[persistent://public/default/txn][persistent://public/default/txn]",
    "txn buffer": "1",
    "txn pendingAck": "1",
    "txn slow": "true",
    "txn position": "PendingAck",
    "txn abort": "ABORTED",
}


@pytest.mark.java
def test_javas_administration_does_what_it_is_for(tmp_path: Path):
    require_pulsar_jars()
    classes = f"{jars(f'pulsar-{VERSION}')}/*"
    with start_server(tmp_path / "data") as server:
        ran = subprocess.run(
            ["java", "-Xmx400m", "-Dlog4j2.level=OFF", "-cp", classes, str(SOURCE),
             server.doors["http"], server.doors["pulsar"]],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    lines = [line.partition(" -> ") for line in ran.stdout.splitlines()]
    ok = {what[3:]: text for what, _, text in lines if what.startswith("ok ")}
    refused = {what[8:]: text for what, _, text in lines if what.startswith("refused ")}

    assert ran.returncode == 0, ran.stderr
    assert sorted(refused) == sorted(REFUSED), refused
    assert all(refused[what].startswith(text) for what, text in REFUSED.items())
    assert {what: ok.get(what) for what in ANSWERS} == ANSWERS
    assert len(ok) > 100


RATE = '{"dispatchThrottlingRateInMsg":5,"dispatchThrottlingRateInByte":-1,"ratePeriodInSecond":1}'
INACTIVE = (
    '{"inactiveTopicDeleteMode":"delete_when_no_subscriptions","maxInactiveDurationSeconds":600,'
    '"deleteWhileInactive":true}'
)
DONE: dict[str, object] = {"value": None}
AS_PULSAR: list[tuple[str, object]] = [
    ("namespaces.setProperty public/default a b", DONE),
    ("namespaces.getProperty public/default a", {"value": "b"}),
    ("namespaces.removeProperty public/default a", {"value": "b"}),
    ("namespaces.getProperty public/default a", DONE),
    ("namespaces.getBacklogQuotaMap public/default", {"value": {}}),
    ("namespaces.setDeduplicationSnapshotInterval public/default 7", DONE),
    ("namespaces.removeDeduplicationSnapshotInterval public/default", DONE),
    ("namespaces.getDeduplicationSnapshotInterval public/default", DONE),
    ('namespaces.setNamespaceAllowedClusters public/default ["standalone"]', DONE),
    ("namespaces.getNamespaceAllowedClusters public/default", {"value": ["standalone"]}),
    ("namespaces.getAntiAffinityNamespaces public standalone group", {"value": []}),
    ("topics.createPartitionedTopic persistent://public/default/t 2", DONE),
    ("topics.createMissedPartitions persistent://public/default/t", DONE),
    ("topics.revokePermissions persistent://public/default/t nobody", DONE),
    ("namespaces.grantPermissionOnTopics persistent://public/default/t", DONE),
    ("topics.getPermissions persistent://public/default/t", {"value": {"reader": ["consume"]}}),
    ("namespaces.revokePermissionOnTopics persistent://public/default/t", DONE),
    ("topics.getPermissions persistent://public/default/t", {"value": {}}),
    (
        "topicPolicies.getReplicationClusters persistent://public/default/t true",
        {"value": ["standalone"]},
    ),
    (f"topicPolicies.setSubscriptionDispatchRate persistent://public/default/t s {RATE}", DONE),
    (f"topicPolicies.setInactiveTopicPolicies persistent://public/default/t {INACTIVE}", DONE),
    ("topicPolicies.deleteTopicPolicies persistent://public/default/t", DONE),
    ("topicPolicies.getSubscriptionDispatchRate persistent://public/default/t s", DONE),
    ("topicPolicies.getInactiveTopicPolicies persistent://public/default/t", DONE),
]
"""Calls, and the answers of a Pulsar 4.0.7 (docs/reference/pulsar-admin.md)."""


@pytest.mark.full
@pytest.mark.java
@pytest.mark.timeout(300)
def test_calls_have_the_answers_of_a_real_pulsar(tmp_path: Path):
    require_pulsar_jars()
    calls = [Call("", line) for line, _ in AS_PULSAR]
    with start_server(tmp_path / "data") as server:
        broker = f"pulsar://{server.doors['pulsar']}"
        answers = call_all(calls, f"http://{server.doors['http']}", broker)

    found = [(call.line, answer) for call, answer in zip(calls, answers, strict=True)]
    assert found == AS_PULSAR


@pytest.mark.full
@pytest.mark.java
@pytest.mark.timeout(300)
def test_a_whole_topic_of_several_nodes_is_administered_over_https(tmp_path: Path):
    """With HTTPS listeners only: the nodes pass on the password to each other, by TLS."""
    require_pulsar_jars()
    data = tmp_path / "data"
    listen = dict.fromkeys(("kafka-sasl-ssl", "pulsar-ssl", "https"), "127.0.0.1:0")
    with start_server(data, listen=listen, arguments=["--secure"], nodes=2) as server:
        password = (data / "clients" / "admin.password").read_text().strip()
        ran = subprocess.run(
            ["java", "-Xmx400m", "-Dlog4j2.level=OFF", "-cp", f"{jars(f'pulsar-{VERSION}')}/*",
             str(SOURCES / "WholeTopic.java"), f"https://{server.doors['https']}",
             str(data / "tls" / "ca.pem"), "admin", password, "persistent://public/default/parts"],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert dict(line.split(" ", 1) for line in ran.stdout.splitlines()) == {
        "create": "4",
        "subscribe": "",
        "partitions": "4",
        "owners": "2",
        "subscriptions": "[readers]",
        "internal": "4",
        "skip": "",
        "delete": "",
        **{f"grown-{number}": "5" for number in range(4)},
        "left": "[]",
    }
