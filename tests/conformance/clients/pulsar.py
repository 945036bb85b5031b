"""The foreign Pulsar clients behind one small language: verbs with words, the same for each.

Java and Go run as programs of their own, driven by lines of JSON (java-pulsar/, go-pulsar/); PyPI's
client runs in this process (pulsar_python.py). A test writes

    connection = client.connect(url)
    producer = connection.producer(topic, batching=True, compression="lz4")
    producer.send(Out(b"value", key="key"))
    consumer = connection.consumer(topic, "subscription", type="shared", earliest=True)
    (read,) = consumer.receive(1)
    consumer.ack(read)

Every verb may be started and waited for later (`driver.start`), as a restart test wants it.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.conformance.clients.base import DEADLINE

QUIET_S = 0.5  # how long nothing must come before it is believed that nothing comes
CALL_S = 100.0


class ClientError(Exception):
    """The client's own error, as it names it."""


@dataclass(frozen=True, slots=True)
class Out:
    """A message to be sent; `record` is for producers with a schema."""

    value: bytes | None = b""
    key: str | None = None
    ordering_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: int | None = None
    sequence: int | None = None
    record: Mapping[str, object] | None = None

    def words(self) -> dict[str, object]:
        words: dict[str, object] = {"properties": dict(self.properties)}
        if self.record is not None:
            words["record"] = dict(self.record)
        elif self.value is not None:
            words["value"] = base64.b64encode(self.value).decode()
        for name in ("key", "ordering_key", "event_time", "sequence"):
            if getattr(self, name) is not None:
                words[name] = getattr(self, name)
        return words


@dataclass(frozen=True, slots=True)
class In:
    """A message that was received; `id` is the client's own spelling of its id."""

    id: str
    value: bytes | None
    key: str | None
    ordering_key: str | None
    properties: Mapping[str, str]
    event_time: int
    publish_time: int
    redelivery: int
    topic: str
    producer: str
    ledger: int
    entry: int
    batch: int
    partition: int
    record: Mapping[str, object] | None

    @property
    def content(self) -> tuple[object, ...]:
        """The fields that its producer set."""
        return self.value, self.key, dict(self.properties), self.event_time

    @property
    def offset(self) -> int:
        """Entry and index within it: one number, since an entry's id is its first offset."""
        return self.entry + max(self.batch, 0)


def as_in(words: Mapping[str, object]) -> In:
    value = words.get("value")
    return In(
        id=str(words["id"]),
        value=None if value is None else base64.b64decode(str(value)),
        key=words.get("key") or None,  # type: ignore[arg-type]
        ordering_key=words.get("ordering_key") or None,  # type: ignore[arg-type]
        properties=words.get("properties") or {},  # type: ignore[arg-type]
        event_time=int(words.get("event_time") or 0),  # type: ignore[call-overload]
        publish_time=int(words["publish_time"]),  # type: ignore[call-overload]
        redelivery=int(words.get("redelivery") or 0),  # type: ignore[call-overload]
        topic=str(words.get("topic", "")),
        producer=str(words.get("producer", "")),
        ledger=int(words.get("ledger", -1)),  # type: ignore[call-overload]
        entry=int(words.get("entry", -1)),  # type: ignore[call-overload]
        batch=int(words.get("batch", -1)),  # type: ignore[call-overload]
        partition=int(words.get("partition", -1)),  # type: ignore[call-overload]
        record=words.get("record"),  # type: ignore[arg-type]
    )


class Driver(Protocol):
    """Runs a verb with its arguments; the future has the response."""

    def start(self, verb: str, **words: object) -> Future[object]: ...


class Process:
    """A client in a program of its own, started with the first verb."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.command = [str(word) for word in command]
        self.waiting: dict[int, Future[object]] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.reading: threading.Thread | None = None

    def start(self, verb: str, **words: object) -> Future[object]:
        with self.lock:
            if self.process is None:
                self._launch()
            number = next(self.numbers)
            answer: Future[object] = Future()
            self.waiting[number] = answer
            assert self.process is not None
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps({"id": number, "do": verb, **words}).encode())
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        return answer

    def _launch(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                waiting = self.waiting.pop(answer["id"])
            if answer.get("error") is not None:
                waiting.set_exception(ClientError(answer["error"]))
            else:
                waiting.set_result(answer.get("got"))
        for left in self.waiting.values():
            left.set_exception(ClientError("the client's program ended"))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.reading is not None:
                self.reading.join()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process = None


class Thing:
    """Something with a handle."""

    def __init__(self, driver: Driver, handle: int) -> None:
        self.driver = driver
        self.handle = handle

    def start(self, verb: str, **words: object) -> Future[object]:
        return self.driver.start(verb, of=self.handle, **words)

    def call(self, verb: str, **words: object) -> object:
        return self.start(verb, **words).result(CALL_S)

    def close(self) -> None:
        self.call("close")


class Transaction(Thing):
    """A transaction of one of the client's coordinators, with the two numbers of its TxnID."""

    most: int
    least: int

    def commit(self) -> None:
        self.call("commit")

    def abort(self) -> None:
        self.call("abort")


class Sender(Thing):
    """A producer."""

    name: str
    sequence: int

    def start_sending(
        self, *messages: Out, transaction: Transaction | None = None
    ) -> Future[object]:
        words = {} if transaction is None else {"transaction": transaction.handle}
        return self.start("send", messages=[message.words() for message in messages], **words)

    def send(self, *messages: Out, transaction: Transaction | None = None) -> list[str]:
        """Send all, wait for all; their ids. ClientError for the first that failed."""
        return self.ids(self.start_sending(*messages, transaction=transaction))

    @staticmethod
    def ids(sending: Future[object]) -> list[str]:
        ids = []
        for result in sending.result(CALL_S):  # type: ignore[attr-defined]
            if "error" in result:
                raise ClientError(result["error"])
            ids.append(result["id"])
        return ids

    @property
    def last_sequence(self) -> int:
        return int(self.call("sequence"))  # type: ignore[call-overload]


class Receiver(Thing):
    """A consumer or a reader."""

    def receive_up_to(self, count: int, seconds: float = QUIET_S) -> list[In]:
        got = self.call("receive", count=count, timeout_ms=int(seconds * 1000))
        return [as_in(words) for words in got]  # type: ignore[attr-defined]

    def receive(self, count: int, seconds: float = DEADLINE) -> list[In]:
        """Just so many; an assertion when they do not come."""
        got = self.receive_up_to(count, seconds)
        assert len(got) == count, f"{len(got)} of {count}: {[read.value for read in got]!r:.500}"
        return got

    def nothing_comes(self, seconds: float = QUIET_S) -> bool:
        got = self.receive_up_to(1, seconds)
        assert got == []
        return True

    def ack(
        self, *reads: In, cumulative: bool = False, transaction: Transaction | None = None
    ) -> None:
        words = {} if transaction is None else {"transaction": transaction.handle}
        self.call("ack", ids=[read.id for read in reads], cumulative=cumulative, **words)

    def nack(self, *reads: In) -> None:
        self.call("nack", ids=[read.id for read in reads])

    def redeliver(self) -> None:
        self.call("redeliver")

    def reconsume(self, *reads: In, delay_ms: int = 0) -> None:
        self.call("reconsume", ids=[read.id for read in reads], delay_ms=delay_ms)

    def seek(self, to: str) -> None:
        self.call("seek", to=to)

    def seek_time(self, time_ms: int) -> None:
        self.call("seek", time=time_ms)

    def unsubscribe(self) -> None:
        self.call("unsubscribe")

    @property
    def has_next(self) -> bool:
        return bool(self.call("has_next"))

    @property
    def last(self) -> str:
        return str(self.call("last"))

    @property
    def ended(self) -> bool:
        return bool(self.call("ended"))

    @property
    def events(self) -> list[str]:
        return list(self.call("events"))  # type: ignore[call-overload]


class View(Thing):
    """A table of the last value of each key."""

    @property
    def entries(self) -> dict[str, bytes]:
        got = self.call("entries")
        return {key: base64.b64decode(value) for key, value in got.items()}  # type: ignore[attr-defined]


class Connection(Thing):
    """A client object of the library."""

    def producer(self, topic: str, **words: object) -> Sender:
        return self.made_producer(self.start("producer", topic=topic, **words))

    def made_producer(self, making: Future[object]) -> Sender:
        made: Mapping[str, object] = making.result(CALL_S)  # type: ignore[assignment]
        sender = Sender(self.driver, int(made["handle"]))  # type: ignore[call-overload]
        sender.name, sender.sequence = str(made["name"]), int(made["sequence"])  # type: ignore[call-overload]
        return sender

    def begin(self, timeout_ms: int = 60_000) -> Transaction:
        made: Mapping[str, int] = self.call("begin", timeout_ms=timeout_ms)  # type: ignore[assignment]
        transaction = Transaction(self.driver, made["handle"])
        transaction.most, transaction.least = made["most"], made["least"]
        return transaction

    def consumer(self, topic: str | Sequence[str], subscription: str, **words: object) -> Receiver:
        topics = [topic] if isinstance(topic, str) else list(topic)
        made = self.call("consumer", topics=topics, subscription=subscription, **words)
        return Receiver(self.driver, int(made))  # type: ignore[call-overload]

    def pattern(self, pattern: str, subscription: str, **words: object) -> Receiver:
        made = self.call("consumer", pattern=pattern, subscription=subscription, **words)
        return Receiver(self.driver, int(made))  # type: ignore[call-overload]

    def reader(self, topic: str, start: str = "earliest", **words: object) -> Receiver:
        made = self.call("reader", topic=topic, start=start, **words)
        return Receiver(self.driver, int(made))  # type: ignore[call-overload]

    def view(self, topic: str) -> View:
        return View(self.driver, int(self.call("view", topic=topic)))  # type: ignore[call-overload]

    def partitions(self, topic: str) -> list[str]:
        return list(self.call("partitions", topic=topic))  # type: ignore[call-overload]


class PulsarLibrary(Protocol):
    """A foreign library; `cannot` names what it has no words for."""

    name: str
    cannot: frozenset[str]

    def require(self) -> None:
        """Skip (or fail, where the environment insists) what cannot run here."""

    @property
    def driver(self) -> Driver: ...
    def stop(self) -> None: ...


def connect(library: PulsarLibrary, url: str, **words: object) -> Connection:
    library.require()
    handle = library.driver.start("connect", url=url, **words).result(CALL_S)
    return Connection(library.driver, int(handle))  # type: ignore[call-overload]
