"""No secret of a secured node is where others read: logs, metrics, configurations, the disk."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.server import run_trilogue, start_server

PASSWORD = "a password that nothing shows 4711"
WRONG = "a wrong password that nothing shows 0815"
WEB_TOKEN = "web-token-that-nothing-shows"
API = "/trilogue/users"


def test_secrets_are_only_where_they_have_to_be(tmp_path: Path):
    data = tmp_path / "data"
    settings = {
        "log.level": "debug",
        "tubemq.web-token": WEB_TOKEN,
        "access.super-users": "User:admin;User:ANONYMOUS",  # Kafka's plain listener, here
    }
    with start_server(data, settings=settings, arguments=["--secure"]) as server:
        admin_password = (data / "clients" / "admin.password").read_text().strip()
        shown: list[str] = []
        with httpx.Client(base_url=server.http, auth=("admin", admin_password)) as admin:
            created = admin.put(f"{API}/alice", json={"password": PASSWORD})
            issued = admin.post(f"{API}/alice/tokens", json={"lifetimeMs": 3_600_000})
            token = issued.json()["token"]
            broken = admin.put(f"{API}/bob", content=f'{{"password": "{PASSWORD}", ')
            odd = admin.put(f"{API}/bob", json={"password": PASSWORD, "other": PASSWORD})
            shown += [each.text for each in (created, broken, odd, admin.get(API))]
            shown += [admin.get(f"{API}/alice").text, admin.get("/metrics").text]
            changed = "/webapi.htm?method=admin_add_new_topic_record&confModAuthToken="
            shown += [admin.get(f"{changed}{token}").text, admin.get(f"{changed}{WEB_TOKEN}").text]
        for headers in (
            {"authorization": f"Bearer {token}"},
            {"authorization": f"Bearer {token[:-2]}"},
        ):
            shown.append(httpx.get(f"{server.http}/metrics", headers=headers).text)
        for user in ("alice", WRONG, "admin"):
            shown.append(httpx.get(f"{server.http}/metrics", auth=(user, WRONG)).text)
        shown.append(httpx.get(f"{server.http}/metrics", auth=("alice", PASSWORD)).text)
        shown.append(_describe_configs(server.kafka))
        given = [f"--set={key}={value}" for key, value in settings.items()]
        for words in (
            ["config", *given],
            ["config", "--json", *given],
            ["doctor"],
            ["users", "list"],
            ["users", "describe", "alice", "--json"],
        ):
            is_verb = words[0] == "users"
            more = (
                [f"--config={data / 'clients' / 'http.conf'}"] if is_verb else ["--data", str(data)]
            )
            finished = run_trilogue(*words, *more)
            assert finished.returncode == 0, finished.stderr
            shown += [finished.stdout, finished.stderr]
        doctor = run_trilogue("doctor", "--server", server.kafka, "--http", server.http[7:])
        shown += [doctor.stdout, doctor.stderr]
        server.signal(signal.SIGABRT)
        assert server.wait() != 0
        shown.append(server.output)

    signing = (data / "access.token-key").read_text().strip()
    encrypting = (data / "access.key").read_text().strip()
    secrets = [admin_password, PASSWORD, token, token[:-2], WEB_TOKEN, signing, encrypting]
    for text in shown:
        for secret in secrets:
            assert secret not in text
    assert WRONG not in server.output.replace(f'"principal": "{WRONG}"', "")
    allowed = {data / "access.token-key", data / "access.key", *(data / "clients").iterdir()}
    for path in data.rglob("*"):
        if path.is_file() and path not in allowed:
            content = path.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in content], path
    audit = [json.loads(line) for line in (data / "audit.log").read_text().splitlines()]
    assert {line["event"] for line in audit} >= {"login.failed", "refused", "done"}


def _describe_configs(bootstrap: str) -> str:
    """Return every configuration that Kafka's administration shows, as text."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    found = admin.describe_configs([resource])[resource].result(60)
    assert found
    return "\n".join(f"{entry.name}={entry.value}" for entry in found.values())
