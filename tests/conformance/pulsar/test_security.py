"""What every Pulsar library is held to where clients log in: credentials, and TLS."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.conformance.clients.building import BUILD, HERE, require_rust, rust_program
from tests.conformance.clients.pulsar import ClientError, Out, PulsarLibrary, connect
from tests.conformance.clients.pulsar_libraries import each
from tests.security.certificates import Authority
from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user

SECRET, OTHER = (
    "a secret of thirty-two bytes, or more",
    "another secret of thirty-two bytes, or more",
)
LISTENERS = ("pulsar", "pulsar-ssl", "http", "https")
TIMEOUT_MS = 60_000
REFUSED_MS = 3_000  # some clients try to log in again until it is over
WRONG = ("other key", "expired", "empty", "none", "wrong password", "user")
TOPIC = "persistent://public/default/orders"
LIBRARIES = pytest.mark.parametrize("library", each())

pytestmark = pytest.mark.full


class Secured(LiveNode):
    """A node where `alice` may do all with `orders`, by token, password or certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        server = self.authority.issue("server", common_name="localhost")
        self.files = self.authority.issue("client", common_name="alice")
        key = folder / "token.key"
        key.write_text(SECRET)
        key.chmod(0o600)
        settings = {
            "access.authenticate": "true",
            "access.authorize": "true",
            "access.token-key": key,
            "tls.certificate": server.certificate,
            "tls.key": server.key,
            "tls.client-ca": self.authority.certificate,
            "tls.client-certificates": "optional",
            "tls.principal-rules": "RULE:^CN=([^,]+).*$/$1/",
        }
        super().__init__(folder, settings, LISTENERS)

    def token(self, secret: str = SECRET, **claims: object) -> str:
        now_s = self.node.now_ms() // 1_000
        return jwt.encode({"sub": "alice", "iat": now_s, **claims}, secret, algorithm="HS256")

    def certificate(self) -> dict[str, str]:
        return {"certificate": str(self.files.certificate), "key": str(self.files.key)}

    def url(self, scheme: str) -> str:
        listener = {"pulsar+ssl": "pulsar-ssl"}.get(scheme, scheme)
        return f"{scheme}://localhost:{self.doors[listener].rpartition(':')[2]}"

    def failed_logins(self) -> int:
        if not self.audit_log.exists():
            return 0
        lines = map(json.loads, self.audit_log.read_text().splitlines())
        return sum(line["event"] == "login.failed" for line in lines)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("node")) as live:
        live.make_topic("orders")
        live.allow("alice", Operation.ALL, ResourceKind.TOPIC, "public/default/orders")
        users = live.node.storage.broker.users
        live.write(users.plan_put(make_user("alice", b"wonder", live.node.now_ms(), key=live.key)))
        yield live


def send_and_receive(node: Secured, library: PulsarLibrary, scheme: str, **words: Any) -> None:
    words = {"timeout_ms": TIMEOUT_MS, **words}
    if scheme not in {"pulsar", "http"}:
        words["ca"] = str(node.authority.certificate)
    connection = connect(library, node.url(scheme), **words)
    try:
        producer = connection.producer(TOPIC)
        consumer = connection.consumer(TOPIC, f"{library.name}-{scheme}", earliest=True)
        producer.send(Out(b"hello"))
        (read, *_) = consumer.receive(1)
        assert read.value == b"hello"
        consumer.ack(read)
    finally:
        connection.close()


@LIBRARIES
@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl", "http", "https"])
@pytest.mark.parametrize("method", ["token", "basic"])
def test_right_credentials_are_taken(
    node: Secured, library: PulsarLibrary, scheme: str, method: str
):
    right = {"token": node.token()} if method == "token" else alice("wonder")
    send_and_receive(node, library, scheme, **right)


def alice(password: str) -> dict[str, str]:
    return {"user": "alice", "password": password}


@LIBRARIES
def test_a_certificate_is_a_login(node: Secured, library: PulsarLibrary):
    send_and_receive(node, library, "pulsar+ssl", **node.certificate())


@pytest.mark.parametrize("library", each(can="certificates over https"))
def test_a_certificate_is_a_login_of_lookups(node: Secured, library: PulsarLibrary):
    send_and_receive(node, library, "https", **node.certificate())


@LIBRARIES
@pytest.mark.parametrize("case", WRONG)
def test_wrong_credentials_are_refused_and_recorded(
    node: Secured, library: PulsarLibrary, case: str
):
    now_s = node.node.now_ms() // 1_000
    words: dict[str, dict[str, str]] = {
        "other key": {"token": node.token(OTHER)},
        "expired": {"token": node.token(exp=now_s - 60)},
        "empty": {"token": ""},
        "none": {},
        "wrong password": alice("wander"),
        "user": {"user": "mallory", "password": "wonder"},
    }
    before = node.failed_logins()

    with pytest.raises(ClientError) as refused:
        send_and_receive(node, library, "pulsar+ssl", timeout_ms=REFUSED_MS, **words[case])

    assert "wander" not in str(refused.value)
    if "token" not in str(refused.value):  # it was sent
        wait_until(lambda: node.failed_logins() > before)


@LIBRARIES
def test_a_topic_without_permission_is_refused(node: Secured, library: PulsarLibrary):
    node.make_topic(f"secret-{library.name}")
    ca = str(node.authority.certificate)
    connection = connect(
        library, node.url("pulsar+ssl"), token=node.token(), ca=ca, timeout_ms=TIMEOUT_MS
    )
    with pytest.raises(ClientError, match=r"(?i)authoriz"):
        connection.producer(f"persistent://public/default/secret-{library.name}")
    connection.close()


@LIBRARIES
def test_a_server_of_another_authority_is_not_trusted(
    node: Secured, library: PulsarLibrary, tmp_path: Path
):
    ca = str(Authority(tmp_path, "stranger").certificate)
    connection = connect(
        library, node.url("pulsar+ssl"), token=node.token(), ca=ca, timeout_ms=REFUSED_MS
    )
    with pytest.raises(ClientError):
        connection.producer(TOPIC)
    connection.close()


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_rust_client_logs_in_and_is_refused(node: Secured):
    """By token and password, in clear and over TLS; its crates are compiled first."""
    require_rust()
    program = rust_program(HERE / "rust-pulsar", BUILD / "rust-pulsar")
    node.allow("alice", Operation.ALL, ResourceKind.GROUP, "rust")
    expired = node.token(exp=node.node.now_ms() // 1_000 - 60)
    right = [("token", node.token()), ("basic", "alice:wonder")]
    wrong = [("token", each) for each in (node.token(OTHER), expired, "", "none")]
    wrong += [("basic", each) for each in ("alice:wander", "alice:", "mallory:wonder")]
    attempts = [
        {
            "url": node.url(scheme),
            "authority": str(node.authority.certificate) if scheme == "pulsar+ssl" else "",
            "topic": f"{TOPIC}-partition-0",
            "method": method,
            "secret": secret,
            "message": f"{scheme} {number}",
        }
        for scheme in ("pulsar", "pulsar+ssl")
        for number, (method, secret) in enumerate([*right, *wrong, ("", "")])
    ]
    before = node.failed_logins()
    lines = "".join(f"{json.dumps(each)}\n" for each in attempts)
    done = subprocess.run(
        [program], input=lines, capture_output=True, text=True, check=True, timeout=300
    )
    results = [line.partition(" ")[0] for line in done.stdout.splitlines()]

    refusals = ["refused"] * (len(wrong) + 1)
    assert results == 2 * ["ok", "ok", *refusals]
    assert node.failed_logins() >= before + 2 * len(wrong)
