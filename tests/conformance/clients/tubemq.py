"""TubeMQ's own Java client behind the small language of lines (java-tubemq/TubeDriver.java).

client = connect(driver, broker.address)
producer = client.producer("orders")
(result,) = producer.send(Out("orders", b"value", attributes={"a": "1"}, type="t"))
consumer = client.pull("group", {"orders": []})
messages = consumer.receive(1)                  # gets and confirms until there are so many
taken = consumer.get(); consumer.confirm(taken, consumed=False)
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from _pytest.mark.structures import ParameterSet
from tools.servers.java import jars
from tools.servers.tubemq import VERSION

from tests import brokers
from tests.conformance.clients.base import DEADLINE, Deadline
from tests.conformance.clients.building import BUILD, HERE, QUICK_START, classes
from tests.conformance.clients.pulsar import CALL_S, ClientError, Process, Thing
from tests.tools import require_program, require_tubemq_jars

__all__ = ["Client", "ClientError", "Got", "Out", "Read", "Sent", "connect", "driver_process"]

SOURCE = HERE / "java-tubemq" / "TubeDriver.java"
CLASSES = BUILD / "tubemq-clients" / f"java-{VERSION}"
HEARTBEAT_MS = 400  # of the client, which has 13 s of its own
SUCCESS, END = 200, 404
Topics = Mapping[str, Sequence[str]]


def servers() -> list[ParameterSet]:
    """Which servers the tests meet, as parameters: the real one is for long runs."""
    return [
        pytest.param(name, marks=[pytest.mark.long] if name == "tubemq" else [])
        for name in brokers.tubemq_names()
    ]


def driver_process() -> Process:
    """The driver, compiled if need be, not started: the caller starts it in a network namespace."""
    require_tubemq_jars()
    require_program("javac")
    path = f"{jars(f'tubemq-{VERSION}')}/*"
    classes(CLASSES, [SOURCE], path)
    options = [*QUICK_START, "-Djava.net.preferIPv4Stack=true"]
    options += [f"-Dlog4j2.configurationFile={CLASSES}/log4j2.properties"]
    return Process(["java", *options, "-cp", f"{CLASSES}:{path}", "TubeDriver"])


@dataclass(frozen=True, slots=True)
class Out:
    """A message to be sent; `time` is yyyyMMddHHmm."""

    topic: str
    body: bytes = b""
    attributes: Mapping[str, str] = field(default_factory=dict)
    type: str | None = None
    time: str | None = None

    def words(self) -> dict[str, object]:
        words: dict[str, object] = {"topic": self.topic, "attributes": dict(self.attributes)}
        words["body"] = base64.b64encode(self.body).decode()
        if self.type is not None:
            words |= {"type": self.type, "time": self.time}
        return words


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of it: `code` is TubeMQ's, -1 where the client raised (`text` has the error)."""

    ok: bool
    code: int
    text: str
    id: int = -1
    offset: int = -1
    time: int = -1
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was received; `attributes` as the client keeps them, reserved ones too."""

    topic: str
    body: bytes
    attributes: str | None
    type: str | None
    time: str | None
    id: int
    partition: str = ""
    refused: bool = False

    @property
    def own_attributes(self) -> dict[str, str]:
        """Those that its producer set."""
        pairs = [pair.partition("=") for pair in (self.attributes or "").split(",") if pair]
        return {name: value for name, _, value in pairs if not name.startswith("$")}


@dataclass(frozen=True, slots=True)
class Got:
    """The answer of one get, confirm, attach: `partition` is brokerId:topic:number."""

    ok: bool
    code: int
    text: str | None
    context: str | None = None
    partition: str | None = None
    offset: int | None = None
    max: int | None = None
    messages: tuple[Read, ...] = ()


def as_read(words: Mapping[str, object], partition: str = "") -> Read:
    given = {**words, "partition": words.get("partition", partition)}
    body = given.pop("body")
    return Read(body=b"" if body is None else base64.b64decode(str(body)), **given)  # type: ignore[arg-type]


def as_got(answer: object) -> Got:
    words: dict[str, object] = dict(answer)  # type: ignore[call-overload]
    messages = words.pop("messages", [])
    words.pop("handle", None)
    partition = str(words.get("partition") or "")
    reads = tuple(as_read(one, partition) for one in messages)  # type: ignore[attr-defined]
    return Got(messages=reads, **words)  # type: ignore[arg-type]


class Producer(Thing):
    """Sends to what it has published."""

    def send(self, *messages: Out, at_once: bool = False) -> list[Sent]:
        """What became of each, whether it was taken or not; with `at_once` by callbacks."""
        return self.results(self.start_sending(*messages, at_once=at_once))

    def start_sending(self, *messages: Out, at_once: bool = False) -> Future[object]:
        words = [message.words() for message in messages]
        return self.start("send", messages=words, **{"async": at_once})

    @staticmethod
    def results(sending: Future[object]) -> list[Sent]:
        return [Sent(**reported) for reported in sending.result(CALL_S)]  # type: ignore[attr-defined]

    def sent(self, *messages: Out, at_once: bool = False) -> list[Sent]:
        """All of them were taken."""
        results = self.send(*messages, at_once=at_once)
        assert [r for r in results if not r.ok] == []
        return results

    def publish(self, *topics: str) -> set[str]:
        return set(self.call("publish", topics=list(topics)))  # type: ignore[call-overload]

    def accepts(self, topic: str) -> bool:
        return bool(self.call("accepts", topic=topic))

    def wait_for(self, topic: str) -> None:
        """Wait until a heartbeat has brought the topic's brokers: earlier messages are refused."""
        deadline = Deadline(f"{topic} may be published")
        while not self.accepts(topic):
            deadline.check()


class Consumer(Thing):
    """What pull, push and self-balancing consumers have in common."""

    def get(self) -> Got:
        return as_got(self.call("get"))

    def confirm(self, got: Got | str, *, consumed: bool = True) -> Got:
        context = got if isinstance(got, str) else got.context
        return as_got(self.call("confirm", context=context, consumed=consumed))

    def ready(self, seconds: float = DEADLINE) -> bool:
        return bool(self.call("ready", ms=int(seconds * 1000)))

    def receive(
        self, count: int, seconds: float = DEADLINE, *, consumed: bool = True
    ) -> list[Read]:
        """Gets, each confirmed, until there are so many; an assertion when they do not come."""
        reads: list[Read] = []
        deadline = Deadline(f"{count} messages", seconds)
        while len(reads) < count:
            deadline.check([read.body for read in reads])
            got = self.get()
            reads += got.messages
            if got.context:
                self.confirm(got, consumed=consumed)
        assert len(reads) == count, (
            f"{len(reads)} of {count}: {[read.body for read in reads]!r:.500}"
        )
        return reads

    def nothing_comes(self, gets: int = 3) -> bool:
        """Whether every partition was polled and had no message."""
        for _ in range(gets):
            got = self.get()
            assert not got.messages, got
            if got.context:
                self.confirm(got)
        return True

    @property
    def positions(self) -> dict[str, tuple[int, int]]:
        """Where it reads and where the end was, by partition; those that it has."""
        found: Mapping[str, Sequence[int]] = self.call("positions")  # type: ignore[assignment]
        return {key: (at, end) for key, (at, end) in found.items()}

    def wait_for_partitions(self, count: int, seconds: float = DEADLINE) -> set[str]:
        deadline = Deadline(f"{count} partitions", seconds)
        while len(found := set(self.positions)) != count:
            deadline.check(sorted(found))
        return found

    def freeze(self, *partitions: str) -> None:
        self.call("freeze", partitions=list(partitions))

    def unfreeze(self, *partitions: str) -> None:
        self.call("unfreeze", partitions=list(partitions))


class Pushed(Consumer):
    """A consumer whose listener puts everything into a queue."""

    def taken_up_to(self, count: int, seconds: float) -> list[Read]:
        got = self.call("taken", count=count, ms=int(seconds * 1000))
        return [as_read(words) for words in got]  # type: ignore[attr-defined]

    def taken(self, count: int, seconds: float = DEADLINE) -> list[Read]:
        reads = self.taken_up_to(count, seconds)
        assert len(reads) == count, f"{len(reads)} of {count}: {[r.body for r in reads]!r:.500}"
        return reads

    def pause(self) -> None:
        self.call("pause")

    def resume(self) -> None:
        self.call("resume")


class Balancing(Consumer):
    """A consumer that takes its partitions itself."""

    began: Got

    @property
    def meta(self) -> dict[str, bool]:
        """Partitions, and whether they may be subscribed."""
        return dict(self.call("meta"))  # type: ignore[call-overload]

    def wait_for_meta(self) -> dict[str, bool]:
        """Wait for the partitions; the client authenticates when the server demands it."""
        deadline = Deadline("the partitions")
        while True:
            with contextlib.suppress(ClientError):
                if found := self.meta:
                    return found
            deadline.check()

    @property
    def attached(self) -> list[str]:
        return list(self.call("attached"))  # type: ignore[call-overload]

    def attach(self, partition: str, offset: int = -1) -> Got:
        return as_got(self.call("attach", partition=partition, offset=offset))

    def detach(self, partition: str) -> Got:
        return as_got(self.call("detach", partition=partition))


class Client(Thing):
    """A session factory of the client's: connections of its own."""

    _filler: Producer | None = None

    def filler(self, topic: str) -> Producer:
        """A producer that stays: one that is made after another was closed hangs in the client."""
        if self._filler is None:
            self._filler = self.producer(topic)
        elif not self._filler.accepts(topic):
            self._filler.publish(topic)
            self._filler.wait_for(topic)
        return self._filler

    def producer(self, *topics: str) -> Producer:
        return Producer(self.driver, self._handle("producer", topics=list(topics)))

    def pull(self, group: str, topics: Topics, **words: object) -> Consumer:
        return Consumer(
            self.driver, self._handle("pull", group=group, topics=listed(topics), **words)
        )

    def push(self, group: str, topics: Topics, **words: object) -> Pushed:
        return Pushed(
            self.driver, self._handle("push", group=group, topics=listed(topics), **words)
        )

    def balance(
        self, group: str, topics: Topics, *, sources: int = 1, node: int = 0, **words: object
    ) -> Balancing:
        response: Mapping[str, object] = self.call(
            "balance", group=group, topics=listed(topics), sources=sources, node=node, **words
        )  # type: ignore[assignment]
        made = Balancing(self.driver, int(response["handle"]))  # type: ignore[call-overload]
        made.began = as_got(response)
        return made

    def _handle(self, verb: str, **words: object) -> int:
        return int(self.call(verb, **words))  # type: ignore[call-overload]


def listed(topics: Topics) -> dict[str, list[str]]:
    return {name: list(types) for name, types in topics.items()}


def connect(
    driver: Process, master: str, *, heartbeat_ms: int | None = HEARTBEAT_MS, **words: object
) -> Client:
    """`heartbeat_ms=None` leaves the client its own 13 s."""
    if heartbeat_ms is not None:
        words["heartbeat_ms"] = heartbeat_ms
    made = driver.start("connect", master=master, **words).result(CALL_S)
    return Client(driver, int(made))  # type: ignore[call-overload]
