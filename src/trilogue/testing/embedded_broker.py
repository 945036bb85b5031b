"""A broker in a thread of the test's process, behind a proxy for each protocol.

Its data lies in a directory that is removed at the end, in memory where the machine has /dev/shm,
or in one that the test names. `restart` and `crash` keep the data and the addresses.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from trilogue.log.files import OsFileSystem
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.testing.clock import Clock, ClockLoop
from trilogue.testing.fault_rules import make_fault
from trilogue.testing.faults import OWN_CLIENT, Action, Fault, FaultTable, Request
from trilogue.testing.kafka_requests import KafkaRequests
from trilogue.testing.proxy import ListenerProxy, RequestReader
from trilogue.testing.pulsar_requests import PulsarRequests
from trilogue.testing.tubemq_requests import TubeRequests

if TYPE_CHECKING:
    from trilogue.client.kafka.consumer.message import Message

log = logging.getLogger(__name__)

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
STOP_S = 10.0  # for a drain, and for each call into the broker's thread
READ_S = 10.0
PROXIED = ("kafka", "pulsar", "tubemq-master", "tubemq-broker")
# A test writes little, and expects the end of a wait at once.
SETTINGS = {
    "journal.file-size": "4MiB",
    "disk.reserve": "0",
    "disk.min-free": "0",
    "groups.initial-delay": "0ms",
    "log.level": "warning",
}

T = TypeVar("T")


class EmbeddedBroker:
    """A running broker. `start_broker` makes one and stops it."""

    def __init__(self, data: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.clock = Clock()
        self._faults = FaultTable()
        self._settings = {**SETTINGS, **(settings or {})}
        self._own_data = data is None
        self.data = data or Path(
            tempfile.mkdtemp(prefix="trilogue-", dir=MEMORY if MEMORY.is_dir() else None)
        )
        self._proxies: dict[str, ListenerProxy] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        self._node: Node | None = None
        self._is_disk_full = False
        self._full_until: asyncio.TimerHandle | None = None
        self._crashing: set[asyncio.Task[None]] = set()
        self._loop = ClockLoop()
        self._turn = asyncio.Lock()  # one start or stop of the node at a time
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="trilogue-broker", daemon=True)

    # -- addresses

    @property
    def kafka(self) -> str:
        """The address for Kafka's clients: `bootstrap.servers`."""
        return self._address("kafka")

    @property
    def pulsar(self) -> str:
        """The service URL for Pulsar's clients."""
        return f"pulsar://{self._address('pulsar')}"

    @property
    def tubemq(self) -> str:
        """The address of the master for TubeMQ's clients."""
        return self._address("tubemq-master")

    @property
    def http(self) -> str:
        """The URL of Pulsar's REST API, TubeMQ's web API, the schema registry and /metrics."""
        node = self._running()
        return f"http://{node.gateways.addresses['http']}"

    def _address(self, listener: str) -> str:
        host, port = self._addresses[listener]
        return f"{host}:{port}"

    # -- messages and requests

    def messages(self, topic: str, *, timeout_s: float = READ_S) -> list[Message]:
        """Return all messages of a topic as of now, in the order of partitions and offsets.

        Those of Pulsar's and TubeMQ's producers are converted as for a Kafka reader. KafkaError
        for an unknown topic, TimedOut after `timeout_s`.
        """
        from trilogue.client.kafka.errors import TimedOut  # a start does not need the client
        from trilogue.client.kafka.model import EARLIEST, LATEST, READ_COMMITTED
        from trilogue.client.kafka.sync import KafkaClient

        self._running()
        found: list[Message] = []
        ends_at = time.monotonic() + timeout_s
        with (
            KafkaClient(self.kafka, client_id=OWN_CLIENT, request_timeout_s=timeout_s) as client,
            client.consumer(isolation=READ_COMMITTED, reset_to=EARLIEST) as consumer,
        ):
            partitions = [(topic, number) for number in range(client.producer().partitions(topic))]
            consumer.assign(partitions)
            ends = consumer.offsets(dict.fromkeys(partitions, LATEST))
            starts = consumer.offsets(dict.fromkeys(partitions, EARLIEST))
            filled = [each for each in ends if ends[each].offset > starts[each].offset]
            while any(consumer.position(each) < ends[each].offset for each in filled):
                found += consumer.poll(0.2)
                if time.monotonic() > ends_at:
                    raise TimedOut(f"{topic} has not been read within {timeout_s} s")
        return sorted(found, key=lambda each: (each.partition, each.offset))

    @property
    def requests(self) -> list[Request]:
        """The requests that clients have sent, the latest 100,000."""
        return self._faults.requests()

    def forget_requests(self) -> None:
        """Remove the recorded requests."""
        self._faults.forget_requests()

    def wait_for_request(
        self, name: str, *, topic: str | None = None, count: int = 1, timeout_s: float = READ_S
    ) -> Request:
        """Return the `count`th request of this name (`Fetch`, `SUBSCRIBE`); TimeoutError."""
        return self.wait_for(
            lambda each: each.name == name and (topic is None or topic in each.topics),
            count=count,
            timeout_s=timeout_s,
        )

    def wait_for(
        self, condition: Callable[[Request], bool], *, count: int = 1, timeout_s: float = READ_S
    ) -> Request:
        """Return the `count`th recorded request that fulfils the condition; TimeoutError."""
        return self._faults.wait_for(condition, timeout_s, count=count)

    # -- faults

    def add_fault(self, action: Action | str, **rule: Any) -> Fault:
        """Add a rule: `add_fault("error", request="Produce", error="NOT_LEADER_OR_FOLLOWER")`.

        The fields of `Fault`: protocol, request, topic, count, skip, error, seconds. ValueError
        for a name that does not exist.
        """
        return self._faults.add(make_fault(action, rule))

    @property
    def faults(self) -> list[Fault]:
        """The rules, also those that have been applied as often as they should."""
        return self._faults.rules()

    def remove_fault(self, fault: Fault) -> None:
        """Remove a rule; nothing happens if it is gone."""
        self._faults.remove(fault)

    def clear_faults(self) -> None:
        """Remove all rules, and free the disk."""
        self._faults.clear()
        self.free_disk()

    def fill_disk(self) -> None:
        """Leave no free byte on the broker's disk: it refuses messages, and serves readers."""
        self._call(self._set_disk(is_full=True))

    def free_disk(self) -> None:
        """End what `fill_disk` or a rule began: the broker accepts messages again."""
        self._call(self._set_disk(is_full=False))

    # -- life

    def start(self) -> Self:
        """Start the thread, the proxies and the node; StartError."""
        self._thread.start()
        self._call(self._open_proxies())
        self._call(self._start_node())
        return self

    def restart(self) -> None:
        """Stop with a drain and start again: clients connect again."""
        self._call(self._start_again(drain=True))

    def crash(self) -> None:
        """Stop without a drain and start again: the next start recovers from the journal."""
        self._call(self._start_again(drain=False))

    def reset(self, *, keep_messages: bool = False) -> None:
        """Remove rules, recordings, topics and all else, on the same addresses, in the present.

        With `keep_messages` topics, groups and time stay. ValueError for a directory that the test
        named, which is not emptied.
        """
        if not (self._own_data or keep_messages):
            raise ValueError(f"{self.data} was named by the test, and is not emptied")
        self._call(self._reset(keep_messages=keep_messages))

    def stop(self) -> None:
        """Stop everything, and remove the data unless the test named its directory."""
        try:
            if self._thread.is_alive():
                try:
                    self._call(self._close())
                finally:
                    self._loop.call_soon_threadsafe(self._ended.set)
                    self._thread.join(STOP_S)
            elif self._thread.ident is None:  # it was never started
                self._loop.close()
        finally:
            if self._own_data:
                shutil.rmtree(self.data, ignore_errors=True)

    def _running(self) -> Node:
        if self._thread.is_alive():
            self._call(self._wait_for_start())
        if self._node is None:
            raise RuntimeError("the broker is stopped")
        return self._node

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(3 * STOP_S)

    # -- inside the thread

    def _run(self) -> None:
        """Run the loop until the end; then nothing of it is left."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._ended.wait())

    async def _open_proxies(self) -> None:
        readers: dict[str, Callable[[], RequestReader]] = {
            "kafka": lambda: KafkaRequests(self._topic_name),
            "pulsar": PulsarRequests,
            "tubemq-master": TubeRequests,
            "tubemq-broker": TubeRequests,
        }
        for listener, make_reader in readers.items():
            proxy = ListenerProxy(self._faults, make_reader, self._harm)
            self._addresses[listener] = proxy.open()
            self._proxies[listener] = proxy

    async def _close_proxies(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()

    async def _start_node(self) -> None:
        self.clock.attach(self._loop)
        assignments = [f"{key}={value}" for key, value in self._settings.items()]
        listeners = [*PROXIED, "http"]
        flags = [("data", str(self.data), "test")]
        flags += [(f"listen.{name}", "127.0.0.1:0", "test") for name in listeners]
        flags += [
            (f"advertise.{name}", self._address(name), "test")
            for name in PROXIED
            if name != "tubemq-master"
        ]
        settings = load_settings(environment={}, assignments=assignments, flags=flags)
        node = Node(settings, now_ms=self.clock.now_ms, free_bytes=self._free_bytes)
        await node.start()
        self._node = node
        for name, proxy in self._proxies.items():
            host, _, port = node.gateways.addresses[name].rpartition(":")
            proxy.connect_to((host, int(port)))

    async def _stop_node(self, *, drain: bool) -> None:
        node, self._node = self._node, None
        for proxy in self._proxies.values():
            proxy.connect_to(None)
            proxy.cut_connections()
        if node is not None:
            if drain:
                await node.drain(asyncio.Event(), STOP_S)
            await node.close()
        self.clock.attach(None)

    async def _start_again(self, *, drain: bool) -> None:
        async with self._turn:
            await self._stop_node(drain=drain)
            await self._start_node()

    async def _close(self) -> None:
        async with self._turn:
            await self._stop_node(drain=False)
            await self._close_proxies()

    async def _wait_for_start(self) -> None:
        """Return when no restart is under way."""
        async with self._turn:
            pass

    async def _reset(self, *, keep_messages: bool) -> None:
        async with self._turn:
            self._faults.clear()
            await self._set_disk(is_full=False)
            if not keep_messages:
                await self._stop_node(drain=False)
                shutil.rmtree(self.data, ignore_errors=True)
                self.data.mkdir(mode=0o700)
                self.clock.reset()
                await self._start_node()
            self._faults.forget_requests()

    def _harm(self, fault: Fault) -> None:
        """Do what a rule does to the broker."""
        if fault.action is Action.CRASH:
            task = self._loop.create_task(self._start_again(drain=False))
            self._crashing.add(task)
            task.add_done_callback(self._crashed)
        else:
            self._fill(fault.seconds)

    def _crashed(self, task: asyncio.Task[None]) -> None:
        self._crashing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("broker.not_started_again", exc_info=error)

    def _fill(self, seconds: float) -> None:
        self._is_disk_full = True
        if self._full_until is not None:
            self._full_until.cancel()
            self._full_until = None
        if seconds:
            self._full_until = self._loop.call_later(seconds, self._free)
        self._check_space()

    def _free(self) -> None:
        self._is_disk_full = False
        if self._full_until is not None:
            self._full_until.cancel()
            self._full_until = None
        self._check_space()

    async def _set_disk(self, *, is_full: bool) -> None:
        if is_full:
            self._fill(0)
        else:
            self._free()

    def _check_space(self) -> None:
        if self._node is not None:
            self._node.storage.log.journal.check_space()

    def _free_bytes(self) -> int:
        """Return the free bytes of the disk, below every limit while a fault fills it."""
        return -1 if self._is_disk_full else OsFileSystem().free_bytes(self.data)

    def _topic_name(self, topic_id: bytes) -> str | None:
        if self._node is None:
            return None
        key = self._node.storage.meta.state.topic_keys.get(topic_id)
        return None if key is None else key[-1]


@contextmanager
def start_broker(
    data: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[EmbeddedBroker]:
    """Start a broker for all three protocols, and stop it at the end; StartError.

    `settings` are those of `trilogue serve --set`. Several brokers may run at once.
    """
    broker = EmbeddedBroker(data, settings)
    try:
        yield broker.start()
    finally:
        broker.stop()
