"""One node: storage, doors and the work in the background, joined.

    Node.start ── storage (recovery) ── helpers, flusher, retention, merges, manifests ── doors
    Node.drain ── doors take nothing new ── everything into segments
    Node.close ── doors, background, storage: in the opposite order of the start

Nothing here knows of signals or exit codes (life.py) or of how a command line looks.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from trilogue import __version__
from trilogue.gateway.conversions import Conversions
from trilogue.gateway.doorway import Behind
from trilogue.gateway.kafka.connection import KafkaDoor
from trilogue.gateway.kafka.shared import KafkaSettings
from trilogue.gateway.listen import Door, Listener
from trilogue.gateway.pulsar.door import PulsarDoor
from trilogue.gateway.pulsar.shared import PulsarSettings
from trilogue.gateway.stream import Limits
from trilogue.gateway.tubemq.door import TubeDoor
from trilogue.node.addresses import Address
from trilogue.node.advertise import advertised
from trilogue.node.commits import Commits
from trilogue.node.compacting import Compacting
from trilogue.node.doors import PlannedDoor, bind_door, plan_doors
from trilogue.node.expiry import Expiry
from trilogue.node.flush import Flusher
from trilogue.node.group_expiry import GroupExpiry
from trilogue.node.jobs import Helper
from trilogue.node.kafka_values import obey_values, tell_addresses, tell_values
from trilogue.node.lag import Lag
from trilogue.node.maintenance import Maintenance
from trilogue.node.manifests import Manifests
from trilogue.node.merging import Merging
from trilogue.node.message_count import MessageCount
from trilogue.node.object_settings import is_in_the_clear
from trilogue.node.objects import ObjectKeeper, leave_object
from trilogue.node.retention import Retention
from trilogue.node.retired import RetiredFiles
from trilogue.node.settings import BY_KEY, TUBEMQ_DOORS, Settings
from trilogue.node.storage import Storage, open_storage, wall_clock_ms
from trilogue.node.tubemq import tube_settings
from trilogue.node.tubemq_access import make_authentication, make_authorizer, web_token

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trilogue.broker.access import Authorizer
    from trilogue.gateway.http.app import Health, State
    from trilogue.gateway.http.door import HttpDoor
    from trilogue.gateway.http.metrics import Exposition

log = logging.getLogger(__name__)

READER_THREADS = 4
OBJECT_READER_THREADS = 12  # more, where reads may wait for a line: those of files must not
SLOW_NICENESS = 10
MEASURES = "trilogue.node.measures"
WEB_API_PATHS = ("/webapi.htm", "/broker.htm")  # of TubeMQ's master and its broker
HTTP_CONNECTIONS_MAX = 1_000  # it must not take the descriptors that clients need
DOOR_DRAIN_SHARE = 0.5  # of the time there is; the rest is for the flush


class Node:
    """A server without its process. Use: start, wait for `failed` or an order, drain, close."""

    def __init__(self, settings: Settings, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.settings, self.now_ms = settings, now_ms
        self.state: State = "starting"
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None
        self.addresses: dict[str, str] = {}
        self.lag = Lag(time.monotonic)
        self.began = time.monotonic()
        self.storage: Storage
        self.helper: Helper
        self.slow_helper: Helper
        self.messages: MessageCount
        self.flusher: Flusher
        self.retention: Retention
        self.retired: RetiredFiles
        self.maintenance: Maintenance
        self.merging: Merging
        self.compacting: Compacting
        self.objects: ObjectKeeper | None = None
        self.commits: Commits
        self.conversions = Conversions(cache_bytes=settings.number("conversion.cache"))
        self.authorizer: Authorizer
        self.kafka: KafkaDoor | None = None
        self.pulsar: PulsarDoor | None = None
        self.tubemq: TubeDoor | None = None
        self.listeners: dict[str, Listener] = {}  # by the name of their door
        self.http: HttpDoor | None = None
        self._manifests: Manifests
        self._exposition: Exposition | None = None
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._maintaining: asyncio.Task[None] | None = None

    def fail(self, error: BaseException) -> None:
        """Something that no retry helps: nothing is acknowledged any more, the process must end."""
        if self.failure is None:
            self.failure = error
            self.state = "failed"
            log.critical("node.failed", extra={"reason": str(error), "kind": type(error).__name__})
            self.failed.set()

    # -- start -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything; StartError, and nothing is left open, when that cannot be."""
        doors = plan_doors(self.settings)
        try:
            self._open_storage()
            self._start_background()
            await self._open_doors(doors)
        except BaseException:
            await self.close()
            raise
        self.lag.start()
        self._stack.callback(self.lag.stop)
        self.state = "serving"
        self._background.submit(importlib.import_module, MEASURES)  # for the first scrape
        log.info(
            "node.serving",
            extra={
                "version": __version__,
                "node": self.storage.meta.state.node_id,
                "epoch": self.storage.meta.state.node_epoch,
                "took_s": round(time.monotonic() - self.began, 3),
            },
        )

    def _open_storage(self) -> None:
        self._background = ThreadPoolExecutor(1, "background")
        self._stack.callback(self._background.shutdown, wait=False, cancel_futures=True)
        # Of its own: removals wait for a manifest, and that must not wait for journal files.
        self._publisher = ThreadPoolExecutor(1, "manifest")
        self._stack.callback(self._publisher.shutdown, wait=False, cancel_futures=True)
        more = OBJECT_READER_THREADS if self.settings.text("objects.url") else 0
        self._readers = ThreadPoolExecutor(READER_THREADS + more, "reader")
        self._stack.callback(self._readers.shutdown, wait=False, cancel_futures=True)
        self.storage = open_storage(
            self.settings,
            loop=asyncio.get_running_loop(),
            background=self._background,
            on_failed=self.fail,
            now_ms=self.now_ms,
        )
        self._stack.callback(self.storage.close)
        self.messages = MessageCount(self.storage.broker.cluster)
        self.authorizer = make_authorizer(self.settings, self.storage.broker)

    def _start_background(self) -> None:
        settings = self.settings
        self.helper = Helper()
        self._stack.push_async_callback(self.helper.close)
        self._manifests = Manifests(self.storage, self._publisher)
        self.commits = Commits(self.storage, self._manifests)
        grace_s = settings.seconds("segments.grace")
        self.retired = RetiredFiles(self.storage, monotonic=time.monotonic, grace_s=grace_s)
        self.retired.published = lambda: self._manifests.generation
        self._plan_maintenance()
        self._keep_objects()
        self.retention = Retention(
            self.storage,
            self._manifests,
            self.retired,
            now_ms=self.now_ms,
            every_s=settings.seconds("retention.check-every"),
            at_work=lambda: self.maintenance.at_work,
            on_moved=self.maintenance.wake,
        )
        every_s = settings.seconds("subscriptions.check-every")
        self.expiry = Expiry(self.storage, self.now_ms, every_s=every_s)
        broker = self.storage.broker
        every_s = broker.groups.settings.offset_check_ms / 1_000
        self.group_expiry = GroupExpiry(broker, self.now_ms, every_s=every_s)
        self.flusher = Flusher(
            self.storage,
            self.helper,
            self._manifests,
            now_ms=self.now_ms,
            bytes_per_second=settings.number("flush.rate"),
            room=self.merging.room_for_flush,
            on_flushed=self.maintenance.wake,
        )
        self._stack.push_async_callback(self._stop_background)
        works: list[Coroutine[object, object, None]] = [
            self.flusher.run(),
            self.flusher.seal_old(),
            self.expiry.run(),
            self.group_expiry.run(),
            self.retention.run(),
            self._manifests.run(),
            self.compacting.run(),
        ]
        if self.objects is not None:
            works += [self.objects.run(), self.objects.run_uploads()]
        self._tasks += [asyncio.create_task(self._guarded(work)) for work in works]
        self._maintaining = asyncio.create_task(self._guarded(self.maintenance.run()))
        self._tasks.append(self._maintaining)

    def _plan_maintenance(self) -> None:
        """Work on segments that nobody waits for, in a process of its own."""
        self.maintenance = Maintenance(self.storage, self.retired, self._manifests)
        self.slow_helper = Helper(niceness=SLOW_NICENESS)
        self._stack.push_async_callback(self.slow_helper.close)
        self.merging = Merging(
            self.storage,
            self.maintenance,
            self.slow_helper,
            now_ms=self.now_ms,
            bytes_per_second=self.settings.number("merge.rate"),
        )
        self.compacting = Compacting(
            self.storage,
            self.maintenance,
            self.slow_helper,
            now_ms=self.now_ms,
            every_s=self.settings.seconds("compaction.check-every"),
            map_bytes=self.settings.number("compaction.memory"),
            bytes_per_second=self.settings.number("merge.rate"),
        )
        self.maintenance.planners += [self.merging, self.compacting]

    def _keep_objects(self) -> None:
        """Move merged segments to object storage, where settings name one."""
        storage, settings = self.storage, self.settings
        self.retired.remove_object = leave_object
        if storage.reach is None or storage.objects is None:
            left = sum(1 for each in storage.meta.state.segments.values() if each.store)
            if left:
                log.warning("objects.not_configured", extra={"segments": left})
            return
        if is_in_the_clear(settings):
            log.warning("objects.not_encrypted", extra={"to": settings.text("objects.endpoint")})
        executor = ThreadPoolExecutor(1, "objects")
        self._stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        self._stack.callback(storage.objects.objects.close)
        helper = Helper(niceness=SLOW_NICENESS)
        self._stack.push_async_callback(helper.close)
        keep_local = settings.number("objects.keep-local")
        self.objects = ObjectKeeper(
            storage,
            self.maintenance,
            reach=storage.reach,
            cache=storage.objects,
            helper=helper,
            executor=executor,
            now_ms=self.now_ms,
            monotonic=time.monotonic,
            grace_s=settings.seconds("segments.grace"),
            keep_local_s=None if keep_local < 0 else keep_local / 1000,
            move_after_s=settings.seconds("objects.move-after"),
            published=lambda: self._manifests.generation,
        )
        self.retired.remove_object = self.objects.remove_object
        self.maintenance.planners.insert(0, self.objects)  # its jobs are done in a moment

    async def _guarded(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            log.exception("background.failed")
            self.fail(error)

    async def _stop_background(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- doors -----------------------------------------------------------------------------

    async def _open_doors(self, doors: dict[str, PlannedDoor]) -> None:
        if "kafka" in doors:
            await self._open_kafka(doors["kafka"])
        if "pulsar" in doors:
            await self._open_pulsar(doors["pulsar"])
        if doors.keys() & set(TUBEMQ_DOORS):
            await self._open_tubemq(doors)
        if "http" in doors:
            await self._open_http(doors["http"])

    def _behind(self, told: list[Address]) -> Behind:
        """What every door stands in front of; `told` will hold where its clients come back to."""
        return {
            "broker": self.storage.broker,
            "log": self.storage.log,
            "commit": self.commits.carry_out,
            "advertised": lambda: (told[0].host, told[0].port),
            "authorizer": self.authorizer,
            "now_ms": self.now_ms,
            "executor": self._readers,
            "conversions": self.conversions,
        }

    async def _open_kafka(self, door: PlannedDoor) -> None:
        told: list[Address] = []
        settings = KafkaSettings(
            auto_create_topics=self.settings.switch("topics.auto-create"),
            fetch_sessions_max=self.settings.number("kafka.fetch-sessions"),
            fetch_sessions_bytes_max=self.settings.number("kafka.fetch-sessions-memory"),
            unsent_bytes_max=self.settings.number("kafka.unsent-memory"),
        )
        self.kafka = KafkaDoor(settings=settings, **self._behind(told))
        await self._stack.enter_async_context(self.kafka)
        told.append(await self._listen(door, self.kafka, self.settings.number("frames.limit")))
        self.listeners[door.name].early_s = self.kafka.early_s
        values, listener = self.storage.broker.values, self.listeners[door.name]
        tell_values(values, self.settings, settings.fetch_bytes_max)
        tell_addresses(values, self.addresses[door.name], lambda: told[0])
        obey_values(values, listener, self.compacting)

    async def _open_pulsar(self, door: PlannedDoor) -> None:
        told: list[Address] = []
        self.pulsar = PulsarDoor(settings=pulsar_settings(self.settings), **self._behind(told))
        await self._stack.enter_async_context(self.pulsar)
        told.append(await self._listen(door, self.pulsar, self.pulsar.frame_bytes_max))

    async def _open_tubemq(self, doors: dict[str, PlannedDoor]) -> None:
        """Open the broker first: the master tells where it is."""
        told: list[Address] = []
        self.tubemq = door = TubeDoor(
            settings=tube_settings(self.settings),
            authentication=await make_authentication(self.settings, self.storage, self.commits),
            **self._behind(told),
        )
        await self._stack.enter_async_context(door)
        for side in (door.broker_side, door.master_side):
            planned = doors.get(side.name)
            if planned is not None:
                address = await self._listen(planned, side, side.frame_bytes_max)
                if side is door.broker_side:
                    told.append(address)
        if not told:  # a standby, which tells nobody
            told.append(doors[door.master_side.name].listens)

    async def _listen(self, planned: PlannedDoor, door: Door, frame_bytes: int) -> Address:
        """Let clients in; say where they are told to come back to."""
        settings = self.settings
        limits = Limits(
            frame_bytes=frame_bytes,
            connections=settings.number("connections.limit"),
            connections_per_address=settings.number("connections.per-address"),
        )
        listener = Listener(door, limits, monotonic=time.monotonic)
        self.listeners[planned.name] = await self._stack.enter_async_context(listener)
        bound = await bind_door(planned, listener.open)
        self.addresses[planned.name] = str(bound)
        key = f"advertise.{planned.name}"
        return advertised(
            settings.text(key) if key in BY_KEY else "",
            listens=planned.listens,
            bound=bound,
            machine_name=socket.gethostname,
        )

    async def _open_http(self, door: PlannedDoor) -> None:
        from trilogue.gateway.http.app import build_app
        from trilogue.gateway.http.door import HttpDoor, HttpLimits

        app = build_app(
            self.health,
            self.metrics_page,
            None if self.pulsar is None else self._administration,
            {} if self.tubemq is None else await self._web_api(self.tubemq),
        )
        most = min(HTTP_CONNECTIONS_MAX, self.settings.number("connections.limit"))
        http = HttpDoor(app, HttpLimits(connections=most))
        self._stack.push_async_callback(http.close)

        async def bind(host: str, port: int) -> tuple[str, int]:
            return http.bind(host, port)

        bound = await bind_door(door, bind)
        await http.serve()
        self.http = http
        self.addresses["http"] = str(bound)

    def _administration(self) -> ASGIApp:
        """What Pulsar's administrators and clients ask over HTTP."""
        from trilogue.gateway.http.pulsar_admin import build_pulsar_app

        assert self.pulsar is not None
        return build_pulsar_app(self.pulsar)

    async def _web_api(self, door: TubeDoor) -> dict[str, Callable[[], ASGIApp]]:
        """What TubeMQ's administrators ask over HTTP, and where."""
        token = await web_token(self.settings, self.storage, self.commits)

        def make() -> ASGIApp:
            from trilogue.gateway.http.tubemq_webapi import build_tubemq_app

            return build_tubemq_app(door, token)

        return dict.fromkeys(WEB_API_PATHS, make)

    def metrics_page(self) -> bytes:
        """What /metrics shows now."""
        if self._exposition is None:
            self._exposition = make_exposition(self)
        return self._exposition.page()

    def health(self) -> Health:
        """How this node is, for /healthz."""
        from trilogue.gateway.http.app import Health

        return Health(
            state=self.state,
            version=__version__,
            uptime_s=time.monotonic() - self.began,
            node_id=self.storage.meta.state.node_id,
        )

    # -- end -------------------------------------------------------------------------------

    async def drain(self, hurry: asyncio.Event, limit_s: float) -> None:
        """Take nothing new, answer what is in flight, bring everything into segments.

        What is not done within the time, or when `hurry` is set, is left to the next start.
        """
        self.state = "draining"
        log.info("node.draining", extra={"limit_s": limit_s})
        ends = time.monotonic() + limit_s

        async def within(work: Coroutine[object, object, object], share: float = 1.0) -> bool:
            left_s = max(0.0, ends - time.monotonic()) * share
            return await _within(work, left_s, (hurry, self.failed))

        if self._maintaining is not None:
            self._maintaining.cancel()  # what a merge wrote so far is an orphan
        drains = (listener.drain(limit_s) for listener in self.listeners.values())
        await within(_all(drains), DOOR_DRAIN_SHARE)
        await within(self.commits.finish())
        flushed = await within(self.flusher.finish())
        await within(self._manifests.write())
        log.info("node.drained", extra={"flushed": flushed})

    async def close(self) -> None:
        """Let go of everything, in order; what was acknowledged is durable before and after."""
        await self._stack.aclose()


def pulsar_settings(settings: Settings) -> PulsarSettings:
    """What the settings of a process mean for its Pulsar door."""
    tells = settings.text("pulsar.broker-entry-metadata")
    return PulsarSettings(
        cluster=settings.text("pulsar.cluster"),
        protocol_min=settings.number("pulsar.min-protocol"),
        keep_alive_s=settings.seconds("pulsar.keep-alive"),
        message_bytes_max=settings.number("pulsar.max-message"),
        tells_timestamp=tells in {"timestamp", "both"},
        tells_index=tells in {"index", "both"},
        auto_create_topics=settings.switch("topics.auto-create"),
        key_shared_ring=settings.text("pulsar.key-shared") == "ring",
    )


async def _all(works: Iterable[Coroutine[object, object, object]]) -> None:
    await asyncio.gather(*works)


def make_exposition(node: Node) -> Exposition:
    """Load what writes metrics: nobody waits for that at the start."""
    from trilogue.gateway.http.metrics import Exposition
    from trilogue.node.measures import Measures

    return Exposition(Measures(node).gather)


async def _within(
    work: Coroutine[object, object, object], limit_s: float, ends: tuple[asyncio.Event, ...]
) -> bool:
    """Do work until it is done, the time is over, or one of `ends` comes; whether it was done."""
    task = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(end.wait()) for end in ends]
    everything = [task, *others]
    try:
        await asyncio.wait(everything, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        was_done = task.done()
    finally:
        for each in everything:
            each.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
    if was_done and (error := task.exception()) is not None:
        log.error("node.drain_failed", exc_info=error)
        return False
    return was_done
