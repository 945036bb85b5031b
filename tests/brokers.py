"""The servers under the tests of foreign clients: ours, and the real one on request.

Every test of a foreign client runs on Trilogue; with TRILOGUE_TEST_REAL=1 it also runs on a real
Kafka (a version number instead of 1 picks another than 3.9.1), a real Pulsar or a real TubeMQ,
which proves the test itself.
TRILOGUE_TEST_NODES=3 serves each test by three nodes of one directory, TRILOGUE_TEST_CLUSTER=3 by
three of a cluster on PostgreSQL with `ack=shared`.
TRILOGUE_TEST_BOOTSTRAP=host:port points the tests at a server that runs already, and
TRILOGUE_TEST_PULSAR=host:port,host:port (binary, HTTP) those of Pulsar's clients.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, Self, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic
from tools.servers.kafka import RealKafka
from tools.servers.pulsar import VERSION as PULSAR_VERSION
from tools.servers.pulsar import RealPulsar
from tools.servers.tubemq import RealTubeMQ

from tests.server import Server, count_nodes, start_server
from tests.tools import require_jars, require_pulsar_jars, require_real_tubemq
from trilogue.node.supervisor.node_settings import PORTS_APART

DEFAULT_VERSION = "3.9.1"


class Broker(Protocol):
    """An address (Kafka's by itself) with a life: started again it keeps its data and its port."""

    name: str

    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def output(self) -> str: ...
    def start(self) -> object: ...
    def stop(self) -> int: ...
    def kill9(self) -> None: ...


class ReservedPort:
    """A port of 127.0.0.1 that no other process is given until `close`.

    The socket is bound and does not listen. While it is open, Linux neither hands the port to a
    bind to port 0 nor to an outgoing connection; a listener that names the port and sets
    SO_REUSEADDR, as the broker's do, may still bind to it. Where several nodes serve a test, those
    of the others are reserved, too.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        while not self._reserve(count_nodes()):
            self.close()
        self.address = f"127.0.0.1:{self._sockets[0].getsockname()[1]}"

    def _reserve(self, nodes: int) -> bool:
        """Reserve a port, and those of the other nodes; whether they were free."""
        port = 0
        for number in range(nodes):
            self._sockets.append(socket.socket())
            self._sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self._sockets[-1].bind(("127.0.0.1", port and port + PORTS_APART * number))
            except (OSError, OverflowError):
                return False
            port = self._sockets[0].getsockname()[1]
        return True

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()


class OurServer:
    """Our server, whose listeners keep their ports through restarts."""

    name = "trilogue"
    door_names: tuple[str, ...]

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, object] | None = None,
        wrapper: tuple[str, ...] = (),
    ) -> None:
        self.data = data
        self.settings = dict(settings or {})
        self.wrapper = wrapper
        self._ports = {name: ReservedPort() for name in self.door_names}
        self.doors = {name: port.address for name, port in self._ports.items()}
        weakref.finalize(self, _close_all, list(self._ports.values()))
        self.server: Server | None = None

    def start(self) -> Self:
        self.server = start_server(
            self.data, listen=self.doors, settings=self.settings, wrapper=self.wrapper
        )
        return self

    @property
    def running(self) -> Server:
        assert self.server is not None, "not started"
        return self.server

    @property
    def address(self) -> str:
        return self.doors[self.door_names[0]]

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def output(self) -> str:
        return self.running.output

    def stop(self) -> int:
        return self.running.stop()

    def kill9(self) -> None:
        if self.server is not None:
            self.server.kill9()


def _close_all(ports: list[ReservedPort]) -> None:
    for port in ports:
        port.close()


class Trilogue(OurServer):
    """Our server as a Broker."""

    door_names = ("kafka", "http")


Served = TypeVar("Served", bound=Broker)


@contextmanager
def running(
    make: Callable[[str, Path, Mapping[str, object] | None], Served],
    name: str,
    root: Path,
    settings: Mapping[str, object],
    real_ones: list[Served],
) -> Iterator[Served]:
    """A server that runs. A real one takes long to start: it is made once, and kept in the list."""
    if name in ("trilogue", "elsewhere"):
        made = make(name, root, settings)
        made.start()
        yield made
        made.kill9()
        return
    if not real_ones:
        real_ones.append(make(name, root, None))
        real_ones[0].start()
    yield real_ones[0]


class PulsarBroker(Broker, Protocol):
    """A Pulsar address with a life; `http` is the URL of its administration."""

    @property
    def http(self) -> str: ...


class TrilogueForPulsar(OurServer):
    """Our server as a PulsarBroker."""

    door_names = ("pulsar", "http", "kafka")

    @property
    def http(self) -> str:
        return f"http://{self.doors['http']}"


class Elsewhere:
    """A server that was started elsewhere: the tests connect to it, and cannot stop it."""

    name = "elsewhere"
    pid = 0
    output = ""

    def __init__(self, address: str, http: str = "") -> None:
        self.address = address
        self.http = f"http://{http}"

    def start(self) -> Elsewhere:
        return self

    def stop(self) -> int:
        return 0

    def kill9(self) -> None:
        pass


def names() -> list[str]:
    """Which servers this run tests."""
    if os.environ.get("TRILOGUE_TEST_BOOTSTRAP"):
        return ["elsewhere"]
    return ["trilogue", "kafka"] if os.environ.get("TRILOGUE_TEST_REAL") else ["trilogue"]


def make(name: str, root: Path, settings: Mapping[str, object] | None = None) -> Broker:
    """A server of that name, not started; `settings` are ours and mean nothing to the others."""
    match name:
        case "trilogue":
            return Trilogue(root / "data", settings)
        case "kafka":
            requested = os.environ["TRILOGUE_TEST_REAL"]
            version = requested if "." in requested else DEFAULT_VERSION
            require_jars(version)
            return RealKafka(root, version=version, heap="512m")
        case "elsewhere":
            return Elsewhere(os.environ["TRILOGUE_TEST_BOOTSTRAP"])
    raise ValueError(name)


def pulsar_names() -> list[str]:
    """Which servers the tests of Pulsar's clients meet."""
    if os.environ.get("TRILOGUE_TEST_PULSAR"):
        return ["elsewhere"]
    return ["trilogue", "pulsar"] if os.environ.get("TRILOGUE_TEST_REAL") else ["trilogue"]


def make_pulsar(
    name: str, root: Path, settings: Mapping[str, object] | None = None
) -> PulsarBroker:
    """A server of that name, not started; `settings` are ours and mean nothing to the other."""
    if name == "trilogue":
        return TrilogueForPulsar(root / "data", settings)
    if name == "elsewhere":
        return Elsewhere(*os.environ["TRILOGUE_TEST_PULSAR"].split(","))
    require_pulsar_jars(PULSAR_VERSION)
    return RealPulsar(root)


class TubeBroker(Broker, Protocol):
    """A TubeMQ master's address with a life; the master sends clients the broker's address."""

    def inside(self) -> AbstractContextManager[None]:
        """Where the address means something; clients are started in there."""
        ...

    def topic(self, partitions: int = 1) -> str:
        """A new topic that is usable; some are ready with 1, 2 and 4 partitions."""
        ...


class TrilogueForTubeMQ(OurServer):
    """Our server as a TubeBroker."""

    door_names = ("tubemq-master", "tubemq-broker", "kafka", "http")

    def __init__(self, data: Path, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(data, settings)
        self.numbers = itertools.count(1)

    def inside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def topic(self, partitions: int = 1) -> str:
        name = f"topic_{time.time_ns() // 1_000_000:x}_{next(self.numbers)}"
        make_topic(self.doors["kafka"], name, partitions)
        return name


def make_topic(address: str, name: str, partitions: int) -> None:
    """Create a topic through the Kafka listener, as an administrator may."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    made.result(90)


class TubeMQ(RealTubeMQ):
    """The real one, with topics made beforehand: a new one takes it a minute."""

    ready: Mapping[int, int] = {1: 30, 2: 8, 4: 20}

    def start(self, topics: Mapping[str, int] | None = None) -> TubeMQ:
        made = {f"of_{n}_{i}": n for n, count in self.ready.items() for i in range(count)}
        fresh = not (self.root / "data").exists()
        if fresh:
            self.left = {n: [name for name in made if made[name] == n] for n in self.ready}
        super().start({**made, **(topics or {})} if fresh else topics)
        self.wait_for_topics(made)
        return self

    def topic(self, partitions: int = 1) -> str:
        return self.left[partitions].pop()


def tubemq_names() -> list[str]:
    """Which servers the tests of TubeMQ's clients meet."""
    return ["trilogue", "tubemq"] if os.environ.get("TRILOGUE_TEST_REAL") else ["trilogue"]


def make_tubemq(name: str, root: Path, settings: Mapping[str, object] | None = None) -> TubeBroker:
    """A server of that name, not started; `settings` are ours and mean nothing to the other."""
    if name == "trilogue":
        return TrilogueForTubeMQ(root / "data", settings)
    require_real_tubemq()
    return TubeMQ(root, direct="2g")
