"""The internal listener: certificates of brokers, and settings that would leave it open."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.asking import Asker
from tests.security.certificates import Authority, Files
from tests.security.live_node import LiveNode
from trilogue.node.errors import StartError
from trilogue.node.listeners import plan_listeners
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import SettingsError
from trilogue.wire.kafka.internal.update_metadata import UpdateMetadataRequest
from trilogue.wire.kafka.metadata.describe_cluster import DescribeClusterRequest


class Secured:
    """A node whose brokers have certificates, and the authority of those."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        server = self.authority.issue("server", common_name="localhost")
        settings = {
            "tls.certificate": server.certificate,
            "tls.key": server.key,
            "tls.client-ca": self.authority.certificate,
            "tls.principal-rules": "RULE:^CN=(.*?),O=acme$/$1/L,DEFAULT",
            "cluster.principals": "User:node-2; User:node-3",
            "access.audit-log": folder / "audit.log",
        }
        self.audit_log = folder / "audit.log"
        self.node = LiveNode(folder, settings, ("kafka-ssl", "internal"))

    def connect(self, files: Files | None) -> Asker:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.check_hostname = False
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return Asker(self.node.doors["internal"], tls=context)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("internal"))
    with made.node:
        yield made


def test_the_certificate_of_a_broker_is_its_login(secured: Secured):
    with secured.connect(secured.authority.issue("node-2")) as asker:
        answer = asker.request(UpdateMetadataRequest(controller_epoch=1), 8)
        (node,) = asker.request(DescribeClusterRequest(), 1).brokers

    assert answer.error_code == 0
    assert f"{node.host}:{node.port}" == secured.node.doors["internal"]


def test_another_certificate_is_disconnected_and_audited(secured: Secured):
    with (
        secured.connect(secured.authority.issue("alice")) as asker,
        pytest.raises(ConnectionError),
    ):
        asker.request(UpdateMetadataRequest(controller_epoch=1), 8)

    assert '"principal": "User:alice"' in secured.audit_log.read_text()


def test_a_client_without_a_certificate_is_disconnected(secured: Secured):
    """Although clients of the public listeners show none."""
    with secured.connect(None) as asker, pytest.raises((ConnectionError, ssl.SSLError)):
        asker.request(UpdateMetadataRequest(controller_epoch=1), 8)


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ([], "no broker has access without cluster.principals"),
        (["cluster.principals=User:node-2"], "tls.client-ca has to name"),
    ],
)
def test_settings_without_which_no_broker_could_log_in_are_refused(
    assignments: list[str], problem: str
):
    with pytest.raises(SettingsError, match=problem):
        load_settings(environment={}, assignments=["listen.internal=127.0.0.1:0", *assignments])


def test_a_listener_without_tls_is_refused_on_a_public_address():
    settings = load_settings(
        environment={},
        assignments=[
            "listen.internal=0.0.0.0:0",
            "cluster.principals=User:node-2",
            "cluster.security-protocol=sasl",
        ],
    )

    with pytest.raises(StartError, match="the internal listener has not both TLS and logins"):
        plan_listeners(settings)
