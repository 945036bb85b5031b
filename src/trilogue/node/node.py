"""A node: storage, background work and listeners, started and stopped in order.

    Node.start ── storage (recovery) ── helpers, flusher, retention, merges, manifests ── listeners
    Node.drain ── listeners accept nothing new ── everything is flushed to segments
    Node.close ── listeners, background work, storage: the opposite order of the start

Signals and exit codes are process.py's, options the command line's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from trilogue import __version__
from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.gateway.dependencies import GatewayDependencies, ProtocolGateway
from trilogue.gateway.memory_budget import ConnectionMemory, MemoryBudget
from trilogue.gateway.pulsar.advertised_listeners import registered_rows
from trilogue.gateway.segments.cold_reads import ColdReads
from trilogue.log.clock import wall_clock_ms
from trilogue.meta.operations import SetListeners
from trilogue.node.access import (
    AccessControl,
    load_users_file,
    make_access_control,
)
from trilogue.node.addresses import find_shared_addresses
from trilogue.node.background.backlog_expiry import BacklogExpiry
from trilogue.node.background.compaction import CompactionPlanner
from trilogue.node.background.flush import Flusher
from trilogue.node.background.helper import Helper
from trilogue.node.background.maintenance import Maintenance
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.background.merge import MergePlanner
from trilogue.node.background.objects import ObjectMover, leave_object
from trilogue.node.background.offset_expiry import OffsetExpiry
from trilogue.node.background.retention import Retention
from trilogue.node.background.retired import RetiredFiles
from trilogue.node.background.splits import SplitPlanner
from trilogue.node.background.token_expiry import DelegationTokenExpiry
from trilogue.node.background.transactions import TransactionExpiry, finish_decisions
from trilogue.node.cluster.hand_over import HandOver
from trilogue.node.gateways import Gateways
from trilogue.node.http_apps import build_http_app, collect_apps
from trilogue.node.listeners import (
    ListenerPlan,
    plan_listeners,
)
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.metrics.measurements import LoopLag, MessageCount
from trilogue.node.secure.start import finish_secured, prepare_secured
from trilogue.node.settings.kafka_values import (
    follow_values,
)
from trilogue.node.settings.objects import is_in_the_clear
from trilogue.node.settings.table import (
    KAFKA_LISTENERS,
    Settings,
)
from trilogue.node.storage import ALONE, NodePlace, Storage, open_storage
from trilogue.node.stored_permissions import move_permissions
from trilogue.node.tubemq_access import make_authentication
from trilogue.node.versions import open_versions

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trilogue.gateway.http.app import Health, State
    from trilogue.gateway.telemetry.traces import MessageTracer
    from trilogue.gateway.tubemq.auth.authentication import Authentication
    from trilogue.node.cluster.place import ClusterPlace
    from trilogue.node.followed_versions import AppliedVersions

log = logging.getLogger(__name__)

READER_THREADS = 4
SENDER_THREADS = 4  # of large replies; more are sent by the loop
OBJECT_READER_THREADS = (
    12  # more: they wait for the network, and reads of files must not wait for them
)
SLOW_NICENESS = 10
LISTENER_DRAIN_SHARE = 0.5  # of the limit; the rest is for the flush


class Node:
    """A server without its process. Use: start, wait for `failed` or a signal, drain, close."""

    def __init__(
        self,
        settings: Settings,
        now_ms: Callable[[], int] = wall_clock_ms,
        place: NodePlace = ALONE,
        free_bytes: Callable[[], int] | None = None,  # None: those of the disk
    ) -> None:
        self.settings, self.now_ms, self.place = settings, now_ms, place
        self._free_bytes = free_bytes
        self.state: State = "starting"
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None
        self.is_flushed = False  # at its end: everything is in segments
        self.hand_over = HandOver()
        self.new_helper: Callable[..., Helper] = Helper  # of flushes and uploads
        self.lag = LoopLag(time.monotonic)
        self.began = time.monotonic()
        self.storage: Storage
        self.helper: Helper
        self.slow_helper: Helper
        self.messages: MessageCount
        self.flusher: Flusher
        self.retention: Retention
        self.retired: RetiredFiles
        self.maintenance: Maintenance
        self.merging: MergePlanner
        self.compacting: CompactionPlanner
        self.objects: ObjectMover | None = None
        self.metadata_writer: MetadataWriter
        self.memory = ConnectionMemory(
            unsent=MemoryBudget(settings.number("connections.unsent-memory")),
            received=MemoryBudget(settings.number("connections.received-memory")),
        )
        self.conversions = ConversionCache(cache_bytes=settings.number("conversion.cache"))
        self.access: AccessControl
        self.gateways: Gateways
        self._has_gateways = False
        self._manifests: ManifestWriter
        self._catch_up: Callable[[], Awaitable[None]] | None = None
        self._tracer: MessageTracer | None = None
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._maintaining: asyncio.Task[None] | None = None

    def fail(self, error: BaseException) -> None:
        """Record an error that no retry helps: nothing is acknowledged from now on.

        Connections end without an answer, as the last write may come back at the next start. A
        client that is told of an error may send its messages again under other sequence numbers.
        """
        if self.failure is None:
            self.failure = error
            self.state = "failed"
            if self._has_gateways:
                self.gateways.suspend()
            log.critical("node.failed", extra={"reason": str(error), "kind": type(error).__name__})
            self.failed.set()

    # -- start -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything; after an error close what was opened and raise it (often StartError)."""
        plans = plan_listeners(self.settings)
        try:
            self._open_storage()
            is_first = self.place.is_first  # the others get what it writes through meta
            prepare_secured(self.settings, self.storage.meta.state.settings, self.place)
            self._start_background()
            if self.place.is_shared:
                from trilogue.node.siblings.opening import reach_siblings

                await reach_siblings(self.storage, self._stack)
            if is_first:
                await move_permissions(self.storage.broker, self.metadata_writer.write)
                await self._load_users()
            if self.settings.text("traces.endpoint"):
                from trilogue.node.tracing import open_tracer

                node_id = self.storage.meta.state.node_id
                self._tracer = open_tracer(self.settings, node_id, self._stack)
            await self._open_gateways(plans)
            if self.place.cluster is not None and self.gateways.advertised:
                await self._join_cluster(self.place.cluster)
            if self.place.has_others and not self.place.is_recovery:  # which no client reaches
                await self._register()
        except BaseException:
            await self.close()
            raise
        self.add_work(self.gateways.load_requests())
        if self.access.token_keys is not None:
            self.add_work(self.access.token_keys.run())
        self.lag.start()
        self._stack.callback(self.lag.stop)
        finish_secured(self.settings, self.gateways.addresses, self.place)
        self.state = "serving"
        log.info(
            "node.serving",
            extra={
                "version": __version__,
                "node": self.storage.meta.state.node_id,
                "epoch": self.storage.meta.state.node_epoch,
                "took_s": round(time.monotonic() - self.began, 3),
            },
        )

    def _open_threads(self, count: int, name: str) -> ThreadPoolExecutor:
        """Return threads that end with the node, without what they have not begun."""
        threads = ThreadPoolExecutor(count, name)
        self._stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        return threads

    def _open_storage(self) -> None:
        self._background = self._open_threads(1, "background")
        # A thread of its own: removals wait for a manifest, which must not wait for journal files.
        self._publisher = self._open_threads(1, "manifest")
        more = OBJECT_READER_THREADS if self.settings.text("objects.url") else 0
        self._readers = self._open_threads(READER_THREADS + more, "reader")
        senders = self._open_threads(SENDER_THREADS, "sender")
        self.memory.transfers.open(senders, SENDER_THREADS)
        self._schema_thread = self._open_threads(1, "schemas")
        self._cold_reads = ColdReads(
            self._readers, self.memory.unsent, reads_max=2 * READER_THREADS + more
        )
        self.storage = open_storage(
            self.settings,
            loop=asyncio.get_running_loop(),
            background=self._background,
            on_failed=self.fail,
            now_ms=self.now_ms,
            place=self.place,
            free_bytes=self._free_bytes,
        )
        self._stack.callback(self.storage.close)
        self._stack.push_async_callback(self.hand_over.write, self)
        self._stack.callback(self._note_flushed)
        self.messages = MessageCount(self.storage.broker.cluster)
        data = self.storage.directory.path
        self.access = make_access_control(self.settings, self.storage.broker, data, self.now_ms)
        self._stack.callback(self.access.authenticator.close)

    def _note_flushed(self) -> None:
        """Note, after all that writes is closed, whether the journal has to be read."""
        self.is_flushed = self.storage.log.is_flushed

    def _start_background(self) -> None:
        settings = self.settings
        self.helper = self.new_helper()
        self._stack.push_async_callback(self.helper.close)
        self._manifests = ManifestWriter(self.storage, self._publisher)
        in_cluster = self.place.cluster is not None
        is_publisher = in_cluster or self.storage.meta.state.owns(0)
        self._manifests.is_publisher = is_publisher and not self.place.is_recovery
        versions = open_versions(self.storage, self._stack) if self.place.has_others else None
        self.metadata_writer = MetadataWriter(self.storage, self._manifests, versions)
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
        check_s = settings.seconds("subscriptions.check-every")
        self.expiry = BacklogExpiry(self.storage, self.now_ms, every_s=check_s)
        broker, every_s = self.storage.broker, settings.seconds("groups.offset-check")
        self.group_expiry = OffsetExpiry(broker, self.now_ms, every_s=every_s)
        self.token_expiry = DelegationTokenExpiry(
            broker.delegation_tokens,
            self.metadata_writer.write,
            self.access.audit,
            self.now_ms,
            every_s=settings.seconds("kafka.delegation-token-check-every"),
        )
        self.flusher = Flusher(
            self.storage,
            self.helper,
            self._manifests,
            now_ms=self.now_ms,
            bytes_per_second=settings.number("flush.rate"),
            room=self.merging.room_for_flush,
            on_flushed=self.maintenance.wake,
            store=self.maintenance.store,
        )
        self._stack.push_async_callback(self._stop_background)
        works: list[Coroutine[object, object, None]] = [
            self.flusher.run(),
            self.flusher.seal_old(),
            self.expiry.run(),
            self.group_expiry.run(),
            TransactionExpiry(broker).run(),
            self.token_expiry.run(),
            self.retention.run(),
            self._manifests.run(),
            self.compacting.run(),
        ]
        if versions is not None:  # from the first change on that may come
            works += self._follow_metadata(versions)
        if self.objects is not None:
            works += [self.objects.run(), self.objects.run_uploads()]
        self._tasks += [asyncio.create_task(self._guarded(work)) for work in works]
        self._maintaining = asyncio.create_task(self._guarded(self.maintenance.run()))
        self._tasks.append(self._maintaining)

    def _follow_metadata(self, versions: AppliedVersions) -> list[Coroutine[object, object, None]]:
        """Return what follows changes of other nodes, also of who has a slot."""
        from trilogue.node.cluster.adoption import SlotAdoption
        from trilogue.node.metadata_follower import MetadataFollower

        adopt = SlotAdoption(self.storage, self.hand_over).follow
        follower = MetadataFollower(
            self.storage, self.metadata_writer, self._manifests, versions, adopt
        )
        self._catch_up = follower.catch_up
        return [follower.run(), follower.publish()]

    def _plan_maintenance(self) -> None:
        """Set up merges and compaction, in a helper process of low priority."""
        self.maintenance = Maintenance(self.storage, self.retired, self._manifests)
        self.slow_helper = Helper(niceness=SLOW_NICENESS)
        self._stack.push_async_callback(self.slow_helper.close)
        self.merging = MergePlanner(
            self.storage,
            self.maintenance,
            self.slow_helper,
            now_ms=self.now_ms,
            bytes_per_second=self.settings.number("merge.rate"),
            owns=self.storage.broker.cluster.ownership.owns_segment,
        )
        self.compacting = CompactionPlanner(
            self.storage,
            self.maintenance,
            self.slow_helper,
            now_ms=self.now_ms,
            every_s=self.settings.seconds("compaction.check-every"),
            map_bytes=self.settings.number("compaction.memory"),
            bytes_per_second=self.settings.number("merge.rate"),
        )
        splitting = SplitPlanner(
            self.storage,
            self.maintenance,
            self.slow_helper,
            now_ms=self.now_ms,
            bytes_per_second=self.settings.number("merge.rate"),
        )
        self.maintenance.planners += [splitting, self.merging, self.compacting]

    def _keep_objects(self) -> None:
        """Set up the move of merged segments to object storage, if one is configured."""
        storage, settings = self.storage, self.settings
        self.retired.remove_object = leave_object
        if storage.reach is None or storage.objects is None:
            left = sum(1 for each in storage.meta.state.segments.values() if each.store)
            if left:
                log.warning("objects.not_configured", extra={"segments": left})
            return
        if is_in_the_clear(settings):
            log.warning("objects.not_encrypted", extra={"to": settings.text("objects.endpoint")})
        executor = self._open_threads(1, "objects")
        self._stack.callback(storage.objects.objects.close)
        helper = self.new_helper(niceness=SLOW_NICENESS)
        self._stack.push_async_callback(helper.close)
        keep_local = settings.number("objects.keep-local")
        self.objects = ObjectMover(
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
        if storage.shared is not None:
            self.maintenance.store = self.objects.store
        self.maintenance.planners.insert(0, self.objects)  # its jobs are short

    def add_work(self, work: Coroutine[object, object, None]) -> None:
        """Run work until the node stops; its failure is the node's."""
        self._tasks.append(asyncio.create_task(self._guarded(work)))

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

    async def _load_users(self) -> None:
        """Bring over the users of `access.users-file`, and follow the file; StartError."""
        work = await load_users_file(
            self.settings, self.storage, self.metadata_writer, self.access.authenticator
        )
        if work is not None:
            self.add_work(work)

    # -- other nodes -----------------------------------------------------------------------

    async def _join_cluster(self, cluster: ClusterPlace) -> None:
        """Reach the other nodes, and answer no client while the lease of this one is over."""
        from trilogue.node.cluster.lease_guard import LeaseGuard, SuspendableListener
        from trilogue.node.cluster.links import LISTENER, reach_nodes

        advertised = self.gateways.advertised
        server, address = await reach_nodes(
            self.settings, self.storage, cluster, advertised, self._stack
        )
        advertised[LISTENER] = address
        if self.storage.shared is not None:
            suspended: dict[str, SuspendableListener] = {
                **self.gateways.listeners,
                LISTENER: server,
            }
            self.add_work(LeaseGuard(self.storage.shared, suspended).run())

    async def _register(self) -> None:
        """Record at which addresses clients reach this node, and know those of others."""
        advertised = {name: str(address) for name, address in self.gateways.advertised.items()}
        if self.gateways.pulsar is not None:
            advertised |= registered_rows(self.gateways.pulsar.settings.advertised_listeners)
        if self.place.cluster is not None:
            self._warn_of_shared_addresses(advertised)
        await self.storage.meta.write([SetListeners(advertised)], (), self.storage.fence)

    def _warn_of_shared_addresses(self, advertised: Mapping[str, str]) -> None:
        """Log addresses that send clients to another node: each machine has its own loopback."""
        state = self.storage.meta.state
        others = {key: row.listeners for key, row in state.nodes.items() if key != state.node_id}
        for node_id, name, address in find_shared_addresses(advertised, others):
            extra = {"listener": name, "address": address, "other_node": node_id}
            log.warning("node.address_of_another", extra=extra)

    # -- gateways ------------------------------------------------------------------------------

    async def _open_gateways(self, plans: Mapping[str, ListenerPlan]) -> None:
        self.gateways = Gateways(
            self.settings,
            self.storage,
            self.memory,
            self._stack,
            dependencies=self._dependencies,
            make_authentication=self._make_authentication,
            load_http_app=self._load_http_app,
        )
        self._has_gateways = True
        await self.gateways.open(plans)
        if self.gateways.kafka is not None:
            self.storage.broker.values.live["trilogue.status"] = self.spell_status
            for name in KAFKA_LISTENERS:
                if name in plans:
                    follow_values(
                        self.storage.broker.values, self.gateways.listeners[name], self.compacting
                    )

    def _dependencies(self, advertised: Callable[[], tuple[str, int]]) -> GatewayDependencies:
        """Return the parameters of a gateway whose clients connect to `advertised`."""
        return {
            "broker": self.storage.broker,
            "log": self.storage.log,
            "write_metadata": self.metadata_writer.write,
            "advertised": advertised,
            "authorizer": self.access.authorizer,
            "authenticator": self.access.authenticator,
            "requires_login": self.settings.switch("access.authenticate"),
            "anonymous": self.settings.text("access.anonymous"),
            "now_ms": self.now_ms,
            "executor": self._readers,
            "schema_executor": self._schema_thread,
            "cold_reads": self._cold_reads,
            "conversions": self.conversions,
            "iterations": self.memory.iterations,
            "catch_up": self._catch_up,
            "tracer": self._tracer,
        }

    async def _make_authentication(self) -> Authentication:
        """Return the authentication of TubeMQ clients; StartError."""
        return await make_authentication(
            self.settings,
            self.storage,
            self.metadata_writer,
            self.access.authenticator,
            self._stack,
        )

    async def _load_http_app(self, pages: ProtocolGateway) -> Callable[[], ASGIApp]:
        """Return what builds the application of the HTTP listeners."""
        apps = await collect_apps(self, self.settings, self.metadata_writer, self.access, pages)
        return partial(
            build_http_app, self, self.settings, self.access, health=self.health, apps=apps
        )

    def health(self) -> Health:
        """Return the state of this node, for /healthz, /livez and /readyz."""
        from trilogue.gateway.http.app import Health

        shared = self.storage.shared
        is_over = self.state == "serving" and shared is not None and not shared.lease_left_s
        disk_full = self.storage.log.journal.find_disk_full()
        return Health(
            state="suspended" if is_over else self.state,
            version=__version__,
            uptime_s=time.monotonic() - self.began,
            node_id=self.storage.meta.state.node_id,
            missing_segments=sorted(self.storage.log.missing_segments.values()),
            disk_full=str(disk_full or ""),
        )

    def spell_status(self) -> str:
        """Return what this node owns and how far it lags, for `trilogue nodes describe`."""
        from trilogue.node.metrics.node_status import spell_status

        return spell_status(self)

    # -- end -------------------------------------------------------------------------------

    async def drain(self, hurry: asyncio.Event, limit_s: float) -> None:
        """Accept nothing new, answer requests in flight, and flush everything to segments.

        Whatever is unfinished after `limit_s`, or when `hurry` is set, is left to the next start.
        """
        self.state = "draining"
        log.info("node.draining", extra={"limit_s": limit_s})
        ends = time.monotonic() + limit_s

        async def within(work: Awaitable[object], share: float = 1.0) -> bool:
            left_s = max(0.0, ends - time.monotonic()) * share
            return await _within(work, left_s, (hurry, self.failed))

        if self._maintaining is not None:
            self._maintaining.cancel()  # what a running merge wrote is an orphan
        drains = (listener.drain(limit_s) for listener in self.gateways.listeners.values())
        await within(asyncio.gather(*drains), LISTENER_DRAIN_SHARE)
        if not self.place.is_recovery:  # which reaches no node: the next owners go on with them
            await within(finish_decisions(self.storage.broker))
        await within(self.metadata_writer.finish())
        flushed = self.hand_over.skips_flush or await within(self.flusher.finish())
        await within(self._manifests.write())
        log.info("node.drained", extra={"flushed": flushed})

    async def close(self) -> None:
        """Close everything in order; what was acknowledged is durable already."""
        await self._stack.aclose()


async def _within(work: Awaitable[object], limit_s: float, ends: tuple[asyncio.Event, ...]) -> bool:
    """Run work until it is done, the limit is over, or one of `ends` is set; return if done."""
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
