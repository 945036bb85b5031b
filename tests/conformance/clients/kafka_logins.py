"""Logins of foreign Kafka clients: one attempt each, with one record; how each is made."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tests.conformance.clients.building import BUILD, HERE, go_program, node_folder, require_go
from tests.conformance.clients.kafka_programs import GO_NEEDS
from tests.tools import require_program

OK: Final = "ok"
REFUSED: Final = "refused"
DEADLINE_S: Final = 120.0
MODULE: Final = "tests.conformance.clients.kafka_logins"


class Attempt(msgspec.Struct, frozen=True):
    """The credentials of one login; TLS where an authority is named."""

    address: str
    topic: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    authority: str = ""
    certificate: str = ""
    key: str = ""


class LoginClient(Protocol):
    """A library."""

    name: str

    def require(self) -> None:
        """Skip where a tool is missing."""

    def attempt(self, attempts: list[Attempt]) -> list[str]:
        """Return `ok`, `refused` or the text of another error, for each."""


class LoginProgram:
    """A program that reads attempts as lines of JSON, and answers each with a line."""

    def __init__(self, name: str) -> None:
        self.name = name

    def require(self) -> None:
        if self.name == "kafkajs":
            require_program("node")
            require_program("npm")
        elif self.name in {"franz-go", "sarama"}:
            require_go(GO_NEEDS)

    def command(self) -> list[str | Path]:
        if self.name == "kafkajs":
            folder = node_folder(HERE / "node-kafka", BUILD / "kafka-clients" / "kafkajs")
            return ["node", folder / "logins.js"]
        if self.name in {"franz-go", "sarama"}:
            target = BUILD / "kafka-clients" / "logins"
            return [go_program(HERE / "go-kafka", target, "./logins"), self.name]
        return [sys.executable, "-m", MODULE, self.name]

    def attempt(self, attempts: list[Attempt]) -> list[str]:
        lines = "".join(f"{msgspec.json.encode(each).decode()}\n" for each in attempts)
        done = subprocess.run(
            self.command(),
            input=lines,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
            cwd=HERE.parents[2],
        )
        return done.stdout.splitlines()


CLIENTS: Final = [
    LoginProgram(name) for name in ("franz-go", "sarama", "kafkajs", "kafka-python", "aiokafka")
]


# -- the libraries in Python, each in a process of its own: this module, with their name


def _context(attempt: Attempt) -> ssl.SSLContext | None:
    if not attempt.authority:
        return None
    context = ssl.create_default_context(cafile=attempt.authority)
    if attempt.certificate:
        context.load_cert_chain(attempt.certificate, attempt.key)
    return context


def _protocol(attempt: Attempt) -> str:
    ends = "SSL" if attempt.authority else "PLAINTEXT"
    return f"SASL_{ends}" if attempt.mechanism else ends


def _outcome(error: BaseException) -> str:
    if type(error).__name__ in {"SaslAuthenticationFailed", "SaslAuthenticationFailedError"}:
        return REFUSED
    return f"{type(error).__name__} {error}".replace("\n", " ")


def _by_kafka_python(attempt: Attempt) -> str:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return attempt.token

    words = {
        "sasl_mechanism": attempt.mechanism,
        "sasl_plain_username": attempt.user,
        "sasl_plain_password": attempt.password,
        "sasl_oauth_token_provider": Provider(),
    }
    try:
        producer = KafkaProducer(
            bootstrap_servers=attempt.address,
            security_protocol=_protocol(attempt),
            ssl_context=_context(attempt),
            max_block_ms=10_000,
            **(words if attempt.mechanism else {}),
        )
        try:
            producer.send(attempt.topic, b"x").get(10)
        finally:
            producer.close(1)
    except (KafkaError, ValueError) as error:
        return _outcome(error)
    return OK


async def _by_aiokafka(attempt: Attempt) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return attempt.token

    words = {
        "sasl_mechanism": attempt.mechanism,
        "sasl_plain_username": attempt.user,
        "sasl_plain_password": attempt.password,
        "sasl_oauth_token_provider": Provider(),
    }
    try:
        producer = AIOKafkaProducer(
            bootstrap_servers=attempt.address,
            security_protocol=_protocol(attempt),
            ssl_context=_context(attempt),
            **(words if attempt.mechanism else {}),
        )
        try:
            await producer.start()
            await producer.send_and_wait(attempt.topic, b"x")
        finally:
            await producer.stop()
    except (KafkaError, ValueError) as error:
        return _outcome(error)
    return OK


def _main(name: str) -> None:
    for line in sys.stdin:
        attempt = msgspec.convert(json.loads(line), Attempt)
        outcome = (
            _by_kafka_python(attempt)
            if name == "kafka-python"
            else asyncio.run(_by_aiokafka(attempt))
        )
        print(outcome, flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
