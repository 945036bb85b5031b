"""Logins at Kafka's listeners by librdkafka: SASL, TLS, certificates, ACLs."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.security.certificates import Authority
from tests.security.live_node import LiveNode
from tests.tools import require_program
from tests.waiting import wait_until
from trilogue.gateway.authentication import Login
from trilogue.gateway.kafka.security.sasl_login import SaslLogin

PASSWORD = "correct horse, battery"
SECRET = b"s" * 32
LISTENERS = ("kafka", "kafka-ssl", "kafka-sasl", "kafka-sasl-ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AT_ONCE_S = 30.0  # a second or two on a machine of its own
SESSION_S = 6

pytestmark = pytest.mark.timeout(120)


class Secured(LiveNode):
    """A node with users, certificates and ACLs; `admin` may do everything."""

    def __init__(self, folder: Any, **settings: object) -> None:
        self.authority = Authority(folder)
        self.stranger = Authority(folder, "stranger")
        server = self.authority.issue("server", common_name="localhost")
        key, users = folder / "token.key", folder / "users"
        for path, content in (
            (key, SECRET),
            (users, f"admin:{PASSWORD}\nalice:{PASSWORD}\n".encode()),
        ):
            path.write_bytes(content)
            path.chmod(0o600)
        given = {
            "tls.certificate": server.certificate,
            "tls.key": server.key,
            "tls.client-ca": self.authority.certificate,
            "tls.client-certificates": "optional",
            "tls.principal-rules": "RULE:^CN=(.*?),O=acme$/$1/L,DEFAULT",
            "access.token-key": key,
            "access.users-file": users,
            "access.authorize": "true",
            "access.super-users": "User:admin",
            **settings,
        }
        super().__init__(folder, given, LISTENERS)

    def config(self, listener: str, **more: Any) -> dict[str, Any]:
        """Return the settings of a client of librdkafka."""
        protocol = {
            "kafka": "plaintext",
            "kafka-ssl": "ssl",
            "kafka-sasl": "sasl_plaintext",
            "kafka-sasl-ssl": "sasl_ssl",
        }[listener]
        found = {
            "bootstrap.servers": self.doors[listener],
            "security.protocol": protocol,
            "log_level": 0,
            **more,
        }
        if "ssl" in protocol:
            found["ssl.ca.location"] = str(self.authority.certificate)
        return found

    def login(
        self, user: str, password: str = PASSWORD, mechanism: str = "PLAIN"
    ) -> dict[str, str]:
        return {"sasl.mechanisms": mechanism, "sasl.username": user, "sasl.password": password}

    def admin(self) -> AdminClient:
        return AdminClient(self.config("kafka-sasl-ssl", **self.login("admin")))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("node")) as made:
        yield made


def send(config: dict[str, Any], topic: str, timeout_ms: int = 50_000) -> str:
    """Produce one message; return "" or the name of the error that ended it."""
    found: list[str] = []

    def on_error(error: KafkaError) -> None:
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:
            found.append(error.name())

    producer = Producer({**config, "message.timeout.ms": timeout_ms, "error_cb": on_error})
    outcome: list[str] = []
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: outcome.append(error.name() if error else "")
    )
    wait_until(lambda: producer.poll(0.05) >= 0 and bool(outcome or found), "an outcome")
    producer.purge()
    return found[0] if found else outcome[0]


@pytest.fixture(scope="module")
def allowed(node: Secured) -> str:
    """A topic that alice may write to."""
    admin = node.admin()
    allow(admin, "User:alice", "allowed", AclOperation.WRITE)
    allow(admin, "User:alice", "allowed", AclOperation.CREATE)
    return "allowed"


def allow(admin: AdminClient, user: str, topic: str, operation: AclOperation) -> AclBinding:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        user,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([acl]).values():
        future.result()
    return acl


@pytest.mark.parametrize("listener", ["kafka-sasl", "kafka-sasl-ssl"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_logs_in_and_may_do_what_acls_allow(
    node: Secured, allowed: str, listener: str, mechanism: str
):
    config = node.config(listener, **node.login("alice", mechanism=mechanism))

    assert send(config, allowed) == ""
    assert send(config, "forbidden") == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.full
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_debians_kcat_logs_in(node: Secured, mechanism: str):
    """Its librdkafka, 2.0.2, has its nonce twice in SCRAM; Kafka 3.9.1 takes it, 4.3.1 not."""
    require_program("kcat")
    config = node.config("kafka-sasl-ssl", **node.login("admin", mechanism=mechanism))
    del config["log_level"]
    options = [part for key, value in config.items() for part in ("-X", f"{key}={value}")]
    listed = subprocess.run(["kcat", "-L", *options], check=False, capture_output=True, text=True)

    assert listed.returncode == 0, listed.stderr
    assert "1 brokers" in listed.stdout


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("mallory", PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_are_refused(
    node: Secured, mechanism: str, user: str, password: str
):
    config = node.config("kafka-sasl", **node.login(user, password, mechanism))

    assert send(config, "allowed") == "_AUTHENTICATION"


def bearer(node: Secured, **claims: object) -> dict[str, Any]:
    token = jwt.encode({"sub": "alice", **claims}, SECRET, algorithm="HS256")
    return {
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 600),
    }


def test_a_token_logs_in_and_an_expired_one_does_not(node: Secured, allowed: str):
    now = int(time.time())
    assert send(node.config("kafka-sasl", **bearer(node, exp=now + 600)), allowed) == ""
    expired = node.config("kafka-sasl", **bearer(node, exp=now - 600))
    assert send(expired, allowed) == "_AUTHENTICATION"


@pytest.mark.full
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka_renews_its_session_on_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
):
    """KIP-368, with sessions of a few seconds: of a setting, or of the token."""
    logins: Counter[SaslLogin] = Counter()
    complete = SaslLogin._complete

    def count(self: SaslLogin, login: Login) -> None:
        complete(self, login)
        logins[self] += 1

    monkeypatch.setattr(SaslLogin, "_complete", count)
    tokens: list[str] = []

    def make_token(_: str) -> tuple[str, float]:
        end_s = time.time() + SESSION_S
        tokens.append(jwt.encode({"sub": "admin", "exp": int(end_s)}, SECRET, algorithm="HS256"))
        return tokens[-1], end_s

    session = {} if mechanism == "OAUTHBEARER" else {"kafka.sasl-session": f"{SESSION_S}s"}
    with Secured(tmp_path, **session) as node:
        login = node.login("admin", mechanism=mechanism)
        if mechanism == "OAUTHBEARER":
            login = {"sasl.mechanisms": mechanism, "oauth_cb": make_token}
        problems: list[KafkaError] = []
        config = node.config("kafka-sasl", **login, error_cb=problems.append)
        producer, outcomes = Producer(config), list[KafkaError | None]()

        def renewed_twice() -> bool:
            producer.produce("own", b"x", on_delivery=lambda error, _: outcomes.append(error))
            producer.poll(0.05)
            return max(logins.values(), default=0) >= 3

        wait_until(renewed_twice, "two renewals on one connection", timeout_s=60)
        assert producer.flush(60) == 0
    assert set(outcomes) == {None}
    assert not [each for each in problems if each.code() == KafkaError._AUTHENTICATION]
    assert len(set(tokens)) == len(tokens)


@pytest.mark.full
def test_a_certificate_is_a_principal_and_a_foreign_one_is_refused(node: Secured, allowed: str):
    mine = node.authority.issue("client", common_name="ALICE")
    theirs = node.stranger.issue("thief", common_name="ALICE")

    def config(files: Any) -> dict[str, Any]:
        return node.config(
            "kafka-ssl",
            **{
                "ssl.certificate.location": str(files.certificate),
                "ssl.key.location": str(files.key),
            },
        )

    assert send(config(mine), allowed) == ""
    assert send(config(mine), "forbidden") == "TOPIC_AUTHORIZATION_FAILED"
    assert send(node.config("kafka-ssl"), allowed) == "TOPIC_AUTHORIZATION_FAILED"
    assert send(config(theirs), allowed, 8_000) == "_MSG_TIMED_OUT", (
        "the handshake failed each time"
    )


def test_a_listener_without_login_serves_the_anonymous_user(node: Secured):
    assert send(node.config("kafka"), "allowed") == "TOPIC_AUTHORIZATION_FAILED"


def test_operations_of_the_cluster_are_those_of_its_acls(node: Secured, allowed: str):
    """WRITE on some topic lets a producer be idempotent (KIP-679), and is not listed as that."""
    describe = AclBinding(
        ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.DESCRIBE, AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = node.admin()
    for future in admin.create_acls([describe]).values():
        future.result()
    config = node.config("kafka-sasl", **node.login("alice"))
    client = AdminClient(config)

    described = client.describe_cluster(include_authorized_operations=True).result()

    assert [each.name for each in described.authorized_operations] == ["DESCRIBE"]
    assert send({**config, "enable.idempotence": True}, allowed) == ""


def test_acls_change_what_an_open_connection_may_do(node: Secured):
    admin = node.admin()
    topic = "changing"
    producer = Producer(
        {**node.config("kafka-sasl", **node.login("alice")), "message.timeout.ms": 60_000}
    )

    def outcome() -> str:
        found: list[str] = []
        try:
            producer.produce(
                topic,
                b"x",
                on_delivery=lambda error, _: found.append(error.name() if error else ""),
            )
        except KafkaException as problem:  # it knows already
            producer.poll(0.05)
            return str(problem.args[0].name())
        wait_until(lambda: producer.poll(0.05) >= 0 and bool(found), "an outcome")
        return found[0]

    assert outcome() == "TOPIC_AUTHORIZATION_FAILED"
    acl = allow(admin, "User:alice", topic, AclOperation.ALL)
    wait_until(lambda: outcome() == "", "the right to produce", AT_ONCE_S)
    listed = admin.describe_acls(every_acl()).result()
    assert acl in listed
    (deleted,) = admin.delete_acls([filter_of(acl)]).values()
    assert deleted.result() == [acl]
    assert outcome() == "TOPIC_AUTHORIZATION_FAILED"


def every_acl() -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def filter_of(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def test_users_that_kafkas_tools_make_log_in_until_they_are_deleted(node: Secured):
    admin = node.admin()
    change = UserScramCredentialUpsertion(
        "tooled", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"made by a tool"
    )
    admin.alter_user_scram_credentials([change])["tooled"].result()
    allow(admin, "User:tooled", "of-tools", AclOperation.ALL)
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        login = node.login("tooled", "made by a tool", mechanism)
        assert send(node.config("kafka-sasl", **login), "of-tools") == ""

    described = admin.describe_user_scram_credentials(["tooled"])["tooled"].result()
    assert [info.iterations for info in described.scram_credential_infos] == [4096]
    gone = UserScramCredentialDeletion("tooled", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["tooled"].result()
    login = node.login("tooled", "made by a tool", "SCRAM-SHA-256")
    assert send(node.config("kafka-sasl", **login), "of-tools") == "_AUTHENTICATION"


def test_a_users_sessions_end_with_the_user(node: Secured):
    admin = node.admin()
    for password in (b"first", b"second"):
        change = UserScramCredentialUpsertion(
            "short", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password
        )
        if password == b"second":
            peer = raw_login(node.doors["kafka-sasl"], "short", b"first")
        admin.alter_user_scram_credentials([change])["short"].result()
    peer.settimeout(AT_ONCE_S)
    assert peer.recv(1) == b"", "the connection is closed"


def frame(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 7, -1)
    return struct.pack(">i", len(head + body)) + head + body


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def receive(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
    return peer.recv(size, socket.MSG_WAITALL) if size else b""


_opened: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _close_sockets() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    _opened.append(socket.create_connection((host, int(port)), timeout=60))
    return _opened[-1]


def raw_login(address: str, user: str, password: bytes) -> socket.socket:
    """Log in by PLAIN as clients before 1.0 do: the token follows SaslHandshake v0 bare."""
    peer = connect(address)
    peer.sendall(frame(17, 0, text("PLAIN")))
    assert receive(peer)[4:6] == b"\0\0"
    token = b"\0" + user.encode() + b"\0" + password
    peer.sendall(struct.pack(">i", len(token)) + token)
    assert receive(peer) == b""
    return peer


def test_a_bare_token_logs_in_and_a_wrong_one_closes(node: Secured):
    peer = raw_login(node.doors["kafka-sasl"], "alice", PASSWORD.encode())
    peer.sendall(frame(18, 0, b""))
    assert receive(peer)[4:6] == b"\0\0"
    peer.close()

    peer = connect(node.doors["kafka-sasl"])
    peer.sendall(frame(17, 0, text("PLAIN")))
    receive(peer)
    token = b"\0alice\0wrong"
    peer.sendall(struct.pack(">i", len(token)) + token)
    assert peer.recv(1) == b""


@pytest.mark.parametrize("key", [0, 1, 3, 10, 19, 22, 32])
def test_nothing_is_served_before_the_login(node: Secured, key: int):
    peer = connect(node.doors["kafka-sasl"])
    peer.sendall(frame(18, 0, b""))
    assert receive(peer)[4:6] == b"\0\0"
    peer.sendall(frame(key, 0, bytes(64)))
    assert peer.recv(1) == b""


def test_a_large_frame_before_the_login_closes(node: Secured):
    peer = connect(node.doors["kafka-sasl"])
    peer.sendall(struct.pack(">i", 1 << 20))
    assert peer.recv(1) == b""


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", b"three parts"),
        (b"alice\0wrong", b"three parts"),
        (b"\0alice\0a\0b", b"three parts"),
        (b"\0\0password", b"needed"),
        (b"\0alice\0", b"needed"),
        (b"admin\0alice\0" + PASSWORD.encode(), b"itself only"),
        (b"\0\xff\0x", b"UTF-8"),
    ],
)
def test_tokens_that_are_none(node: Secured, token: bytes, reason: bytes):
    peer = connect(node.doors["kafka-sasl"])
    peer.sendall(frame(17, 1, text("PLAIN")))
    receive(peer)
    peer.sendall(frame(36, 1, struct.pack(">i", len(token)) + token))
    answer = receive(peer)
    assert struct.unpack_from(">h", answer, 4) == (58,)
    assert reason in answer
    assert peer.recv(1) == b"", "the connection is closed"


def test_requests_out_of_order_are_34_and_unknown_mechanisms_33(node: Secured):
    peer = connect(node.doors["kafka-sasl"])
    peer.sendall(frame(36, 1, struct.pack(">i", 0)))
    assert struct.unpack_from(">h", receive(peer), 4) == (34,)
    peer = connect(node.doors["kafka-sasl"])
    peer.sendall(frame(17, 1, text("GSSAPI")))
    answer = receive(peer)
    assert struct.unpack_from(">h", answer, 4) == (33,)
    assert b"SCRAM-SHA-512" in answer
    peer = connect(node.doors["kafka"])
    peer.sendall(frame(17, 1, text("PLAIN")))
    assert struct.unpack_from(">h", receive(peer), 4) == (34,)


@pytest.mark.parametrize("version", ["tls1", "tls1_1"])
def test_old_versions_of_tls_are_refused(node: Secured, version: str):
    command = ["openssl", "s_client", "-connect", node.doors["kafka-ssl"], f"-{version}"]
    done = subprocess.run(
        [*command, "-cipher", "DEFAULT@SECLEVEL=0"], input=b"", capture_output=True, check=False
    )
    assert b"Cipher is (NONE)" in done.stdout or done.returncode != 0


def test_plain_bytes_at_a_tls_port_get_nothing(node: Secured):
    peer = connect(node.doors["kafka-ssl"])
    peer.sendall(frame(18, 0, b""))
    received = peer.recv(1_000)
    assert not received or received[0] == 21, "a TLS alert at most"


def test_certificates_are_read_again_without_a_restart(tmp_path: Any):
    with Secured(tmp_path) as node:
        old = serial(node)
        kept = wrapped(node)
        node.authority.issue("server", common_name="localhost")
        wait_until(lambda: serial(node) != old, "the new certificate", AT_ONCE_S)
        kept.sendall(frame(18, 0, b""))
        assert kept.recv(4)
        (tmp_path / "server.pem").write_text("nonsense")
        time.sleep(1.1)
        assert serial(node) != old


def wrapped(node: Secured) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(node.authority.certificate))
    peer = context.wrap_socket(connect(node.doors["kafka-ssl"]), server_hostname="127.0.0.1")
    _opened.append(peer)
    return peer


def serial(node: Secured) -> str:
    with wrapped(node) as peer:
        return str(peer.getpeercert()["serialNumber"])


def test_acl_change_without_alter_on_the_cluster_is_denied(node: Secured):
    admin = AdminClient(node.config("kafka-sasl", **node.login("alice")))
    with pytest.raises(KafkaException) as caught:
        allow(admin, "User:alice", "forbidden", AclOperation.ALL)
    assert caught.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
