"""`serve --cluster --secure`: one authority, one set of keys and users at three nodes.

The clients are librdkafka, Pulsar's own, TubeMQ's Java client and HTTP.
"""

from __future__ import annotations

import json
import shutil
import ssl
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.across.secured import (
    ALLOWED,
    DENIED,
    HEARTBEAT_MS,
    LISTEN,
    NO_LOGIN,
    PARTITIONS,
    SecuredNode,
    has_ended,
)
from tests.conformance.asking import Asker
from tests.conformance.clients.pulsar import ClientError
from tests.conformance.clients.tubemq import Out, connect, driver_process
from tests.postgres import PostgresServer
from tests.server import Server, launch_server, run_trilogue
from tests.waiting import wait_until
from trilogue.wire.kafka.internal.update_metadata import UpdateMetadataRequest

SIZE = 3
WAIT_S = 60.0
SOON_S = 30.0  # a second on a machine of its own
PASSWORD, OTHER = "the first password", "the second password"
SHARED = ("access.token-key", "access.key", "delegation-tokens.key", "tls/ca.pem", "tls/ca.key")

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


class Cluster:
    """Three nodes of one database, secured by the first."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self.folder, self.postgres = folder, postgres
        self.url = postgres.new_database()
        self.servers: dict[int, Server] = {}

    def data(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}"

    def launch(self, node_id: int, *arguments: str, **settings: object) -> Server:
        names = ["--cluster", self.url, "--node", str(node_id), *arguments]
        listen = dict.fromkeys((*LISTEN, "internal"), "127.0.0.1:0")
        listen |= (
            {"kafka": "off", "pulsar": "off", "http": "off"} if "--secure" in arguments else {}
        )
        if "--secure" not in arguments:
            listen = {"kafka": "127.0.0.1:0"}
        fixed = {"nodes": 1, "cluster.size": SIZE}
        return launch_server(
            self.data(node_id), listen=listen, arguments=names, settings=fixed, **settings
        )

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.servers[node_id] = self.launch(node_id, "--secure")
        for node_id in node_ids:
            self.servers[node_id].wait_ready(WAIT_S)

    def start_secured(self, size: int) -> None:
        """Start the first node, and the others with its secret."""
        self.start(1)
        others = range(2, size + 1)
        for node_id in others:
            self.data(node_id).mkdir(exist_ok=True)
            shutil.copy(self.data(1) / "cluster.secret", self.data(node_id))
        self.start(*others)

    @property
    def nodes(self) -> list[SecuredNode]:
        return [SecuredNode(self.data(each), self.servers[each].doors) for each in self.servers]

    @property
    def admin(self) -> tuple[str, str]:
        return "admin", (self.data(1) / "clients" / "admin.password").read_text().strip()

    def change(self, node_id: int, method: str, path: str, body: object = None) -> None:
        done = self.nodes[node_id - 1].request(method, path, self.admin, json=body)
        assert done.is_success, done.text

    def outcomes(self, login: tuple[str, str], topic: str) -> set[str]:
        """Return the outcomes of a write by each protocol, at each node."""
        asks = [ask for each in self.nodes for ask in (each.ask_kafka, each.ask_pulsar)]
        asks += [each.ask_http for each in self.nodes]
        with ThreadPoolExecutor(len(asks)) as pool:
            return set(pool.map(lambda ask: ask(login, topic), asks))


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("secured"), postgres_server)
    try:
        made.start(1)
        lonely = made.launch(2, "--secure")
        assert lonely.wait() != 0
        assert "copy cluster.secret" in lonely.output
        for node_id in (2, 3):
            made.data(node_id).mkdir(exist_ok=True)
            shutil.copy(made.data(1) / "cluster.secret", made.data(node_id))
        made.start(2, 3)
        yield made
        for server in made.servers.values():
            assert server.stop() == 0, server.output
    finally:
        for server in made.servers.values():
            server.kill9()


def test_nodes_have_the_same_secrets_which_the_database_has_only_encrypted(cluster: Cluster):
    query = "SELECT key || value FROM trilogue.settings"
    stored = "".join(str(row[0]) for row in cluster.postgres.run(query, cluster.url))
    for name in SHARED:
        content = {(cluster.data(node_id) / name).read_bytes() for node_id in (1, 2, 3)}
        assert len(content) == 1, name
        assert content.pop().decode().splitlines()[-1] not in stored
        assert stat.S_IMODE((cluster.data(3) / name).stat().st_mode) == 0o600
    assert cluster.admin[1] not in stored + "".join(s.output for s in cluster.servers.values())


def test_a_user_of_one_node_logs_in_at_each_by_each_protocol(cluster: Cluster):
    topic, login = "orders", ("alice", PASSWORD)
    path = f"/admin/v2/persistent/public/default/{topic}"
    cluster.change(1, "PUT", f"{path}/partitions", PARTITIONS)
    cluster.change(2, "PUT", "/trilogue/users/alice", {"password": PASSWORD})
    assert cluster.outcomes(login, topic) == {DENIED}
    cluster.change(3, "POST", f"{path}/permissions/alice", ["produce"])
    assert cluster.outcomes(login, topic) == {ALLOWED}
    sessions = [each.log_in_to_kafka(*login) for each in cluster.nodes]
    sessions += [each.log_in_to_pulsar(*login) for each in cluster.nodes]

    cluster.change(1, "POST", "/trilogue/users/alice/password", {"password": OTHER})
    for session in sessions:
        assert session is not None
        session.settimeout(SOON_S)
        assert has_ended(session)
        session.close()
    assert cluster.outcomes(login, topic) == {NO_LOGIN}
    assert cluster.outcomes(("alice", OTHER), topic) == {ALLOWED}
    cluster.change(2, "DELETE", "/trilogue/users/alice")
    assert cluster.outcomes(("alice", OTHER), topic) == {NO_LOGIN}


@pytest.mark.java
def test_tubemqs_client_signs_at_the_node_that_did_not_make_the_user(cluster: Cluster):
    """The passwords of signatures are encrypted with one key."""
    cluster.change(1, "PUT", "/admin/v2/persistent/public/default/tubes/partitions", PARTITIONS)
    cluster.change(3, "PUT", "/trilogue/users/tuber", {"password": PASSWORD})
    rights = "/admin/v2/persistent/public/default/tubes/permissions/tuber"
    cluster.change(2, "POST", rights, ["produce"])
    driver = driver_process()
    masters = ",".join(each.doors["tubemq-master"] for each in cluster.nodes)

    def sends(password: str) -> bool:
        words = {"user": "tuber", "password": password, "heartbeat_ms": HEARTBEAT_MS}
        client = connect(driver, masters, attempts=1, **words)
        try:
            return all(each.ok for each in client.producer("tubes").send(*[Out("tubes", b"x")] * 4))
        except ClientError:
            return False
        finally:
            client.close()

    try:
        wait_until(lambda: sends(PASSWORD), "a right to send", WAIT_S)
        assert not sends(OTHER)
    finally:
        driver.stop()


def test_tokens_of_one_node_are_valid_at_each_until_they_are_revoked(cluster: Cluster):
    cluster.change(1, "PUT", "/trilogue/users/bearer", {"password": PASSWORD})
    issued = cluster.nodes[0].request(
        "POST", "/trilogue/users/bearer/tokens", cluster.admin, json={}
    )
    token = issued.json()["token"]

    def statuses() -> set[int]:
        headers = {"authorization": f"Bearer {token}"}
        return {
            node.request("GET", "/admin/v2/tenants", None, headers=headers).status_code
            for node in cluster.nodes
        }

    assert statuses() == {403}
    cluster.change(3, "DELETE", "/trilogue/users/bearer/tokens")
    wait_until(lambda: statuses() == {401}, "a revocation", SOON_S)


def test_users_and_acls_are_changed_in_the_database_while_nodes_run(cluster: Cluster):
    topic, login = "ledgers", ("keeper", PASSWORD)
    cluster.change(1, "PUT", f"/admin/v2/persistent/public/default/{topic}/partitions", PARTITIONS)
    at = ("--cluster-url", cluster.url, "--data", str(cluster.data(2)))
    word = cluster.folder / "password"
    word.write_text(PASSWORD)

    created = run_trilogue("users", "create", "keeper", "--password-file", str(word), *at)
    assert created.returncode == 0, created.stderr

    def wait_for(outcome: str) -> None:
        asks = [each.ask_http for each in cluster.nodes]
        wait_until(lambda: {ask(login, topic) for ask in asks} == {outcome}, outcome, WAIT_S)

    wait_for(DENIED)
    rights = ("--principal", "User:keeper", "--operation", "WRITE", "--topic", topic)
    assert run_trilogue("acls", "add", *rights, *at).returncode == 0
    wait_for(ALLOWED)
    assert cluster.nodes[2].ask_kafka(login, topic) == ALLOWED
    listed = json.loads(run_trilogue("users", "list", "--json", *at).stdout)
    assert {row["name"] for row in listed} >= {"admin", "keeper"}
    assert run_trilogue("users", "delete", "keeper", "--yes", *at).returncode == 0
    wait_for(NO_LOGIN)
    lines = [json.loads(each) for each in (cluster.data(2) / "audit.log").read_text().splitlines()]
    offline = [line["operation"] for line in lines if line.get("protocol") == "offline"]
    assert len(offline) == 3

    elsewhere = run_trilogue(
        "users", "list", "--cluster-url", cluster.url, "--data", str(cluster.folder)
    )
    assert elsewhere.returncode
    online = run_trilogue(
        "users", "list", "--config", str(cluster.data(3) / "clients" / "http.conf")
    )
    assert "admin" in online.stdout, online.stderr


def test_nodes_trust_each_other_by_certificates_and_no_one_else(cluster: Cluster):
    """The certificate of node 2 at the internal listener of node 1."""

    def ask(certificate: str | None) -> int:
        tls = cluster.data(2) / "tls"
        context = ssl.create_default_context(cafile=tls / "ca.pem")
        if certificate is not None:
            context.load_cert_chain(tls / f"{certificate}.pem", tls / f"{certificate}.key")
        with Asker(cluster.servers[1].doors["internal"], tls=context) as asker:
            code: int = asker.request(UpdateMetadataRequest(controller_epoch=1), 8).error_code
            return code

    assert ask("node") == 0
    for certificate in (None, "server"):
        with pytest.raises((ssl.SSLError, OSError, AssertionError)):
            ask(certificate)


def test_a_node_without_the_secrets_does_not_serve_a_secured_cluster(cluster: Cluster):
    cluster.servers[3].stop()
    settings = cluster.data(3) / "secure.toml"
    aside = settings.rename(cluster.folder / "secure.toml")
    try:
        server = cluster.launch(3)
        assert server.wait() != 0
        assert "the cluster was secured, and access.authenticate is off" in server.output
    finally:
        aside.rename(settings)
        cluster.start(3)
    assert cluster.nodes[2].request("GET", "/trilogue/users", cluster.admin).is_success
