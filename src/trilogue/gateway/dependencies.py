"""The base class of the protocols' gateways: dependencies, tasks, connections that wait.

    gateway = SomeGateway(settings=..., broker=..., log=..., ...)    # see `GatewayDependencies`
    async with gateway:                                          # owns the tasks of long requests
        ...

A protocol's gateway derives from this and adds its settings, its state and its connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, Self, TypedDict, Unpack

from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import ANONYMOUS, Authorizer, Principal
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.broker import Broker
from trilogue.broker.metadata_change import MetadataChange
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.gateway.frame_dispatcher import IterationBudget
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.segments.cold_reads import ColdReads
from trilogue.gateway.segments.read_ahead import ReadAhead
from trilogue.gateway.stream import STOP_BROKER, Stream
from trilogue.gateway.stream_memory import RequestMemory
from trilogue.gateway.telemetry.request_latency import RequestLatencies
from trilogue.log.log import Log
from trilogue.wire.frames import Frames, Int32Frames

if TYPE_CHECKING:
    from trilogue.gateway.telemetry.traces import MessageTracer

logger = logging.getLogger(__name__)


class GatewayDependencies(TypedDict):
    """What a node passes to each of its gateways."""

    broker: Broker
    log: Log
    write_metadata: Callable[[MetadataChange[Any]], Awaitable[object]]  # returns once it is applied
    advertised: Callable[[], tuple[str, int]]  # the address that clients connect to
    authorizer: Authorizer
    now_ms: Callable[[], int]
    executor: Executor  # for cold reads
    schema_executor: NotRequired[Executor]  # for definitions, of which one may take seconds
    cold_reads: NotRequired[ColdReads]  # in it, within the memory of the node
    conversions: NotRequired[ConversionCache]
    iterations: NotRequired[IterationBudget]  # of the node's loop
    authenticator: NotRequired[Authenticator]
    requires_login: NotRequired[bool]  # `access.authenticate`
    anonymous: NotRequired[str]  # `access.anonymous`
    # Of several nodes: returns when what others have changed by now is applied here.
    catch_up: NotRequired[Callable[[], Awaitable[None]] | None]
    tracer: NotRequired[MessageTracer | None]  # None: no traces


class PausedConnection(Protocol):
    """A connection that is not read because the log has no space."""

    stream: Stream


class ProtocolGateway:
    """A gateway without its protocol."""

    protocol = ""  # its name in the audit log

    def __init__(self, **dependencies: Unpack[GatewayDependencies]) -> None:
        self.broker = dependencies["broker"]
        self.quotas = self.broker.quotas
        self.log = dependencies["log"]
        self.journal = self.log.journal
        self.write_metadata = dependencies["write_metadata"]
        self.advertised = dependencies["advertised"]
        self.authorizer = dependencies["authorizer"]
        self.now_ms = dependencies["now_ms"]
        self.executor = dependencies["executor"]
        self.schema_executor = dependencies.get("schema_executor", self.executor)
        self.conversions = dependencies.get("conversions") or ConversionCache()
        self.iterations = dependencies.get("iterations") or IterationBudget()
        self.authenticator = dependencies.get("authenticator") or Authenticator(
            self.broker.users,
            audit=AuditLog(lambda _line: None, self.now_ms),
            now_ms=self.now_ms,
            delegation_tokens=self.broker.delegation_tokens,
        )
        self.audit = self.authenticator.audit
        self.requires_login = dependencies.get("requires_login", False)
        self.anonymous = dependencies.get("anonymous", "")
        self.catch_up = dependencies.get("catch_up")
        self.cold_reads = dependencies.get("cold_reads") or ColdReads(
            self.executor, ConnectionMemory().unsent
        )
        self.latencies = RequestLatencies()
        self.request_memory = RequestMemory()
        self.tracer = dependencies.get("tracer")
        self.read_ahead = ReadAhead(self.executor, self.cold_reads.memory)
        self.tls_advertised: Callable[[], tuple[str, int]] | None = None  # of a TLS listener
        self.is_tls_only = False  # then `advertised` is its address too
        self._stack = AsyncExitStack()
        self._group: asyncio.TaskGroup
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused: dict[PausedConnection, None] = {}
        self.call_soon: Callable[[Callable[[], None]], object]

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self.call_soon = self.loop.call_soon
        self.iterations.open(self.call_soon)
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await asyncio.sleep(0)  # lets tasks begin that were just spawned, so that they can end
        for task in list(self._tasks):
            task.cancel()
        await self._stack.aclose()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the gateway."""
        return asyncio.get_running_loop()

    def make_access(
        self, host: str, principal: Principal = ANONYMOUS, *, protocol: str = ""
    ) -> ClientAccess:
        """Return what a client at this address may do."""
        protocol = protocol or self.protocol
        return ClientAccess(
            self.authorizer, self.audit, protocol=protocol, host=host, principal=principal
        )

    def frames(self, limit: int) -> Frames:
        """Return the framer of a connection: a length before each frame, in most protocols."""
        return Int32Frames(limit)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of the gateway."""
        task = self._group.create_task(_contained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wait_for_relief(self, connection: PausedConnection) -> None:
        """Read a connection again when the log has space."""
        if not self._paused:
            self.log.on_relief(self._relieved)
        self._paused[connection] = None

    def _relieved(self) -> None:
        paused, self._paused = self._paused, {}
        for connection in paused:
            connection.stream.go_on(STOP_BROKER)


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    """Log a failure: it must not end the task group, and with it the gateway."""
    try:
        await work
    except Exception:
        logger.exception("task.failed")
