"""Clients that name an advertised listener are sent to its address, binary and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from tools.servers.probe import free_port

from tests.server import Server, start_server

NOBODY = "127.0.0.1:1"  # where nothing listens
TOPIC = "persistent://public/default/t"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One whose ordinary address is reached by no client, as behind a load balancer."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "advertise.pulsar": NOBODY,
        "pulsar.advertised-listeners": f"outside:pulsar://{address}",
    }
    made = start_server(tmp_path / "data", listen={"pulsar": address}, settings=settings)
    yield made
    made.kill9()


def make_client(server: Server, listener: str) -> pulsar.Client:
    return pulsar.Client(server.pulsar, listener_name=listener, operation_timeout_seconds=60)


def test_messages_by_the_address_of_a_named_listener(server: Server):
    client = make_client(server, "outside")
    try:
        consumer = client.subscribe(TOPIC, "s")
        client.create_producer(TOPIC).send(b"here")
        assert consumer.receive(60_000).data() == b"here"
    finally:
        client.close()


def test_a_listener_of_another_name_is_refused(server: Server):
    client = make_client(server, "inside")
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(TOPIC)
    finally:
        client.close()


def test_lookups_over_http_by_the_name_of_a_listener(server: Server):
    url = f"{server.http}/lookup/v2/topic/{TOPIC.replace('://', '/')}"

    by_query = httpx.get(url, params={"listenerName": "outside"}).json()
    by_header = httpx.get(url, headers={"X-Pulsar-ListenerName": "outside"}).json()

    assert by_query["brokerUrl"] == by_header["brokerUrl"] == server.pulsar
    assert httpx.get(url).json()["brokerUrl"] == f"pulsar://{NOBODY}"
    assert httpx.get(url, params={"listenerName": "inside"}).status_code >= 400
