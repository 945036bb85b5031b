"""The configurations of clients of a secured node, in the form that each client reads.

    librdkafka.conf     librdkafka, confluent-kafka, kcat: key=value
    kafka.properties    Kafka's Java clients and command line (--command-config)
    spark.properties    options of Spark's Kafka source, and of ours
    pulsar.conf         pulsar-client and pulsar-admin (PULSAR_CLIENT_CONF)
    tubemq.properties   what TubeMQ's Java client is given (TubeClientConfig)
    truststore.p12      the private authority, for Java clients that read no PEM
    http.conf           curl -K, trilogue users, trilogue acls

They have the administrator's password: 0600, in a directory of 0700.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from trilogue.node.secure.files import SecureFiles, write_private

SCRAM = "SCRAM-SHA-256"
# Java needs one; what it would protect is a certificate that clients are given anyway.
TRUSTSTORE_PASSWORD = "changeit"  # noqa: S105
ClientAddresses = Mapping[str, tuple[bool, str]]
"""By the name of the plain listener: whether it is TLS, and its address."""


def write_clients(files: SecureFiles, user: str, password: str, addresses: ClientAddresses) -> None:
    """Write each configuration whose listener is open, if it has changed; raises OSError."""
    files.clients.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_truststore(files.truststore, files.tls / "ca.pem")
    for name, lines in _configurations(files, user, password, addresses):
        content = ("\n".join(lines) + "\n").encode()
        path = files.clients / name
        if not path.exists() or path.read_bytes() != content:
            write_private(path, content)


def _configurations(
    files: SecureFiles, user: str, password: str, addresses: ClientAddresses
) -> Iterator[tuple[str, list[str]]]:
    authority = files.tls / "ca.pem"
    if "kafka" in addresses:
        is_tls, address = addresses["kafka"]
        librdkafka = _librdkafka(authority, user, password, address, is_tls=is_tls)
        yield "librdkafka.conf", librdkafka
        java = _java(authority, user, password, address, is_tls=is_tls)
        yield "kafka.properties", java
        yield "spark.properties", [f"kafka.{line}" for line in java]
    if "pulsar" in addresses:
        yield "pulsar.conf", _pulsar(authority, user, password, addresses)
    if "tubemq-master" in addresses:
        yield "tubemq.properties", _tubemq(files, user, password, addresses["tubemq-master"])
    if "http" in addresses:
        yield "http.conf", _http(authority, user, password, addresses["http"])


def _librdkafka(
    authority: Path, user: str, password: str, address: str, *, is_tls: bool
) -> list[str]:
    return [
        f"bootstrap.servers={address}",
        f"security.protocol={'SASL_SSL' if is_tls else 'SASL_PLAINTEXT'}",
        f"sasl.mechanism={SCRAM}",
        f"sasl.username={user}",
        f"sasl.password={password}",
        *([f"ssl.ca.location={authority}"] if is_tls else []),
    ]


def _java(authority: Path, user: str, password: str, address: str, *, is_tls: bool) -> list[str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return [
        f"bootstrap.servers={address}",
        f"security.protocol={'SASL_SSL' if is_tls else 'SASL_PLAINTEXT'}",
        f"sasl.mechanism={SCRAM}",
        f'sasl.jaas.config={module} required username="{user}" password="{password}";',
        *(["ssl.truststore.type=PEM", f"ssl.truststore.location={authority}"] if is_tls else []),
    ]


def _pulsar(authority: Path, user: str, password: str, addresses: ClientAddresses) -> list[str]:
    is_tls, address = addresses["pulsar"]
    lines = [f"brokerServiceUrl={'pulsar+ssl' if is_tls else 'pulsar'}://{address}/"]
    if "http" in addresses:
        http_tls, http = addresses["http"]
        lines.append(f"webServiceUrl={'https' if http_tls else 'http'}://{http}/")
    # Java reads userId, the C++ library and those made of it read username.
    names = {"userId": user, "username": user, "password": password}
    credentials = json.dumps(names, separators=(",", ":"))
    return [
        *lines,
        "authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationBasic",
        f"authParams={credentials}",
        "tlsAllowInsecureConnection=false",
        "tlsEnableHostnameVerification=true",
        f"tlsTrustCertsFilePath={authority}",
    ]


def _tubemq(files: SecureFiles, user: str, password: str, master: tuple[bool, str]) -> list[str]:
    """Return the arguments of TubeClientConfig and its setters, by their names."""
    is_tls, address = master
    store = [
        "# setTLSEnableInfo(trustStorePath, trustStorePassword)",
        f"trustStorePath={files.truststore}",
        f"trustStorePassword={TRUSTSTORE_PASSWORD}",
    ]
    return [
        "# new TubeClientConfig(masterInfo), setAuthenticInfo(true, usrName, usrPassWord)",
        f"masterInfo={address}",
        f"usrName={user}",
        f"usrPassWord={password}",
        *(store if is_tls else []),
    ]


def write_truststore(path: Path, authority: Path) -> None:
    """Write the authority as Java reads it, unless the file has it already; raises OSError."""
    certificate = x509.load_pem_x509_certificate(authority.read_bytes())
    secret = TRUSTSTORE_PASSWORD.encode()
    if path.exists():
        stored = pkcs12.load_pkcs12(path.read_bytes(), secret).additional_certs
        if [each.certificate for each in stored] == [certificate]:
            return
    entry = pkcs12.PKCS12Certificate(certificate, b"trilogue")
    encryption = BestAvailableEncryption(secret)
    write_private(path, pkcs12.serialize_java_truststore([entry], encryption))


def _http(authority: Path, user: str, password: str, server: tuple[bool, str]) -> list[str]:
    is_tls, address = server
    return [
        f"# server: {'https' if is_tls else 'http'}://{address}",
        f'user = "{user}:{password}"',
        *([f'cacert = "{authority}"'] if is_tls else []),
    ]
