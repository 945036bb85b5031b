"""Listeners with TLS and logins, as the suites of five clients start their brokers.

They expect Kafka's `allow.everyone.if.no.acl.found`, and make ACLs in their tests. Their
certificates are made anew (aiokafka has a script for it) or taken from the suite's keystore.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LISTENERS = {"SSL": "kafka-ssl", "SASL_PLAINTEXT": "kafka-sasl", "SASL_SSL": "kafka-sasl-ssl"}
ADMIN = "admin"
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """PEM files: of the server, its key, and of the authority of clients."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True)
class Secured:
    """`ports` by Kafka's names of protocols; `users` have a password, for PLAIN.

    `scram` are mechanism, user and password that `kafka-configs.sh` stores after the start.
    """

    ports: Mapping[str, int]
    users: Mapping[str, str]
    certificates: Callable[[Path], Certificates]
    scram: tuple[tuple[str, str, str], ...] = ()
    client_certificates: bool = False

    def of_trilogue(self, folder: Path, suite: Path) -> dict[str, object]:
        """The settings of a Trilogue."""
        made = self.certificates(suite)
        users = folder / "users"
        users.touch(mode=0o600)
        users.write_text("".join(f"{name}:{word}\n" for name, word in self.users.items()))
        return {
            "access.authorize": True,
            "access.allow-without-acl": True,
            "access.super-users": f"User:{ADMIN}",
            "access.users-file": users,
            "tls.certificate": made.certificate,
            "tls.key": made.key,
            "tls.client-ca": made.authority,
            "tls.client-certificates": "optional" if self.client_certificates else "none",
        }

    def of_kafka(self, folder: Path, suite: Path) -> dict[str, object]:
        """The settings of a real Kafka."""
        made = self.certificates(suite)
        store = folder / "server.pem"
        store.write_text(made.key.read_text() + made.certificate.read_text())
        known = " ".join(f'user_{name}="{word}"' for name, word in self.users.items())
        plain = f'{PLAIN_MODULE} username="{ADMIN}" password="{self.users[ADMIN]}" {known};'
        settings: dict[str, object] = {
            "authorizer.class.name": AUTHORIZER,
            "allow.everyone.if.no.acl.found": "true",
            "super.users": f"User:{ADMIN}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": made.authority,
            "ssl.client.auth": "required" if self.client_certificates else "none",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        for protocol in self.ports.keys() & {"SASL_PLAINTEXT", "SASL_SSL"}:
            of = f"listener.name.{protocol.lower()}"
            settings[f"{of}.plain.sasl.jaas.config"] = plain
            for size in (256, 512):
                settings[f"{of}.scram-sha-{size}.sasl.jaas.config"] = f"{SCRAM_MODULE};"
        return settings

    def addresses(self) -> dict[str, str]:
        """Addresses by Kafka's names of protocols."""
        return {protocol: f"{HOST}:{port}" for protocol, port in self.ports.items()}

    def listen(self) -> dict[str, str]:
        """The same by the names of Trilogue's listeners."""
        return {LISTENERS[name]: address for name, address in self.addresses().items()}


def made_by_script(suite: Path) -> Certificates:
    """Return aiokafka's, which its script makes once; its tests read the client's there."""
    folder = suite / "tests/ssl_cert"
    if not folder.is_dir():
        folder.mkdir()
        script = (suite / "gen-ssl-certs.sh").absolute()
        subprocess.run(["bash", script], cwd=folder, check=True, capture_output=True)
    folder = folder.absolute()
    return Certificates(folder / "server.crt", folder / "server.key", folder / "ca.crt")


def of_keystore(suite: Path) -> Certificates:
    """Return those of the keystore of kafkajs."""
    folder = (suite / "testHelpers/certs").absolute()
    word = (folder / "keystore_creds").read_text().strip()
    store, key, certificate = (folder / f"suite.{end}" for end in ("p12", "key", "crt"))
    if not certificate.exists():
        before = ["-srckeystore", f"{folder}/kafka.server.keystore.jks", "-srcstorepass", word]
        after = ["-destkeystore", str(store), "-deststorepass", word, "-deststoretype", "PKCS12"]
        subprocess.run(["keytool", "-importkeystore", "-noprompt", *before, *after], check=True)
        opened = ["openssl", "pkcs12", "-in", str(store), "-passin", f"pass:{word}", "-nodes"]
        subprocess.run([*opened, "-nocerts", "-out", str(key)], check=True)
        subprocess.run([*opened, "-nokeys", "-out", str(certificate)], check=True)
    return Certificates(certificate, key, folder / "cert-file")


def made_by_openssl(suite: Path) -> Certificates:
    """Return a certificate that is its own authority, beside the tests."""
    folder = (suite / "tests").absolute()
    folder.mkdir(exist_ok=True)
    certificate, key = folder / "suite.crt", folder / "suite.key"
    if not certificate.exists():
        names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST},DNS:localhost"]
        made = ["-out", str(certificate), "-keyout", str(key), "-days", "30"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *made]
        subprocess.run(command, check=True, capture_output=True)
    return Certificates(certificate, key, certificate)


LIBRDKAFKA_WORD = "of-the-suite"
SECURED = {
    "aiokafka": Secured(
        {"SSL": 9093, "SASL_PLAINTEXT": 9094, "SASL_SSL": 9095},
        {name: name for name in (ADMIN, "test", "test2")},
        made_by_script,
        client_certificates=True,
    ),
    "librdkafka": Secured(
        {"SASL_SSL": 9095},
        dict.fromkeys((ADMIN, "test"), LIBRDKAFKA_WORD),
        made_by_openssl,
        (("SCRAM-SHA-512", "scram", LIBRDKAFKA_WORD),),
    ),
    "confluent-go": Secured(
        {"SASL_PLAINTEXT": 9093}, {ADMIN: "admin", "testuser": "testpass"}, made_by_openssl
    ),
    "rskafka": Secured({"SASL_PLAINTEXT": 9094}, {ADMIN: "admin-secret"}, made_by_openssl),
    "kafkajs": Secured(
        {"SSL": 9093, "SASL_SSL": 9094},
        {ADMIN: "adminadmin", "test": "testtest", "bob": "bobbob", "alice": "alicealice"},
        of_keystore,
        (
            ("SCRAM-SHA-256", "testscram", "testtestscram=256"),
            ("SCRAM-SHA-512", "testscram", "testtestscram=512"),
        ),
    ),
}
