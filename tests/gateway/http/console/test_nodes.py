"""The page of a group over nodes with TLS and logins: lag and resets of the partitions of both."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.gateway.http.console.page import ConsoleClient, Page
from tests.server import start_server

WAIT_S = 60
PARTITIONS = 4
pytestmark = pytest.mark.long


def read_client_config(path: Path, bootstrap: str) -> dict[str, str]:
    lines = [each for each in path.read_text().splitlines() if "=" in each and each[0] != "#"]
    return dict(each.split("=", 1) for each in lines) | {"bootstrap.servers": bootstrap}


def find_coordinator(address: str, group: str, **login: object) -> tuple[ConsoleClient, Page]:
    """Return the console of the node that coordinates a group, and the page of the group there."""
    while True:
        console = ConsoleClient(address, **login)
        answer = console.client.get("/console/group", params={"name": group})
        if answer.status_code == 200:
            return console, Page(answer.text)
        console.client.close()
        assert answer.status_code == 421, answer.text
        elsewhere = Page(answer.text).links["Open it at that node"].partition("/console")[0]
        assert elsewhere != address
        address = elsewhere


@pytest.mark.timeout(180)
def test_a_group_is_reset_at_all_nodes(tmp_path: Path):
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"], settings={"nodes": 2}) as server:
        config = read_client_config(
            data / "clients/librdkafka.conf", server.doors["kafka-sasl-ssl"]
        )
        admin = AdminClient(config)
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(WAIT_S)
        producer = Producer(config)
        for number in range(10 * PARTITIONS):
            producer.produce("orders", b"v", partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer({**config, "group.id": "billing"})
        places = [TopicPartition("orders", each, 4) for each in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)

        password = (data / "clients/admin.password").read_text().strip()
        console, page = find_coordinator(
            f"https://{server.doors['https']}",
            "billing",
            auth=httpx.BasicAuth("admin", password),
            verify=ssl.create_default_context(cafile=str(data / "tls/ca.pem")),
        )
        positions = [row[2:5] for row in page.rows if row[0].endswith("/orders")]
        assert positions == [["4", "10", "6"]] * PARTITIONS

        for target, at, expected in (
            ("offset", "3", 3),
            ("offset", "99", 10),
            ("earliest", "", 0),
            ("time", "2030-01-01T00:00:00", 10),
            ("latest", "", 10),
        ):
            topic = {"topic": "public/default/orders", "partition": "", "to": target, "at": at}
            page = console.send(page, "/group/reset", **topic)
            found = consumer.committed(places, WAIT_S)
            assert [each.offset for each in found] == [expected] * PARTITIONS, target
        consumer.close()
        console.client.close()
