"""The HTTPS listener: certificates of both sides, and that no peer holds it up."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import subprocess
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.gateway.http.websocket.sockets import Socket, refusal
from tests.node_ports import is_listening
from tests.security.certificates import Authority
from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user

pulsar = pytest.importorskip("pulsar")

TENANTS = "/admin/v2/tenants"
SILENT = 200


class Secured(LiveNode):
    """A node with HTTP in clear and over TLS; `ops` is an administrator with a certificate."""

    def __init__(self, folder: Path, certificates: str = "optional") -> None:
        self.folder = folder
        self.authority = Authority(folder)
        server = self.authority.issue("server", common_name="localhost")
        settings = {
            "access.authenticate": "true",
            "access.authorize": "true",
            "access.super-users": "User:ops",
            "tls.certificate": server.certificate,
            "tls.key": server.key,
            "tls.client-ca": self.authority.certificate,
            "tls.client-certificates": certificates,
            "tls.principal-rules": "RULE:^CN=([A-Za-z]+),O=acme$/$1/L",
        }
        super().__init__(folder, settings, ("pulsar", "pulsar-ssl", "http", "https"))

    def context(self, common_name: str = "") -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.authority.certificate))
        if common_name:
            files = self.authority.issue(f"client-{common_name}", common_name=common_name)
            made.load_cert_chain(files.certificate, files.key)
        return made

    def get(self, path: str = TENANTS, common_name: str = "", **how) -> httpx.Response:
        url = f"https://{self.doors['https']}{path}"
        return httpx.get(url, verify=self.context(common_name), timeout=60, **how)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with Secured(tmp_path_factory.mktemp("node")) as live:
        users = live.node.storage.broker.users
        live.write(users.plan_put(make_user("bob", b"builder", live.node.now_ms(), key=live.key)))
        live.make_topic("orders")
        live.allow("bob", Operation.ALL, ResourceKind.TOPIC, "public/default/orders")
        yield live


def test_a_certificate_is_a_login_and_a_password_is_stronger(node):
    assert node.get().status_code == 401
    assert node.get(common_name="ops").json() == ["public"]
    assert node.get("/metrics", common_name="ops").status_code == 200
    assert node.get("/metrics", common_name="bob").status_code == 403
    assert node.get("/metrics", common_name="0ps").status_code == 401, "no rule names it"
    assert node.get("/metrics", "ops", auth=("bob", "builder")).status_code == 403
    assert node.get(auth=("ops", "wrong"), common_name="ops").status_code == 401


def test_a_certificate_of_another_authority_is_no_connection(node, tmp_path):
    files = Authority(tmp_path, "stranger").issue("ops", common_name="ops")
    context = node.context()
    context.load_cert_chain(files.certificate, files.key)

    with pytest.raises(httpx.TransportError):
        httpx.get(f"https://{node.doors['https']}{TENANTS}", verify=context)


def test_plain_http_at_the_https_port_gets_nothing(node):
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{node.doors['https']}/healthz")


def test_a_page_is_read_whole_and_a_connection_is_kept(node):
    with httpx.Client(verify=node.context("ops"), timeout=60) as client:
        pages = [client.get(f"https://{node.doors['https']}/metrics") for _ in range(3)]
    assert all(page.text.endswith("\n") and len(page.text) > 5_000 for page in pages)
    assert node.node.gateways.http.requests >= 3


def test_lookups_name_the_addresses_with_tls(node):
    found = node.get("/lookup/v2/topic/persistent/public/default/orders", "ops").json()
    tls = f"pulsar+ssl://{node.doors['pulsar-ssl']}"
    assert (found["brokerUrl"], found["brokerUrlTls"]) == (
        f"pulsar://{node.doors['pulsar']}",
        tls,
    )
    assert (found["httpUrl"], found["httpUrlTls"]) == ("", f"https://{node.doors['https']}")
    cluster = node.get("/admin/v2/clusters/standalone", "ops").json()
    assert cluster["brokerServiceUrlTls"] == tls
    assert cluster["serviceUrlTls"] == f"https://{node.doors['https']}"


def test_transaction_coordinators_are_found_without_permission_for_system_topics(node):
    assign = "persistent/pulsar/system/transaction_coordinator_assign"

    for path in (f"/lookup/v2/topic/{assign}", f"/lookup/v2/topic/{assign}-partition-0"):
        found = node.get(path, common_name="bob").json()
        assert found["brokerUrlTls"] == f"pulsar+ssl://{node.doors['pulsar-ssl']}"
    count = node.get(f"/admin/v2/{assign}/partitions", common_name="bob").json()
    assert count == {"partitions": 1, "deleted": False}
    for path in (
        f"/lookup/v2/topic/{assign}-partition-1",
        f"/admin/v2/{assign}/stats",
        "/lookup/v2/topic/persistent/pulsar/system/other",
    ):
        assert node.get(path, common_name="bob").status_code == 403
    assert node.get(f"/lookup/v2/topic/{assign}").status_code == 401


def test_a_pulsar_client_looks_up_over_https_and_connects_with_tls(node):
    files = node.authority.issue("looker", common_name="bob")
    client = pulsar.Client(
        f"https://{node.doors['https']}",
        authentication=pulsar.AuthenticationTLS(str(files.certificate), str(files.key)),
        tls_trust_certs_file_path=str(node.authority.certificate),
        tls_validate_hostname=True,
        operation_timeout_seconds=30,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    client.create_producer("orders").send(b"hello")
    client.close()


def serial(node) -> str:
    with (
        socket.create_connection(node.doors["https"].split(":"), 60) as raw,
        node.context().wrap_socket(raw, server_hostname="localhost") as opened,
    ):
        return opened.getpeercert()["serialNumber"]


def test_websockets_over_tls_write_and_read(node):
    text = base64.b64encode(b"bob:builder").decode()
    how = {
        "sslopt": {"ca_certs": str(node.authority.certificate), "server_hostname": "localhost"},
        "header": [f"Authorization: Basic {text}"],
    }
    where = "persistent/public/default/orders"
    with (
        closing(Socket(node.doors["https"], f"reader/{where}?messageId=latest", **how)) as reader,
        closing(Socket(node.doors["https"], f"producer/{where}", **how)) as producer,
    ):
        for payload in (b"hello", bytes(500_000)):
            assert producer.produce(payload)["result"] == "ok"
            assert reader.take() == payload
    assert refusal(node.doors["https"], f"producer/{where}", **{**how, "header": []})[0] == 401


def test_the_certificate_is_read_again_without_a_restart(node):
    old = serial(node)
    node.authority.issue("server", common_name="localhost")

    wait_until(lambda: serial(node) != old, "the new certificate")
    assert node.get(common_name="ops").status_code == 200


def test_silent_peers_block_no_client_and_are_disconnected(node):
    with contextlib.ExitStack() as stack:
        for _ in range(SILENT):
            peer = socket.create_connection(node.doors["https"].split(":"), 60)
            stack.enter_context(peer)
        assert node.get(common_name="ops").status_code == 200
    wait_until(lambda: node.node.gateways.tls.handshakes.waiting == 0, "the end of the handshakes")
    assert node.node.gateways.http.connections == 0


def test_required_certificates_are_required_of_curl_too(tmp_path):
    with Secured(tmp_path, "required") as node:
        files = node.authority.issue("curl", common_name="ops")
        command = ["curl", "-sS", "--cacert", str(node.authority.certificate)]
        url = f"https://{node.doors['https']}{TENANTS}"
        own = ["--cert", str(files.certificate), "--key", str(files.key)]
        done = subprocess.run([*command, *own, url], capture_output=True, check=True)
        assert json.loads(done.stdout) == ["public"]
        refused = subprocess.run([*command, url], capture_output=True, check=False)
        assert refused.returncode
        assert not refused.stdout


def test_a_node_that_closes_ends_handshakes_and_connections(tmp_path):
    with Secured(tmp_path) as node:
        silent = socket.create_connection(node.doors["https"].split(":"), 60)
        assert node.get("/healthz").status_code == 200
        port = int(node.doors["https"].split(":")[1])
        assert is_listening(port)
    silent.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        assert silent.recv(1) == b""
    silent.close()
    assert not is_listening(port)
