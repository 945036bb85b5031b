"""Credentials of foreign Kafka clients, right and wrong, at listeners with SASL and TLS."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import msgspec
import pytest

from tests.conformance.clients.kafka_logins import CLIENTS, OK, REFUSED, Attempt, LoginProgram
from tests.security.test_kafka_logins import MECHANISMS, PASSWORD, SECRET, Secured
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user

TOPIC = "of-alice"
SHORT = "until it is revoked"

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("node")) as live:
        live.make_topic(TOPIC)
        live.allow("alice", Operation.ALL, ResourceKind.TOPIC, f"public/default/{TOPIC}")
        live.allow("short", Operation.ALL, ResourceKind.TOPIC, f"public/default/{TOPIC}")
        yield live


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> LoginProgram:
    found: LoginProgram = request.param
    found.require()
    return found


def attempt(node: Secured, listener: str, **words: str) -> Attempt:
    port = node.doors[listener].rpartition(":")[2]
    if listener.endswith("ssl"):
        words.setdefault("authority", str(node.authority.certificate))
    return Attempt(f"localhost:{port}", TOPIC, **words)


def by_password(node: Secured, listener: str, mechanism: str, user: str, password: str) -> Attempt:
    return attempt(node, listener, mechanism=mechanism, user=user, password=password)


def by_token(node: Secured, secret: bytes = SECRET, **claims: object) -> Attempt:
    token = jwt.encode({"sub": "alice", **claims}, secret, algorithm="HS256")
    return attempt(node, "kafka-sasl-ssl", mechanism="OAUTHBEARER", token=token)


def assert_refused(client: LoginProgram, attempts: list[Attempt]) -> None:
    """The refusal of a token (RFC 7628) is not read as one by every client."""
    outcomes = client.attempt([msgspec.structs.replace(each, patience_s=3) for each in attempts])
    assert len(outcomes) == len(attempts)
    for made, outcome in zip(attempts, outcomes, strict=True):
        assert outcome != OK
        assert outcome == REFUSED or made.token or not client.reports_refusals, outcome


def count_records(node: Secured) -> int:
    topic = next(t for t in node.node.storage.broker.cluster if t.name.name == TOPIC)
    return sum(partition.log.end_offset for partition in topic.partitions)


def failed_logins(node: Secured) -> list[dict[str, Any]]:
    lines = map(json.loads, node.audit_log.read_text().splitlines())
    return [line for line in lines if line["event"] == "login.failed"]


def test_right_credentials_log_in_by_each_method(node: Secured, client: LoginProgram):
    listeners = ("kafka-sasl", "kafka-sasl-ssl")
    attempts = [
        by_password(node, listener, mechanism, "alice", PASSWORD)
        for listener in listeners
        for mechanism in MECHANISMS
    ]
    attempts.append(by_token(node, exp=int(time.time()) + 600))
    mine = node.authority.issue("client", common_name="ALICE")
    certificate = {"certificate": str(mine.certificate), "key": str(mine.key)}
    attempts.append(attempt(node, "kafka-ssl", **certificate))
    before = count_records(node)

    assert client.attempt(attempts) == [OK] * len(attempts)
    assert count_records(node) == before + len(attempts)


def test_wrong_credentials_are_refused_as_such_and_recorded(node: Secured, client: LoginProgram):
    now = int(time.time())
    attempts = [
        by_password(node, "kafka-sasl-ssl", mechanism, user, password)
        for mechanism in MECHANISMS
        for user, password in (("alice", "wrong"), ("mallory", PASSWORD))
    ]
    attempts.append(by_token(node, exp=now - 600))
    attempts.append(by_token(node, b"another secret, of 32 bytes or more", exp=now + 600))
    before, known = count_records(node), len(failed_logins(node))

    assert_refused(client, attempts)
    lines = failed_logins(node)[known:]
    assert len(lines) >= (len(attempts) if client.reports_refusals else 1)
    assert not any(PASSWORD in json.dumps(line) for line in lines)
    assert count_records(node) == before


def test_empty_credentials_and_foreign_certificates_end_in_an_error(
    node: Secured, client: LoginProgram
):
    """A client refuses some of them itself."""
    theirs = node.stranger.issue("thief", common_name="ALICE")
    attempts = [
        by_password(node, "kafka-sasl-ssl", mechanism, user, password)
        for mechanism in MECHANISMS
        for user, password in (("alice", ""), ("", PASSWORD))
    ]
    attempts += [
        attempt(node, "kafka-sasl-ssl", mechanism="OAUTHBEARER"),
        attempt(node, "kafka-ssl"),
        attempt(node, "kafka-ssl", certificate=str(theirs.certificate), key=str(theirs.key)),
        attempt(node, "kafka-ssl", authority=str(node.stranger.certificate)),
    ]
    before = count_records(node)

    outcomes = client.attempt([msgspec.structs.replace(each, patience_s=3) for each in attempts])
    assert len(outcomes) == len(attempts)
    assert OK not in outcomes
    assert count_records(node) == before


def test_revoked_credentials_are_refused_from_then_on(node: Secured, client: LoginProgram):
    """A password of before, and a token that is used again once it is revoked."""
    users = node.node.storage.broker.users

    def put(password: str) -> None:
        made = make_user("short", password.encode(), node.node.now_ms(), key=node.key)
        node.write(users.plan_put(made))

    put(SHORT)
    attempts = [
        by_password(node, "kafka-sasl-ssl", mechanism, "short", SHORT) for mechanism in MECHANISMS
    ]
    now = int(time.time())
    attempts.append(by_token(node, sub="short", iat=now, exp=now + 600))
    assert client.attempt(attempts) == [OK] * len(attempts)

    wait_until(lambda: node.node.now_ms() >= (now + 1) * 1_000, "the next second")
    put("another password")
    node.write(users.plan_revoke_tokens("short", node.node.now_ms()))
    assert_refused(client, attempts)
