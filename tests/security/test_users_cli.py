"""`trilogue users` and `trilogue acls`: at a server over HTTP, and without one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.security.test_http_login import PASSWORD, TENANTS, make_files
from tests.server import clean_environment, command_line, start_server

OTHER = "another battery staple"


def run(*arguments: str, password: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments),
        input=f"{password}\n",
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=60,
        check=False,
    )


def done(*arguments: str, password: str = "") -> str:
    finished = run(*arguments, password=password)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    directory = tmp_path_factory.mktemp("secured")
    settings = make_files(directory)
    config = directory / "http.conf"
    with start_server(directory / "data", settings=settings) as server:
        config.write_text(f'# server: {server.http}\nuser = "admin:{PASSWORD}"\n')
        yield SimpleNamespace(
            server=server, config=f"--config={config}", audit=directory / "audit.log"
        )


def status(secured: SimpleNamespace, user: str, password: str) -> int:
    url = f"{secured.server.http}{TENANTS}/public"
    return httpx.get(url, auth=(user, password), timeout=60).status_code


def test_a_user_from_its_creation_to_its_end(secured):
    config = secured.config

    assert done("users", "create", "carol", config, password=OTHER) == "created user carol\n"
    assert status(secured, "carol", OTHER) == 403
    assert status(secured, "carol", "wrong") == 401
    again = run("users", "create", "carol", config, password=OTHER)
    assert again.returncode == 1
    assert "set-password" in again.stderr

    done("users", "set-password", "carol", config, password="new")
    assert status(secured, "carol", OTHER) == 401
    assert status(secured, "carol", "new") == 403

    row = json.loads(done("users", "describe", "carol", config, "--json"))
    assert row["methods"] == ["SCRAM-SHA-256", "SCRAM-SHA-512", "password", "tubemq"]
    assert "carol" in [one["name"] for one in json.loads(done("users", "list", config, "--json"))]

    done("users", "delete", "carol", config, "--yes")
    assert status(secured, "carol", "new") == 401
    gone = run("users", "describe", "carol", config)
    assert gone.returncode == 1
    assert "no user 'carol'" in gone.stderr
    acts = [json.loads(line) for line in secured.audit.read_text().splitlines()]
    assert [
        (act["principal"], act["operation"])
        for act in acts
        if act.get("resource") == "user carol" and act["event"] == "done"
    ] == [
        ("User:admin", "create user"),
        ("User:admin", "set password"),
        ("User:admin", "delete user"),
    ]


def test_acls_hold_at_once_and_read_as_they_were_written(secured):
    config = secured.config
    done("users", "create", "dave", config, password=OTHER)
    assert status(secured, "dave", OTHER) == 403

    options = ("--principal=User:dave", "--operation=Describe", "--pattern=prefixed", config)
    done("acls", "add", "--topic=public/", *options)
    assert status(secured, "dave", OTHER) == 200
    rows = json.loads(done("acls", "list", "--principal=User:dave", config, "--json"))
    assert rows == [
        {
            "resourceType": "TOPIC",
            "patternType": "PREFIXED",
            "resourceName": "public/",
            "principal": "User:dave",
            "host": "*",
            "operation": "DESCRIBE",
            "permissionType": "ALLOW",
        }
    ]
    assert "DESCRIBE" in done("users", "describe", "dave", config)

    done("acls", "add", "--topic=public/", "--deny", "--host=127.0.0.1", *options)
    assert status(secured, "dave", OTHER) == 403
    done("acls", "remove", "--topic=public/", "--deny", "--host=127.0.0.1", *options)
    assert status(secured, "dave", OTHER) == 200
    done("acls", "remove", "--topic=public/", *options)
    assert status(secured, "dave", OTHER) == 403


def test_a_token_until_it_is_revoked(secured):
    token = done("users", "token", "alice", "--expires=1h", secured.config).strip()
    url = f"{secured.server.http}{TENANTS}/public"
    headers = {"authorization": f"Bearer {token}"}
    assert httpx.get(url, headers=headers).status_code == 403

    done("users", "delete", "alice", secured.config, "--yes")
    assert httpx.get(url, headers=headers).status_code == 401


def test_only_administrators_and_the_user_itself_change_a_user(secured, tmp_path):
    done("users", "create", "erin", secured.config, password=OTHER)
    mine = tmp_path / "erin.conf"
    mine.write_text(f'# server: {secured.server.http}\nuser = "erin:{OTHER}"\n')
    for words in (("list",), ("describe", "admin"), ("token", "admin"), ("delete", "admin", "-y")):
        refused = run("users", *words, f"--config={mine}")
        assert refused.returncode == 1
        assert "is denied" in refused.stderr
    other = run("users", "set-password", "admin", f"--config={mine}", password="x")
    assert "is denied" in other.stderr

    done("users", "set-password", "erin", f"--config={mine}", password="mine alone")
    assert status(secured, "erin", "mine alone") == 403
    wrong = run("users", "set-password", "erin", f"--config={mine}", password="x")
    assert wrong.returncode == 1
    assert "the password is wrong" in wrong.stderr


def test_a_lost_administrator_is_helped_without_a_server(tmp_path):
    settings = make_files(tmp_path)
    del settings["access.users-file"]
    data = tmp_path / "data"
    with start_server(data, settings=settings) as server:
        busy = run("users", "list", f"--data={data}")
        assert busy.returncode == 1
        assert "in use" in busy.stderr
        assert server.stop() == 0
    done("users", "create", "admin", f"--data={data}", password="lost")
    done("users", "set-password", "admin", f"--data={data}", password=OTHER)
    (tmp_path / "new").write_text(f"{PASSWORD}\n")
    done("users", "create", "bob", f"--data={data}", f"--password-file={tmp_path / 'new'}")
    done("acls", "add", f"--data={data}", "--principal=User:bob", "--topic=*", "--operation=read")
    assert "public" not in done("acls", "list", f"--data={data}")
    done("users", "revoke-tokens", "bob", f"--data={data}")
    audit = data / "audit.log"  # the command does not know the settings of the server
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["event"], line["operation"], line["resource"]) for line in lines] == [
        ("done", "create user", "user admin"),
        ("done", "set password", "user admin"),
        ("done", "create user", "user bob"),
        ("done", "create ACL", "cluster cluster"),
        ("done", "revoke tokens", "user bob"),
    ]
    assert {line["principal"].partition(":")[0] for line in lines} == {"OS"}
    assert {line["protocol"] for line in lines} == {"offline"}
    assert "User:bob" in lines[3]["acl"]
    assert audit.stat().st_mode & 0o077 == 0
    assert not any(word in json.dumps(lines) for word in ("lost", OTHER, PASSWORD))

    with start_server(data, settings=settings) as server:
        url = f"{server.http}{TENANTS}"
        assert httpx.get(url, auth=("admin", OTHER)).status_code == 200
        assert httpx.get(url, auth=("admin", "lost")).status_code == 401
        assert httpx.get(f"{url}/public", auth=("bob", PASSWORD)).status_code == 403


def test_mistakes_are_one_line(tmp_path: Path):
    nothing = run("users", "list", "--http=127.0.0.1:1")
    assert nothing.returncode == 3
    assert "no server responds at 127.0.0.1:1" in nothing.stderr
    empty = run("users", "list", f"--data={tmp_path}")
    assert empty.returncode == 2
    assert "no data of a server" in empty.stderr
    odd = run("users", "list", f"--config={tmp_path / 'none'}")
    assert odd.returncode == 2
    for words in ("--topic=a",), ("--operation=read",):
        assert run("acls", "add", "--principal=User:a", *words).returncode == 2
    assert run("users", "create", "a", "--http=127.0.0.1:1").returncode == 2  # an empty password
    for finished in nothing, empty, odd:
        assert finished.stderr.count("\n") == 1
