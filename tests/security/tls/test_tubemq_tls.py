"""TubeMQ's listeners with TLS: clients are given the addresses of the kind that they came by."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl

import httpx
import pytest

from tests.security.certificates import Authority
from tests.security.live_node import LiveNode
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user
from trilogue.client.errors import ClientError, InvalidOption
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

LISTENERS = ("tubemq-master", "tubemq-broker", "tubemq-master-ssl", "tubemq-broker-ssl", "http")


class Secured(LiveNode):
    """A node with TubeMQ in clear and over TLS; `alice` may write and read `orders`."""

    def __init__(self, folder, listeners=LISTENERS) -> None:
        self.authority = Authority(folder)
        server = self.authority.issue("server", common_name="localhost")
        settings = {
            "access.authenticate": "true",
            "access.authorize": "true",
            "access.super-users": "User:admin",
            "tls.certificate": server.certificate,
            "tls.key": server.key,
        }
        super().__init__(folder, settings, listeners)

    def __enter__(self):
        super().__enter__()
        self.put_user("alice", "wonder")
        users = self.node.storage.broker.users
        self.write(users.plan_put(make_user("admin", b"wonder", self.node.now_ms(), key=self.key)))
        self.make_topic("orders")
        for operation in (Operation.READ, Operation.WRITE):
            self.allow("alice", operation, ResourceKind.TOPIC, "public/default/orders")
        self.allow("alice", Operation.READ, ResourceKind.GROUP, "readers")
        return self


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with Secured(tmp_path_factory.mktemp("node")) as live:
        yield live


@pytest.fixture
def secured_client(node):
    """Our client opens each of its connections over TLS: an address in clear would fail."""
    return TubeClient(
        node.doors["tubemq-master-ssl"],
        user="alice",
        password="wonder",
        tls=True,
        tls_trust_certs_file_path=str(node.authority.certificate),
    )


def test_a_stranger_s_certificate_is_not_trusted(node, tmp_path):
    stranger = str(Authority(tmp_path, "stranger").certificate)
    options = {"tls": True, "tls_trust_certs_file_path": stranger, "register_timeout_s": 2.0}
    with (
        TubeClient(node.doors["tubemq-master-ssl"], **options) as tube,
        pytest.raises(ClientError, match="not trusted"),
    ):
        tube.producer("orders")
    with pytest.raises(InvalidOption, match="needs tls=True"):
        TubeClient("h:1", tls_trust_certs_file_path=stranger)


# The loop of the client ends before the close of its TLS connections does.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_over_tls_writes_and_reads_over_tls(node, secured_client):
    with secured_client as tube, tube.producer("orders") as producer:
        producer.send(Message("orders", b"one"))
        with tube.consumer({"orders": set()}, group="readers") as consumer:
            assert b"one" in [each.body for each in consumer.get(10).messages]
            assert members(node, "readers") == [True]
        endpoints = (
            node.node.gateways.tubemq.master_endpoint,
            node.node.gateways.tubemq.broker_endpoint,
        )
        assert all(each.is_tls for endpoint in endpoints for each in endpoint.connections)
    gc.collect()


def test_a_client_in_clear_is_given_the_address_in_clear(node):
    master = node.doors["tubemq-master"]
    with (
        TubeClient(master, user="alice", password="wonder") as tube,
        tube.producer("orders") as producer,
    ):
        producer.send(Message("orders", b"two"))
        with tube.consumer({"orders": set()}, group="readers"):
            assert members(node, "readers") == [False]


def members(node, group):
    """Whether the members of a group use TLS, as the web API reports."""
    answer = httpx.get(
        f"http://{node.doors['http']}/webapi.htm",
        params={
            "type": "op_query",
            "method": "admin_query_consume_group_detail",
            "consumeGroup": group,
        },
        auth=("admin", "wonder"),
    )
    return [member["isOverTLS"] for member in answer.json()["data"]]


def test_plain_bytes_at_the_tls_port_are_not_answered(node):
    with socket.create_connection(node.doors["tubemq-master-ssl"].split(":"), 60) as peer:
        peer.sendall(bytes.fromhex("ff7ff4fe0000000100000000"))
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(100) == b""


def test_a_node_without_listeners_in_clear_serves(tmp_path):
    with Secured(tmp_path, LISTENERS[2:4]) as node:
        gateway = node.node.gateways.tubemq
        assert "{}:{}".format(*gateway.broker_address()) == node.doors["tubemq-broker-ssl"]
        with socket.create_connection(node.doors["tubemq-master-ssl"].split(":"), 60) as raw:
            context = ssl.create_default_context(cafile=str(node.authority.certificate))
            with context.wrap_socket(raw, server_hostname="localhost") as opened:
                assert opened.version() in {"TLSv1.2", "TLSv1.3"}
