"""SIGHUP beside clients of three protocols that send over TLS: they keep their connections."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.node.test_serve_reload import reload_settings, write
from tests.security.certificates import Authority
from tests.server import Server, start_server
from tests.waiting import wait_until
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

LISTENERS = ("kafka-ssl", "pulsar-ssl", "tubemq-master-ssl", "tubemq-broker-ssl", "https")
TOPICS = ("by-kafka", "by-pulsar", "by-tubemq")
DAY_MS = 86_400_000
WAIT_S = 60
pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]


class Sender:
    """Sends numbers in a thread, each once the one before is acknowledged."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0
        self.failure: Exception | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            for number in count():
                if self._ends.is_set():
                    return
                self._send(str(number).encode())
                self.acknowledged = number + 1
        except Exception as failure:  # noqa: BLE001 - of any client; the test shows it
            self.failure = failure

    def wait_for_more(self, messages: int) -> None:
        """Wait for so many acknowledgements from now on."""
        target = self.acknowledged + messages
        wait_until(lambda: self.failure or self.acknowledged >= target, "messages", WAIT_S)
        assert self.failure is None

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(WAIT_S)


@contextlib.contextmanager
def send_by_kafka(config: dict[str, Any]) -> Iterator[Sender]:
    problems: list[object] = []
    producer = Producer({**config, "linger.ms": 0, "error_cb": problems.append})

    def send(value: bytes) -> None:
        producer.produce("by-kafka", value, on_delivery=lambda error, _: problems.append(error))
        assert producer.flush(WAIT_S) == 0
        assert problems == [None]
        problems.clear()

    sender = Sender(send)
    yield sender
    sender.stop()


@contextlib.contextmanager
def send_by_pulsar(address: str, authority: Path) -> Iterator[Sender]:
    client = pulsar.Client(
        f"pulsar+ssl://{address}",
        tls_trust_certs_file_path=str(authority),
        tls_validate_hostname=True,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    sender = Sender(client.create_producer("by-pulsar-partition-0").send)
    yield sender
    sender.stop()
    client.close()


@contextlib.contextmanager
def send_by_tubemq(address: str, authority: Path) -> Iterator[Sender]:
    with TubeClient(address, tls=True, tls_trust_certs_file_path=str(authority)) as client:
        producer = client.producer("by-tubemq")
        sender = Sender(lambda value: producer.send(Message("by-tubemq", value)))
        yield sender
        sender.stop()


def list_sockets(server: Server) -> set[str]:
    """Return the inodes of the server's sockets: one that is closed and opened has another."""
    found = set()
    for each in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(each.readlink()))
    return {target for target in found if target.startswith("socket:")}


def read_values(config: dict[str, Any], topic: str, messages: int) -> list[bytes]:
    settings = {"group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, **settings})
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(values) < messages:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        values.append(message.value())
    consumer.close()
    return values


def find_retention(admin: AdminClient) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, "by-kafka")
    (future,) = admin.describe_configs([resource]).values()
    return str(future.result(WAIT_S)["retention.ms"].value)


def read_certificate(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


def test_clients_of_three_protocols_send_on(tmp_path: Path):
    authority, file = Authority(tmp_path), tmp_path / "own.toml"
    files = authority.issue("server", common_name="localhost")
    write(file, topics__retention="9d")
    settings = {"tls.certificate": files.certificate, "tls.key": files.key}
    with start_server(
        tmp_path / "data",
        listen={"http": "off", "kafka": "off", **dict.fromkeys(LISTENERS, "127.0.0.1:0")},
        arguments=["--config", str(file)],
        settings=settings,
    ) as server:
        config = {
            "bootstrap.servers": server.doors["kafka-ssl"],
            "security.protocol": "ssl",
            "ssl.ca.location": str(authority.certificate),
        }
        admin = AdminClient(config)
        for each in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            each.result(WAIT_S)
        with (
            send_by_kafka(config) as kafka,
            send_by_pulsar(server.doors["pulsar-ssl"], authority.certificate) as by_pulsar,
            send_by_tubemq(server.doors["tubemq-master-ssl"], authority.certificate) as tubemq,
        ):
            senders = (kafka, by_pulsar, tubemq)
            for each in senders:
                each.wait_for_more(20)
            sockets = list_sockets(server)
            for days in (8, 7, 6):
                authority.issue("server", common_name="localhost")
                write(file, topics__retention=f"{days}d", log__level=["info", "debug"][days % 2])
                output = reload_settings(server)
                assert "topics.retention" in output
                assert "tls.refused" not in output
                expected = ssl.PEM_cert_to_DER_cert(files.certificate.read_text())
                for listener in LISTENERS:
                    assert read_certificate(server.doors[listener]) == expected, listener
                assert find_retention(admin) == str(days * DAY_MS)
                for each in senders:
                    each.wait_for_more(20)
            assert sockets <= list_sockets(server)
        for topic, sender in zip(TOPICS, senders, strict=True):
            assert sender.failure is None
            values = read_values(config, topic, sender.acknowledged)
            assert values == [str(number).encode() for number in range(sender.acknowledged)]
        assert server.stop() == 0
