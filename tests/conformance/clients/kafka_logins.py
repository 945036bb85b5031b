"""Logins of foreign Kafka clients: one attempt each, with one record; how each is made."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
from tools.servers.java import jars

from tests.conformance.clients.building import (
    BUILD,
    HERE,
    classes,
    go_program,
    node_folder,
    require_go,
)
from tests.conformance.clients.java import QUICK_START
from tests.conformance.clients.kafka_programs import GO_NEEDS
from tests.tools import require_jars, require_program

OK: Final = "ok"
REFUSED: Final = "refused"
REFUSAL: Final = "SaslAuthenticationFailed"  # in what aiokafka logs
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
    patience_s: int = 30  # of a client that tries again until then, whatever the reason


class LoginProgram:
    """A program that reads attempts as lines of JSON, and answers each with a line."""

    def __init__(self, name: str, *, reports_refusals: bool = True) -> None:
        self.name = name
        self.reports_refusals = reports_refusals  # otherwise it only says that it has no server

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


class JavaLogins(LoginProgram):
    """The Java client of one version."""

    def __init__(self, version: str) -> None:
        super().__init__(f"java-{version}")
        self._version = version

    def require(self) -> None:
        require_jars(self._version)
        require_program("javac")

    def command(self) -> list[str | Path]:
        source = HERE / "java-logins" / "Logins.java"
        path = f"{jars(self._version)}/*"
        made = classes(BUILD / "kafka-clients" / f"logins-{self._version}", [source], path)
        return ["java", *QUICK_START, "-cp", f"{made}:{path}", "Logins"]


CLIENTS: Final = [
    *(LoginProgram(name) for name in ("franz-go", "sarama", "kafkajs", "aiokafka")),
    LoginProgram("kafka-python", reports_refusals=False),
    *(JavaLogins(version) for version in ("2.0.0", "3.9.1", "4.3.1")),
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


class _Refusals(logging.Handler):
    """Counts refusals, which aiokafka logs: its error is that no server was reached."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += REFUSAL in record.getMessage()


_refusals = _Refusals()


def _outcome(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".replace("\n", " ")


def _login(attempt: Attempt, provider: object) -> dict[str, object]:
    """Return how the Python clients log in by SASL, if they do."""
    if not attempt.mechanism:
        return {}
    return {
        "sasl_mechanism": attempt.mechanism,
        "sasl_plain_username": attempt.user,
        "sasl_plain_password": attempt.password,
        "sasl_oauth_token_provider": provider,
    }


def _by_kafka_python(attempt: Attempt) -> str:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return attempt.token

    try:
        producer = KafkaProducer(
            bootstrap_servers=attempt.address,
            security_protocol=_protocol(attempt),
            ssl_context=_context(attempt),
            max_block_ms=30_000,
            bootstrap_timeout_ms=1_000 * attempt.patience_s,
            **_login(attempt, Provider()),
        )
        try:
            producer.send(attempt.topic, b"x").get(30)
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

    try:
        producer = AIOKafkaProducer(
            bootstrap_servers=attempt.address,
            security_protocol=_protocol(attempt),
            ssl_context=_context(attempt),
            **_login(attempt, Provider()),
        )
        try:
            await producer.start()
            await producer.send_and_wait(attempt.topic, b"x")
        finally:
            await producer.stop()
    except (KafkaError, ValueError) as error:
        return REFUSED if _refusals.count else _outcome(error)
    return OK


def _main(name: str) -> None:
    logging.basicConfig(handlers=[_refusals], level=logging.WARNING)
    attempts = [msgspec.json.decode(line, type=Attempt) for line in sys.stdin]
    if name == "kafka-python":  # each refusal takes all of its patience
        with ThreadPoolExecutor(len(attempts)) as pool:
            print(*pool.map(_by_kafka_python, attempts), sep="\n")
        return
    for attempt in attempts:
        _refusals.count = 0
        print(asyncio.run(_by_aiokafka(attempt)))


if __name__ == "__main__":
    _main(sys.argv[1])
