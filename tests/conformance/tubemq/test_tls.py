"""TubeMQ's own Java client with TLS (`tlsEnable`): its trust store decides."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)

from tests.conformance.clients.tubemq import ClientError, Out, connect, driver_process
from tests.security.certificates import Authority
from tests.security.tls.test_tubemq_tls import Secured
from tests.server import run_trilogue, start_server

PASSWORD = "changeit"

pytestmark = [pytest.mark.full, pytest.mark.java]


@pytest.mark.parametrize("master", ["tubemq-master", "tubemq-master-ssl"])
def test_the_java_client_works_with_what_a_secured_directory_has(tube_drivers, tmp_path, master):
    """In clear on this machine, where that is not closed; the client signs its requests."""
    data = tmp_path / "data"
    closed = {"tubemq-master": "off", "tubemq-broker": "off"} if master.endswith("-ssl") else None
    with start_server(data, arguments=["--secure"], listen=closed) as server:
        lines = (data / "clients" / "tubemq.properties").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        assert given["masterInfo"] == server.doors[master]
        created = run_trilogue(
            "topics", "create", "orders", "--config", str(data / "clients" / "librdkafka.conf")
        )
        assert created.returncode == 0, created.stderr
        client = connect(
            tube_drivers.setdefault("trilogue", driver_process()),
            given["masterInfo"],
            attempts=1,
            user=given["usrName"],
            password=given["usrPassWord"],
            truststore=given.get("trustStorePath"),
            truststore_password=given.get("trustStorePassword"),
        )
        producer = client.producer("orders")
        producer.wait_for("orders")
        producer.sent(Out("orders", b"from java"))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with Secured(tmp_path_factory.mktemp("node")) as live:
        yield live


def make_truststore(folder, authority: Authority) -> str:
    certificate = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    path = folder / "truststore.p12"
    content = serialize_java_truststore(
        [PKCS12Certificate(certificate, b"ca")], BestAvailableEncryption(PASSWORD.encode())
    )
    path.write_bytes(content)
    return str(path)


def test_the_java_client_writes_and_reads_over_tls(node, tube_drivers, tmp_path):
    driver = tube_drivers.setdefault("trilogue", driver_process())

    def log_in(authority):
        return connect(
            driver,
            node.doors["tubemq-master-ssl"],
            attempts=1,
            user="alice",
            password="wonder",
            truststore=make_truststore(tmp_path, authority),
            truststore_password=PASSWORD,
        )

    client = log_in(node.authority)
    producer = client.producer("orders")
    producer.wait_for("orders")
    producer.sent(Out("orders", b"from java"))
    consumer = client.pull("readers", {"orders": []})
    assert b"from java" in [each.body for each in consumer.receive(1)]

    with pytest.raises(ClientError):
        log_in(Authority(tmp_path, "stranger")).producer("orders")
