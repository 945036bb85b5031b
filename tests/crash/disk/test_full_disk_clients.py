"""The disk runs full under clients of each protocol: each reports it within its own time-out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pulsar
import pytest

from tests.brokers import OurServer, make_topic
from tests.crash.faults import small_disk
from tests.waiting import wait_until
from trilogue.client.errors import ClientError
from trilogue.client.pulsar.sync import PulsarClient
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

TOPIC = "orders"
SIZE_MIB = 768
MIN_FREE = 128 << 20
TIMEOUT_S = 6.0
ERROR_WITHIN_S = 60.0


class Server(OurServer):
    """A server with all listeners."""

    door_names = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")


def produce(server: Server) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trilogue.cli.main", "produce", TOPIC, "--value", "text"]
    options = ["--server", server.address, "--timeout", str(TIMEOUT_S)]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def fails_in_time(send: Callable[[], object], error: type[Exception]) -> None:
    began = time.monotonic()
    with pytest.raises(error):
        send()
    assert time.monotonic() - began < ERROR_WITHIN_S


def goes_on(send: Callable[[], object]) -> None:
    """Send until it succeeds: a client pauses longer after each refusal."""

    def is_sent() -> bool:
        try:
            send()
        except (pulsar.PulsarException, ClientError):
            return False
        return True

    wait_until(is_sent, "a message that is taken")


def fill(disk: Path, ballast: Path) -> None:
    """The server allocates its files meanwhile: the space is looked at before each write."""
    with ballast.open("wb", buffering=0) as file:
        while shutil.disk_usage(disk).free > MIN_FREE // 2:
            file.write(bytes(1 << 20))


def write_until_refused(server: Server) -> None:
    """The server looks at the disk every few MiB."""
    refused: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.address, "message.timeout.ms": 6_000, "linger.ms": 0}
    )
    for _ in range(500):
        producer.produce(TOPIC, bytes(500_000), on_delivery=lambda error, _: refused.append(error))
        producer.flush(60)
        if any(refused):
            return
    raise AssertionError("the disk does not run full")


@pytest.mark.timeout(240)
def test_producers_report_a_full_disk_and_go_on_when_there_is_space(tmp_path: Path):
    with small_disk(tmp_path / "disk", SIZE_MIB) as disk:
        server = Server(disk / "data").start()
        try:
            make_topic(server.address, TOPIC, 1)
            with (
                closing(pulsar.Client(f"pulsar://{server.doors['pulsar']}")) as theirs,
                PulsarClient(
                    f"pulsar://{server.doors['pulsar']}", request_timeout_s=TIMEOUT_S
                ) as ours,
                ours.producer(TOPIC, delivery_timeout_s=TIMEOUT_S) as our_producer,
                TubeClient(server.doors["tubemq-master"], request_timeout_s=TIMEOUT_S) as tubes,
                tubes.producer(TOPIC) as tube_producer,
            ):
                their_producer = theirs.create_producer(
                    TOPIC, send_timeout_millis=int(TIMEOUT_S * 1_000)
                )
                their_producer.send(b"before")
                fill(disk, disk / "ballast")
                write_until_refused(server)

                began = time.monotonic()
                refused = produce(server)
                assert time.monotonic() - began < ERROR_WITHIN_S
                assert refused.returncode == 1
                assert "the disk is full" in refused.stderr
                fails_in_time(lambda: their_producer.send(b"text"), pulsar.PulsarException)
                fails_in_time(lambda: our_producer.send(b"text"), ClientError)
                fails_in_time(lambda: tube_producer.send(Message(TOPIC, b"text")), ClientError)

                (disk / "ballast").unlink()
                wait_until(lambda: produce(server).returncode == 0, "space")
                goes_on(lambda: their_producer.send(b"after"))
                goes_on(lambda: our_producer.send(b"after"))
                goes_on(lambda: tube_producer.send(Message(TOPIC, b"after")))
        finally:
            server.kill9()
