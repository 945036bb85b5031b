"""Pulsar clients at the TLS listener: method `tls`, and what lookups give them."""

from __future__ import annotations

import json

import pytest

from tests.security.certificates import Authority
from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind

pulsar = pytest.importorskip("pulsar")

TOPIC = "orders-partition-0"
REFUSED_WITHIN_S = 2  # the client tries again until then


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(tmp_path_factory, authority):
    folder = tmp_path_factory.mktemp("node")
    server = authority.issue("server", common_name="localhost")
    settings = {
        "access.authenticate": "true",
        "access.authorize": "true",
        "tls.certificate": server.certificate,
        "tls.key": server.key,
        "tls.client-ca": authority.certificate,
        "tls.client-certificates": "optional",
        "tls.principal-rules": "RULE:^CN=([A-Za-z]+),O=acme$/$1/L",
    }
    with LiveNode(folder, settings, ("pulsar", "pulsar-ssl")) as live:
        live.make_topic("orders")
        live.allow("alice", Operation.WRITE, ResourceKind.TOPIC, "public/default/orders")
        yield live


def send_one(node, authority, authentication=None, listener="pulsar-ssl", *, timeout_s=30):
    scheme = "pulsar+ssl" if listener == "pulsar-ssl" else "pulsar"
    client = pulsar.Client(
        f"{scheme}://{node.doors[listener]}",
        authentication=authentication,
        tls_trust_certs_file_path=str(authority.certificate),
        tls_validate_hostname=True,
        operation_timeout_seconds=timeout_s,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        client.create_producer(TOPIC).send(b"hello")
    finally:
        client.close()


def by_certificate(files):
    return pulsar.AuthenticationTLS(str(files.certificate), str(files.key))


def last_refusal(node):
    return json.loads(node.audit_log.read_text().splitlines()[-1])


def test_a_certificate_logs_in_as_its_principal(node, authority):
    send_one(node, authority, by_certificate(authority.issue("a", common_name="ALICE")))

    with pytest.raises(pulsar.AuthorizationError):
        send_one(node, authority, by_certificate(authority.issue("b", common_name="bob")))
    assert last_refusal(node)["principal"] == "User:bob"


def test_a_certificate_without_a_principal_is_refused(node, authority):
    files = authority.issue("c", common_name="c4rol")

    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        send_one(node, authority, by_certificate(files), timeout_s=REFUSED_WITHIN_S)

    def refusal():
        return last_refusal(node)["event"], last_refusal(node)["method"]

    wait_until(lambda: refusal() == ("login.failed", "tls"), refusal)


def test_the_method_tls_needs_a_certificate(node, authority):
    files = authority.issue("d", common_name="alice")

    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        send_one(node, authority, by_certificate(files), "pulsar", timeout_s=REFUSED_WITHIN_S)

    reason = "no client certificate with a principal"
    wait_until(lambda: last_refusal(node)["reason"] == reason, lambda: last_refusal(node))


@pytest.mark.full
def test_a_certificate_of_another_authority_is_no_connection(node, authority, tmp_path):
    theirs = Authority(tmp_path, "stranger").issue("e", common_name="alice")

    with pytest.raises(pulsar.PulsarException):
        send_one(node, authority, by_certificate(theirs), timeout_s=REFUSED_WITHIN_S)


@pytest.mark.full
def test_without_credentials_a_client_is_refused_at_the_tls_listener(node, authority):
    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        send_one(node, authority, timeout_s=REFUSED_WITHIN_S)
