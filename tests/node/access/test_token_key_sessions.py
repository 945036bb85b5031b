"""Another key for tokens: sessions by the old one end, of librdkafka and of Pulsar's client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import KafkaError, Producer

from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind

pulsar = pytest.importorskip("pulsar")

OLD, NEW = b"o" * 32, b"n" * 32
TOPIC = "orders"
PATIENCE_S = 60.0
SETTINGS = {"access.authenticate": "true", "access.authorize": "true"}
SESSION_ENDED = "connection.session_ended"
Send = Callable[[], bool]

pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]


class Rotation:
    """A node, the file of its keys, and what the clients show as their token."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "token.keys"
        self.shown = OLD
        self.write(OLD)
        listeners = ("kafka-sasl", "pulsar")
        self.node = LiveNode(folder, {**SETTINGS, "access.token-key": self.file}, listeners)

    def write(self, *secrets: bytes) -> None:
        """Replace the file by a JWKS."""
        rows = []
        for secret in secrets:
            row = json.loads(jwt.algorithms.HMACAlgorithm.to_jwk(secret))
            rows.append({**row, "kid": secret.decode()})
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"keys": rows}))
        new.chmod(0o600)
        new.rename(self.file)

    def token(self) -> str:
        headers = {"kid": self.shown.decode()}
        return jwt.encode({"sub": "alice"}, self.shown, "HS256", headers=headers)

    def kafka(self) -> Send:
        """Return what sends a message over one producer: False once its login is refused."""
        refused: list[KafkaError] = []

        def note(error: KafkaError) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                refused.append(error)

        config: dict[str, Any] = {
            "bootstrap.servers": self.node.doors["kafka-sasl"],
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (self.token(), time.time() + 3_600),
            "error_cb": note,
            "log_level": 0,
        }
        producer = Producer(config)

        def send() -> bool:
            outcomes: list[KafkaError | None] = []
            producer.produce(TOPIC, b"x", on_delivery=lambda error, _: outcomes.append(error))
            wait_until(
                lambda: producer.poll(0.05) >= 0 and bool(outcomes or refused),
                "an outcome",
                timeout_s=PATIENCE_S,
            )
            if refused:
                producer.purge()
            return not refused and outcomes == [None]

        return send

    def pulsar(self) -> Send:
        """The same over a client of Pulsar, which asks for its token at each login."""
        client = pulsar.Client(
            f"pulsar://{self.node.doors['pulsar']}",
            authentication=pulsar.AuthenticationToken(self.token),
            operation_timeout_seconds=5,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        producer = client.create_producer(f"{TOPIC}-partition-0", send_timeout_millis=5_000)

        def send() -> bool:
            try:
                producer.send(b"x")
            except pulsar.PulsarException:
                return False
            return True

        return send


@pytest.fixture
def rotation(tmp_path: Path) -> Iterator[Rotation]:
    made = Rotation(tmp_path)
    with made.node as node:
        node.make_topic(TOPIC)
        for operation in (Operation.WRITE, Operation.READ):
            node.allow("alice", operation, ResourceKind.TOPIC, f"public/default/{TOPIC}")
        yield made


@pytest.mark.parametrize("client", ["kafka", "pulsar"])
def test_a_session_ends_with_the_key_of_its_token(rotation: Rotation, caplog, client: str):
    caplog.set_level("INFO")
    connect = {"kafka": rotation.kafka, "pulsar": rotation.pulsar}[client]

    def ended() -> bool:
        return any(record.message == SESSION_ENDED for record in caplog.records)

    def read_times() -> int:
        return sum(record.message == "access.keys_read" for record in caplog.records)

    send = connect()
    assert send()
    rotation.write(OLD, NEW)
    wait_until(lambda: read_times() == 1, "both keys", timeout_s=PATIENCE_S)
    assert send()
    assert not ended(), "the key is still there"

    rotation.write(NEW)
    wait_until(ended, "the end of the session", timeout_s=PATIENCE_S)
    wait_until(lambda: not send(), "a refused login", timeout_s=PATIENCE_S)
    rotation.shown = NEW
    assert connect()()


def test_a_client_with_a_new_token_goes_on(rotation: Rotation, caplog):
    """pulsar-client connects again, and asks its supplier for the token."""
    caplog.set_level("INFO")
    send = rotation.pulsar()
    assert send()

    rotation.shown = NEW
    rotation.write(NEW)
    wait_until(
        lambda: any(record.message == SESSION_ENDED for record in caplog.records),
        "the end of the session",
        timeout_s=PATIENCE_S,
    )
    wait_until(send, "a message by the new token", timeout_s=PATIENCE_S)
