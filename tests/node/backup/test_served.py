"""`trilogue backup` beside a server under load of three protocols, counted by sequence numbers."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.s3 import KEYS, Proxy, options, s3_server
from tests.server import SECURED, Server, command_line, run_trilogue, start_server
from tests.waiting import wait_until
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

WAIT_S = 60
LISTEN = dict.fromkeys(("kafka", "http", "pulsar", "tubemq-master", "tubemq-broker"), "127.0.0.1:0")
QUIET = {"log_level": 0}
SETTINGS = {"journal.file-size": "64KiB", "journal.file-age": "100ms", "segments.grace": "1min"}


class Load:
    """Sends 0, 1, 2, … to a topic of its own until it is stopped; `acked` numbers came back."""

    def __init__(self, server: Server, topic: str) -> None:
        self.server, self.topic = server, topic
        self.acked: list[int] = []
        self.problem: BaseException | None = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.send_all()
        except BaseException as problem:  # noqa: BLE001 - the test reports it
            self.problem = problem

    def send_all(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        assert self.problem is None
        assert self.acked == list(range(len(self.acked)))


class KafkaLoad(Load):
    def send_all(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.server.kafka,
                "enable.idempotence": True,
                "linger.ms": 1,
                **QUIET,
            }
        )
        number = 0
        while not self.stopping.wait(0.005):
            for _ in range(10):
                producer.produce(self.topic, str(number), partition=0, on_delivery=self._delivered)
                number += 1
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.acked.append(int(message.value()))


class PulsarLoad(Load):
    def send_all(self) -> None:
        client = pulsar.Client(
            self.server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        producer = client.create_producer(f"{self.topic}-partition-0")
        number = 0
        while not self.stopping.is_set():
            producer.send(str(number).encode())
            self.acked.append(number)
            number += 1
        client.close()


class TubeLoad(Load):
    def send_all(self) -> None:
        with TubeClient(self.server.tubemq) as client:
            producer = client.producer(self.topic)
            number = 0
            while not self.stopping.is_set():
                producer.send(Message(self.topic, str(number).encode()))
                self.acked.append(number)
                number += 1


LOADS: dict[str, Callable[..., Load]] = {"k": KafkaLoad, "p": PulsarLoad, "q": TubeLoad}


def make_topics(server: Server, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(WAIT_S)


def read_numbers(server: Server, topic: str) -> list[int]:
    """All messages of a topic of one partition, as of now, by a foreign client."""
    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "reader", "enable.auto.commit": False,
         "isolation.level": "read_committed", **QUIET}
    )  # fmt: skip
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
        consumer.assign([TopicPartition(topic, 0, start)])
        numbers: list[int] = []
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(numbers)} messages came"
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
            if message.offset() == end - 1:
                break
        return numbers
    finally:
        consumer.close()


@pytest.mark.parametrize("nodes", [1, 2])
def test_acknowledged_messages_are_in_a_backup_once_and_in_order(tmp_path, nodes):
    place = tmp_path / "b"
    known: list[dict[str, int]] = []
    with start_server(tmp_path / "d", settings=SETTINGS, listen=LISTEN, nodes=nodes) as server:
        make_topics(server, *LOADS)
        loads = {topic: kind(server, topic) for topic, kind in LOADS.items()}
        for load in loads.values():
            load.thread.start()
        try:
            for _ in range(2):
                before = {topic: len(load.acked) for topic, load in loads.items()}
                wait_until(
                    lambda b=before: all(
                        load.problem or len(load.acked) > b[topic] + 20
                        for topic, load in loads.items()
                    ),
                    "messages of all protocols",
                )
                known.append({topic: len(load.acked) for topic, load in loads.items()})
                done = run_trilogue("backup", str(place), "--data", str(server.data), "--json")
                assert done.returncode == 0, done.stderr
        finally:
            for load in loads.values():
                load.stop()

    listed = json.loads(run_trilogue("restore", str(place), "--list", "--json").stdout)
    assert len(listed) == 2
    for counts, row in zip(known, listed, strict=True):
        data = tmp_path / row["id"]
        done = run_trilogue("restore", str(place), str(data), "--backup", row["id"])
        assert done.returncode == 0, done.stderr
        with start_server(data, listen=LISTEN, nodes=nodes) as copy:
            for topic, count in counts.items():
                numbers = read_numbers(copy, topic)
                assert numbers == list(range(len(numbers))), topic
                assert len(numbers) >= count, topic


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    with s3_server() as server:
        proxy = Proxy(server.port)
        yield proxy
        proxy.close()


def test_a_kill_of_the_command_leaves_no_half_backup(bucket, tmp_path):
    reach = options(bucket.port, "killed")
    where = (reach.url, "--endpoint", reach.endpoint, "--region", reach.region)
    with start_server(tmp_path / "d", listen=LISTEN) as server:
        make_topics(server, "k")
        load = KafkaLoad(server, "k")
        load.thread.start()
        wait_until(lambda: load.acked, "a message")
        reached = threading.Event()

        def hang_at_the_record(method: str, path: str) -> str | None:
            if method == "PUT" and path.split("?", maxsplit=1)[0].endswith("backup.json"):
                reached.set()
                return "hang"
            return None

        bucket.fault = hang_at_the_record
        words = command_line("backup", *where, "--data", str(server.data))
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            assert reached.wait(WAIT_S)
            process.send_signal(signal.SIGKILL)
            process.wait(WAIT_S)
        bucket.over.set()
        bucket.fault = lambda _method, _path: None
        assert json.loads(run_trilogue("restore", *where, "--list", "--json").stdout) == []
        none = run_trilogue("restore", *where[:1], str(tmp_path / "e"), *where[1:])
        assert (none.returncode, none.stderr) == (1, "trilogue: there is no whole backup there\n")

        count = len(load.acked)
        done = run_trilogue("backup", *where, "--data", str(server.data))
        assert done.returncode == 0, done.stderr
        load.stop()
    done = run_trilogue("restore", *where[:1], str(tmp_path / "e"), *where[1:])
    assert done.returncode == 0, done.stderr
    with start_server(tmp_path / "e", listen=LISTEN) as copy:
        numbers = read_numbers(copy, "k")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= count


@pytest.mark.long
def test_a_restored_secured_directory_has_its_users_and_keys(tmp_path):
    with start_server(tmp_path / "d", arguments=["--secure"], listen=SECURED) as server:
        done = run_trilogue("backup", str(tmp_path / "b"), "--data", str(server.data))
        assert done.returncode == 0, done.stderr
    done = run_trilogue("restore", str(tmp_path / "b"), str(tmp_path / "e"))
    assert done.returncode == 0, done.stderr

    users = [
        json.loads(run_trilogue("users", "list", "--json", "--data", str(tmp_path / each)).stdout)
        for each in ("d", "e")
    ]
    assert users[0] == users[1] != []
    for name in ("secure.toml", "access.token-key"):
        assert (tmp_path / "e" / name).read_bytes() == (tmp_path / "d" / name).read_bytes()
        assert (tmp_path / "e" / name).stat().st_mode & 0o777 == 0o600
