"""Java's administration client against our HTTP listener: every call that applies here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools.servers.java import jars
from tools.servers.pulsar import VERSION

from tests.server import start_server
from tests.tools import require_pulsar_jars

SOURCE = Path(__file__).parents[1] / "clients" / "java-pulsar-admin" / "Admin.java"
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
