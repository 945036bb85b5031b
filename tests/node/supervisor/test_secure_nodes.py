"""`serve --nodes 2 --secure`: users, ACLs, tokens and their ends hold at all nodes."""

from __future__ import annotations

import json
import re
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server import Server, run_trilogue, start_server
from tests.waiting import wait_until

WITHIN_S = 30.0  # a second on a machine of its own
LISTEN = dict.fromkeys(("kafka-sasl-ssl", "pulsar-ssl", "https"), "127.0.0.1:0")
TENANTS = "/admin/v2/tenants"

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "data", listen=LISTEN, arguments=["--secure"], nodes=2) as made:
        yield made


class Node:
    """The HTTPS listener of one node."""

    def __init__(self, server: Server, node_id: int) -> None:
        found = re.search(rf"^node {node_id} https +(\S+)$", server.output, re.MULTILINE)
        assert found is not None, server.output
        self.url = f"https://{found[1]}"
        self._context = ssl.create_default_context(cafile=str(server.data / "tls" / "ca.pem"))
        password = (server.data / "clients" / "admin.password").read_text().strip()
        self.admin = ("admin", password)

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        with httpx.Client(verify=self._context, timeout=60) as client:
            return client.request(method, f"{self.url}{path}", **options)  # type: ignore[arg-type]

    def change(self, method: str, path: str, body: object = None) -> httpx.Response:
        done = self.request(method, f"/trilogue{path}", json=body, auth=self.admin)
        assert done.is_success, done.text
        return done

    def status(self, *, password: str = "", token: str = "") -> int:
        """Of a request that a user without rights may not make: 401 without a login, else 403."""
        if token:
            headers = {"authorization": f"Bearer {token}"}
            return self.request("GET", TENANTS, headers=headers).status_code
        return self.request("GET", TENANTS, auth=("alice", password)).status_code


def test_logins_and_their_ends_hold_at_both_nodes(server: Server):
    first, second = Node(server, 1), Node(server, 2)
    for node in (first, second):
        assert node.request("GET", "/trilogue/users").status_code == 401
        assert node.request("GET", "/metrics").status_code == 401
    first.change("PUT", "/users/alice", {"password": "the first password"})
    token = second.change("POST", "/users/alice/tokens", {"lifetimeMs": 600_000}).json()["token"]
    for node in (first, second):
        assert node.status(password="the first password") == 403
        assert node.status(password="another password") == 401
        assert node.status(token=token) == 403

    first.change("DELETE", "/users/alice/tokens")
    for node in (first, second):
        wait_until(lambda node=node: node.status(token=token) == 401, "a revocation", WITHIN_S)
    second.change("POST", "/users/alice/password", {"password": "the second password"})
    for node in (first, second):
        wait_until(
            lambda node=node: node.status(password="the first password") == 401,
            "another password",
            WITHIN_S,
        )
        assert node.status(password="the second password") == 403
    first.change("DELETE", "/users/alice")
    for node in (first, second):
        wait_until(
            lambda node=node: node.status(password="the second password") == 401,
            "the end of a user",
            WITHIN_S,
        )


def test_everything_in_the_directory_of_several_nodes_is_private(server: Server):
    for path in server.data.rglob("*"):
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077 or path.is_symlink(), path


def test_nodes_are_listed_with_their_addresses_by_the_secured_listener(server: Server):
    login = ("--config", str(server.data / "clients/librdkafka.conf"))

    listed = run_trilogue("nodes", "list", *login)
    rows = json.loads(run_trilogue("nodes", "list", "--json", *login).stdout)

    addresses = re.findall(r"^node \d kafka-sasl-ssl +(\S+)$", server.output, re.MULTILINE)
    assert [line.split()[3] for line in listed.stdout.splitlines()[1:]] == addresses
    assert [each["kafka"] for each in rows] == addresses
    assert [each["doors"]["kafka-sasl-ssl"] for each in rows] == addresses


def test_nodes_are_described_by_the_secured_listener(server: Server):
    login = ("--config", str(server.data / "clients/librdkafka.conf"))

    rows = json.loads(run_trilogue("nodes", "describe", "--json", *login).stdout)

    assert [each["id"] for each in rows] == [1, 2]
    assert [each["problem"] for each in rows] == ["", ""]
    assert [each["cluster_slots"] for each in rows] == [16, 16]
