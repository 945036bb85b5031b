"""Logins at the HTTP listener of a secured server: curl's methods, and what is refused."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import jwt
import pytest

from tests.server import Server, start_server
from trilogue.gateway.failed_logins import FAILURES_MAX, FAILURES_PER_S

PASSWORD, TOKEN_KEY = "correct horse battery", "k" * 40
TENANTS = "/admin/v2/tenants"
GUESSES_MAX = 2_000  # a failure is forgotten each half second, in which a slow machine makes few


def make_files(directory: Path) -> dict[str, object]:
    """Write users and a key for tokens; return the settings of a secured server."""
    users, key = directory / "users", directory / "token.key"
    users.write_text(f"admin:{PASSWORD}\nalice:{PASSWORD}\n")
    key.write_text(TOKEN_KEY)
    for path in (users, key):
        path.chmod(0o600)
    return {
        "access.authenticate": True,
        "access.authorize": True,
        "access.super-users": "User:admin",
        "access.users-file": users,
        "access.token-key": key,
        "access.audit-log": directory / "audit.log",
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    directory = tmp_path_factory.mktemp("secured")
    settings = make_files(directory)
    with start_server(directory / "data", settings=settings) as server:
        yield SimpleNamespace(server=server, audit=directory / "audit.log")


def get(server: Server, path: str, **how: Any) -> httpx.Response:
    return httpx.get(f"{server.http}{path}", timeout=60, **how)


def token(user: str, **claims: object) -> str:
    return jwt.encode({"sub": user, **claims}, TOKEN_KEY, algorithm="HS256")


@pytest.mark.parametrize("path", [TENANTS, "/metrics", "/webapi.htm?method=admin_get_methods"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Basic"}, 401),
        ({"authorization": "Basic ***"}, 401),
        ({"authorization": "Negotiate abc"}, 401),
        ({"authorization": "Bearer " + token("admin")}, 200),
        ({"authorization": "bearer " + token("admin")}, 200),
        ({"authorization": "Bearer " + token("admin", exp=1)}, 401),
        ({"authorization": "Bearer " + jwt.encode({"sub": "admin"}, None, "none")}, 401),
        ({"authorization": "Bearer " + jwt.encode({"sub": "admin"}, "x" * 40)}, 401),
    ],
)
def test_every_path_needs_valid_credentials(secured, path, headers, status):
    response = get(secured.server, path, headers=headers)

    assert response.status_code == status
    challenges = response.headers.get_list("www-authenticate")
    assert [text.split()[0] for text in challenges] == (
        ["Basic", "Bearer"] if status == 401 else []
    )


def test_passwords_are_checked_and_the_acls_hold(secured):
    server = secured.server

    assert get(server, TENANTS, auth=("admin", PASSWORD)).status_code == 200
    assert get(server, "/metrics", auth=("admin", PASSWORD)).status_code == 200
    assert get(server, "/metrics", auth=("alice", PASSWORD)).status_code == 403
    assert get(server, f"{TENANTS}/public", auth=("alice", PASSWORD)).status_code == 403
    for user, password in (("admin", "wrong"), ("mallory", PASSWORD), ("admin", ""), ("", "")):
        assert get(server, TENANTS, auth=(user, password)).status_code == 401
    expired = {"authorization": "Bearer " + token("admin", exp=1)}
    assert get(server, TENANTS, headers=expired).status_code == 401

    lines = [json.loads(line) for line in secured.audit.read_text().splitlines()]
    failed = [line for line in lines if line["event"] == "login.failed"]
    assert {"basic", "bearer"} <= {line["method"] for line in failed}
    assert {line["principal"] for line in failed if line["method"] == "basic"} >= {
        "admin",
        "mallory",
    }
    assert all(line["address"] == "127.0.0.1" and line["protocol"] == "http" for line in failed)
    refused = [line for line in lines if line["event"] == "refused"]
    assert ("User:alice", "describe", "cluster cluster") in {
        (line["principal"], line["operation"], line["resource"]) for line in refused
    }
    assert PASSWORD not in secured.audit.read_text()


def test_two_sets_of_credentials_are_refused(secured):
    first = "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
    headers = [("authorization", first), ("authorization", "Bearer " + token("alice"))]

    assert get(secured.server, TENANTS, headers=headers).status_code == 401


def test_health_needs_no_login_and_only_at_its_own_path(secured):
    assert get(secured.server, "/healthz").status_code == 200
    assert get(secured.server, "/healthz/").status_code == 401
    assert get(secured.server, "/healthz/../metrics").status_code == 401
    assert get(secured.server, "//healthz").status_code == 401


@pytest.mark.parametrize("path", [TENANTS, "/metrics", "/webapi.htm?method=admin_get_methods"])
def test_a_foreign_name_in_the_host_header_is_refused(secured, path):
    """DNS rebinding: the page's own name leads to this server."""
    for host in ("evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"):
        response = get(secured.server, path, headers={"host": host}, auth=("admin", PASSWORD))
        assert response.status_code == 421
        assert "http.allowed-hosts" in response.json()["reason"]
    for host in ("localhost", "LOCALHOST:1", "[::1]:8080", "192.0.2.7"):
        response = get(secured.server, path, headers={"host": host}, auth=("admin", PASSWORD))
        assert response.status_code == 200


def test_a_page_changes_nothing_although_the_browser_has_a_login(secured):
    for headers in ({"origin": "http://localhost"}, {"sec-fetch-site": "cross-site"}):
        response = httpx.put(
            f"{secured.server.http}{TENANTS}/acme",
            json={"allowedClusters": ["standalone"]},
            headers=headers,
            auth=("admin", PASSWORD),
        )
        assert response.status_code == 403


@pytest.mark.full
def test_many_failures_are_refused_unchecked_and_a_known_password_is_not(tmp_path):
    with (
        start_server(tmp_path / "data", settings=make_files(tmp_path)) as server,
        httpx.Client(base_url=server.http, timeout=60) as client,
    ):
        assert client.get(TENANTS, auth=("admin", PASSWORD)).status_code == 200

        began = time.monotonic()
        responses = [client.get(TENANTS, auth=("admin", "guess"))]
        while responses[-1].status_code == 401 and len(responses) < GUESSES_MAX:
            responses.append(client.get(TENANTS, auth=("admin", f"guess{len(responses)}")))
        took_s = time.monotonic() - began

        assert responses[-1].status_code == 429
        assert responses[-1].headers["retry-after"] == "1"
        assert len(responses) - 1 <= FAILURES_MAX + FAILURES_PER_S * took_s + 1
        assert client.get(TENANTS, auth=("admin", PASSWORD)).status_code == 200


def test_the_anonymous_user_has_the_rights_of_its_acls(tmp_path):
    settings = {**make_files(tmp_path), "access.anonymous": "guest", "http.public-metrics": True}
    with start_server(tmp_path / "data", settings=settings) as server:
        assert get(server, f"{TENANTS}/public").status_code == 403
        assert get(server, f"{TENANTS}/public", auth=("admin", "wrong")).status_code == 401
        assert get(server, f"{TENANTS}/public", auth=("admin", PASSWORD)).status_code == 200
        assert get(server, "/metrics").status_code == 200
        assert '"principal": "User:guest"' in (tmp_path / "audit.log").read_text()


def test_a_changed_password_ends_the_old_one_at_once(tmp_path):
    settings = make_files(tmp_path)
    with start_server(tmp_path / "data", settings=settings) as server:
        assert get(server, TENANTS, auth=("admin", PASSWORD)).status_code == 200
        assert server.stop() == 0
    users = tmp_path / "users"
    users.write_text("admin:another one\n")
    users.chmod(0o600)
    with start_server(tmp_path / "data", settings=settings) as server:
        assert get(server, TENANTS, auth=("admin", PASSWORD)).status_code == 401
        assert get(server, TENANTS, auth=("admin", "another one")).status_code == 200
