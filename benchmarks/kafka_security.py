"""TLS and logins beside a real Kafka: produce and consume, handshakes, 50 connections.

Both servers have the same certificate (ECDSA, P-256), the same user and two more listeners: SSL,
and SASL_SSL with SCRAM-SHA-512.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.security.certificates import Authority
from tools.servers.probe import free_port

from benchmarks import kafka_legs as legs
from benchmarks.drivers import HERE, Result, run
from benchmarks.gates import (
    CPU_PER_MESSAGE,
    CPU_PER_REQUEST,
    KAFKA,
    KAFKA_DEFAULT,
    TRILOGUE,
    Figures,
    at_least,
    at_most,
)
from benchmarks.rows import Row, Stage, metered
from benchmarks.servers import ADMIN, Contender, Kafka, Trilogue

USER, PASSWORD = "bench", "correct horse, battery"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SSL, SASL_SSL = "kafka-ssl", "kafka-sasl-ssl"
LISTENERS = (SSL, SASL_SSL)
PARTITIONS = 4
READ = 300_000
CONNECTIONS = 50


class Secured:
    """The listeners of a server besides the one in clear, and what their clients need."""

    def __init__(self, ca: Path) -> None:
        self.ca = ca
        self.secured = {listener: f"127.0.0.1:{free_port()}" for listener in LISTENERS}

    def endpoint(self, listener: str) -> legs.Endpoint:
        settings: dict[str, object] = {
            "security.protocol": "ssl" if listener == SSL else "sasl_ssl",
            "ssl.ca.location": self.ca,
        }
        if listener == SASL_SSL:
            settings |= {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        return legs.Endpoint(self.secured[listener], settings)


class SecuredKafka(Secured, Kafka):
    """A real one whose listeners in clear, with TLS and with a login are open."""

    def __init__(self, root: Path, name: str, version: str, authority: Authority) -> None:
        Secured.__init__(self, authority.certificate)
        files = authority.issue(f"server-{name}", common_name="localhost")
        store = root / "keystore.pem"
        store.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
        }
        secured = {"SSL": self.secured[SSL], "SASL_SSL": self.secured[SASL_SSL]}
        Kafka.__init__(self, root, name, version, settings, secured)


class SecuredTrilogue(Secured, Trilogue):
    """Ours with the same listeners."""

    def __init__(self, root: Path, authority: Authority) -> None:
        Secured.__init__(self, authority.certificate)
        files = authority.issue("server-trilogue", common_name="localhost")
        settings = {"tls.certificate": files.certificate, "tls.key": files.key}
        Trilogue.__init__(self, root, settings=settings)
        self.doors |= self.secured


def make_secured(
    names: list[str], directory: Path, kafka_version: str
) -> list[SecuredKafka | SecuredTrilogue]:
    """Servers that are not started, with certificates of one authority."""
    certificates = directory / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    authority = Authority(certificates)
    made: list[SecuredKafka | SecuredTrilogue] = []
    for name in names:
        root = directory / name
        root.mkdir(parents=True, exist_ok=True)
        if name == TRILOGUE:
            made.append(SecuredTrilogue(root, authority))
        else:
            made.append(SecuredKafka(root, name, kafka_version, authority))
    return made


def create_user(server: Contender) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, **ADMIN})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(60)


def endpoint(listener: str) -> Callable[[Contender], legs.Endpoint]:
    def find(server: Contender) -> legs.Endpoint:
        assert isinstance(server, Secured)
        return server.endpoint(listener)

    return find


def connections_leg(topic: str) -> legs.Leg:
    """Producers with a connection and one message on its way each."""

    def leg(stage: Stage, server: Contender) -> Figures:
        at = endpoint(SASL_SSL)(server)

        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "producers",
                at.address,
                topic,
                settings={"acks": "all", "linger.ms": 0, **at.settings},
                **moments,
                producers=CONNECTIONS,
                messages=1,
                size=100,
                warmup=3.0,
                seconds=stage.seconds,
            )

        return metered(stage, server, drive, "request")

    return leg


def handshakes_leg(stage: Stage, server: Contender) -> Figures:
    at = endpoint(SSL)(server)

    def drive(**moments: Callable[[], None]) -> Result:
        command: list[object] = [sys.executable, HERE / "handshakes.py", at.address]
        command += [at.settings["ssl.ca.location"], "--seconds", stage.seconds]
        return run(command, **moments)

    return metered(stage, server, drive, "request")


def warmed(row_leg: legs.Leg) -> Callable[[Stage, Contender], None]:
    """Make the user, and let the load run once unmeasured: compilers come to rest."""

    def warm(stage: Stage, server: Contender) -> None:
        create_user(server)
        row_leg(stage, server)

    return warm


PRODUCE = legs.produce_leg("tls-produce", 1024, endpoint(SSL))
CONSUME = legs.consume_leg("tls-consume", PARTITIONS, READ, endpoint(SSL))
FIFTY = connections_leg("tls-fifty")
ROWS = (
    Row(
        "tls-produce-1KiB",
        "librdkafka over TLS, acks=all, linger 5 ms, 1 KiB, 4 partitions.",
        "tls-produce",
        PARTITIONS,
        PRODUCE,
        (
            at_least("messages/s of Kafka with fsync", "messages_per_s", 1.0, KAFKA),
            at_most("its CPU/message", CPU_PER_MESSAGE, 1.0, KAFKA),
        ),
        warm=warmed(PRODUCE),
    ),
    Row(
        "tls-consume-1KiB",
        f"librdkafka over TLS reads {READ:,} messages of 1 KiB from the earliest offset.",
        "tls-consume",
        PARTITIONS,
        CONSUME,
        (
            at_least("kafka-default's messages/s", "messages_per_s", 1.0, KAFKA_DEFAULT),
            at_most("its CPU/message", CPU_PER_MESSAGE, 1.0, KAFKA_DEFAULT),
        ),
        fill=legs.fill("tls-consume", 1024, READ),
        warm=warmed(CONSUME),
    ),
    Row(
        "tls-handshakes",
        "8 clients that connect over TLS, get one response and close; full handshakes (ECDSA).",
        "",
        0,
        handshakes_leg,
        (
            at_least("Kafka's handshakes/s", "handshakes_per_s", 1.0, KAFKA_DEFAULT),
            at_most("its CPU/handshake", CPU_PER_REQUEST, 1.0, KAFKA_DEFAULT),
        ),
        warm=warmed(handshakes_leg),
    ),
    Row(
        "tls-fifty-connections",
        f"{CONNECTIONS} producers of librdkafka, each with a login by SCRAM-SHA-512 over TLS and "
        "one message of 100 B on its way.",
        "tls-fifty",
        PARTITIONS,
        FIFTY,
        (
            at_least("3x Kafka's requests/s with fsync", "requests_per_s", 3.0, KAFKA),
            at_most("CPU/request of kafka-default", CPU_PER_REQUEST, 1.0, KAFKA_DEFAULT),
        ),
        warm=warmed(FIFTY),
    ),
)
