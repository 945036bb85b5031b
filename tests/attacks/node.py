"""A node with all listeners in its own process, its memory, and well-behaved clients of it."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.brokers import OurServer, make_topic
from tests.conformance.raw import batch_of
from tests.crash.hostile import ANSWER_WITHIN_S, Healthy, resident
from tests.crash.kafka.test_hostile import Line
from tests.crash.pulsar.pulsar_load import client
from tests.crash.tubemq.tubemq_reader import TubeReader
from tests.security.certificates import Authority
from trilogue.node.settings.table import LISTENERS

MIB = 1 << 20
GROWTH_MAX = 400 * MIB
CPU_MAX_S = 1.5  # of the server, during an answer to a well-behaved client
STEADY_S = 3.0
WAIT_S = 120.0  # for an answer, on a machine that is busy with other work
TLS_LISTENERS = ("kafka-ssl", "pulsar-ssl", "tubemq-broker-ssl", "https")

KCMP = {"x86_64": 312, "aarch64": 272}  # the numbers of kcmp(2)
KCMP_VM = 1
LIBC = ctypes.CDLL(None)

Report = Callable[[object], None]


class AttackedNode(OurServer):
    """A server with all listeners, and with those over TLS."""

    door_names = (*LISTENERS, *TLS_LISTENERS)

    def __init__(self, folder: Path, **settings: object) -> None:
        self.authority = Authority(folder)
        files = self.authority.issue("server", common_name="localhost")
        tls = {"tls.certificate": files.certificate, "tls.key": files.key}
        super().__init__(folder / "data", settings={**tls, **settings})

    def start(self) -> Self:
        is_new = self.server is None
        super().start()
        if is_new:
            make_topic(self.address, "healthy", 1)
        return self


def memory_bytes(pid: int) -> int:
    """Memory of a server: of the supervisor, the nodes and their helpers."""
    return sum(resident_or_0(each) for each in process_tree(pid))


def process_tree(pid: int) -> Iterator[int]:
    """The process and all that it started, but for one that has the memory of the process still."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it ended
            for child in task.read_text().split():
                if not shares_memory(pid, int(child)):
                    yield from process_tree(int(child))


def shares_memory(one: int, other: int) -> bool:
    """Whether both processes have one memory: a helper does between its vfork and its exec."""
    number = KCMP.get(platform.machine())
    return number is not None and LIBC.syscall(number, one, other, KCMP_VM, 0, 0) == 0


def resident_or_0(pid: int) -> int:
    try:
        return resident(pid)
    except (OSError, ValueError):  # it ended
        return 0


class PeakMemory(threading.Thread):
    """The most memory that the processes of a server had, beyond what they had at first."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.before, self.highest = pid, memory_bytes(pid), 0
        self.grew_at = time.monotonic()
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            now = memory_bytes(self.pid)
            if now > self.highest:
                self.highest, self.grew_at = now, time.monotonic()

    def wait_until_steady(self, most_s: float) -> None:
        """Wait until it has not grown for STEADY_S, `most_s` at most: then it has what it takes."""
        until = time.monotonic() + most_s
        while min(until, self.grew_at + STEADY_S) > time.monotonic():
            time.sleep(0.1)  # by design: the attack goes on

    @property
    def grown(self) -> int:
        return max(0, self.highest - self.before)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join()


class HealthyClients:
    """One client of each protocol, which measures its slowest answer."""

    def __init__(self, node: AttackedNode, more: Mapping[str, Healthy]) -> None:
        line, batch = Line(node.address), batch_of(b"value")
        line.peer.settimeout(WAIT_S)
        opened = client(node.doors["pulsar"])
        producer = opened.create_producer("healthy", send_timeout_millis=30_000)
        writer = TubeReader(node.doors["tubemq-broker"], "healthy", topic="healthy")
        url = f"{node.doors['http']}/healthz"
        requests: dict[str, tuple[Callable[[], object], Callable[[], None]]] = {
            "Kafka": (lambda: line.produce("healthy", batch), line.close),
            "Pulsar": (lambda: producer.send(b"value"), opened.close),
            "TubeMQ": (lambda: writer.send(b"value"), writer.line.close),
            "HTTP": (lambda: read_url(url), lambda: None),
        }
        self.clients = {
            name: Healthy(node.pid, request, close) for name, (request, close) in requests.items()
        } | dict(more)
        self._stack = contextlib.ExitStack()

    def wait_for(self, more: int) -> None:
        """Until each was answered so many times more."""
        for each in self.clients.values():
            each.wait_for(more)

    @property
    def slowest(self) -> str:
        """The seconds of the slowest answers, and the server's CPU time during the busiest one."""
        return ", ".join(
            f"{name} {each.slowest:.2f} s ({each.busiest:.2f} s CPU)"
            for name, each in self.clients.items()
        )

    def check(self, cpu_s: float) -> None:
        """Check that none had to wait for more work of the server than `cpu_s`."""
        for name, each in self.clients.items():
            assert each.busiest < cpu_s, name
            assert each.slowest < ANSWER_WITHIN_S, name

    def __enter__(self) -> Self:
        for each in self.clients.values():
            self._stack.enter_context(each)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def read_url(url: str) -> bytes:
    """Get it from an address of its own: connections of an address are limited."""
    host, _, path = url.partition("/")
    name, port = host.rsplit(":", 1)
    connection = http.client.HTTPConnection(
        name, int(port), timeout=WAIT_S, source_address=("127.0.0.2", 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", f"/{path}")
        return connection.getresponse().read()


@contextlib.contextmanager
def attack(
    node: AttackedNode,
    report: Report,
    *,
    growth: int = GROWTH_MAX,
    most_s: float = 8.0,
    cpu_s: float = CPU_MAX_S,
    more: Mapping[str, Healthy] | None = None,
) -> Iterator[contextlib.ExitStack]:
    """What is opened in the block stays open until memory is steady, `most_s` at most.

    Memory is judged up to then, slow answers to the well-behaved clients until all is closed.
    """
    with HealthyClients(node, more or {}) as healthy:
        healthy.wait_for(3)
        with contextlib.ExitStack() as stack:
            with PeakMemory(node.pid) as memory:
                yield stack
                healthy.wait_for(3)
                memory.wait_until_steady(most_s)
                healthy.wait_for(3)
            stack.close()
            healthy.wait_for(10)  # while the server ends what was opened
    report(f"+{memory.grown / MIB:.0f} MiB, slowest answers: {healthy.slowest}")
    assert node.running.alive
    assert "Traceback" not in node.output, node.output[-5_000:]
    assert memory.grown < growth
    healthy.check(cpu_s)
