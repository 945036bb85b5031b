"""Opens the storage of a node: data directory, meta, broker and log.

    lock, format ──► meta (a new epoch: an earlier process is fenced)
                       └──► broker, with the snapshots of the last flush
                              └──► log: recovery replays later entries to the broker
                                     └──► the broker serves

All of it is synchronous; nothing is served before it returns. Closing has the opposite order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from trilogue.broker.broker import Broker
from trilogue.broker.broker_settings import BrokerSettings
from trilogue.broker.groups.classic.members import GroupSettings
from trilogue.broker.groups.consumer.group import ConsumerGroupSettings
from trilogue.broker.groups.share.group import ShareGroupSettings
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.settings.topic_table import FLUSH_INTERVAL
from trilogue.broker.topics.cluster import ClusterLimits
from trilogue.broker.topics.ownership import Ownership
from trilogue.gateway.kafka.groups.member_metadata import CLASSIC_ASSIGNMENTS, read_subscription
from trilogue.gateway.telemetry.request_latency import LatencyHistogram
from trilogue.log.clock import wall_clock_ms
from trilogue.log.directory import FIRST_NODE, DataDirectory
from trilogue.log.errors import AlreadyLocked, LogError
from trilogue.log.files import OsFileSystem, ScratchFileSystem
from trilogue.log.formats import check_formats
from trilogue.log.journal.commit import thread_committer
from trilogue.log.journal.journal import JournalLimits
from trilogue.log.log import Log, LogEnvironment, LogLimits
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.objects.obstore_store import Reach
from trilogue.log.ports import Background
from trilogue.log.segments.manifest import Manifest
from trilogue.meta.operations import Fence
from trilogue.meta.queued_meta import QueuedMeta
from trilogue.meta.sqlite import SqliteMeta
from trilogue.meta.state import MetaState
from trilogue.node.cluster.place import ClusterPlace
from trilogue.node.errors import StartError
from trilogue.node.settings.objects import reach_of
from trilogue.node.settings.table import Settings

if TYPE_CHECKING:
    from trilogue.broker.internal.records import InternalRecords
    from trilogue.node.cluster.shared_committer import SharedCommitter

log = logging.getLogger(__name__)

RESERVE_MARGIN = 4
START_ROOM = 16 << 20  # besides a copy of the newest journal file: meta, the next journal file
COMMIT_BOUNDS_S = (
    0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5,
)  # fmt: skip

OnFailed = Callable[[Exception], None]


class NodePlace(msgspec.Struct, frozen=True):
    """Which of the nodes of a data directory, or of a cluster, a process is."""

    node_id: int = FIRST_NODE
    is_shared: bool = False  # the directory, with other nodes, under one supervisor
    orphans_below: int | None = None  # segments of lower ids that meta does not know are orphans
    cluster: ClusterPlace | None = None

    @property
    def has_others(self) -> bool:
        """Whether other nodes change meta, too."""
        return self.is_shared or self.cluster is not None

    @property
    def is_recovery(self) -> bool:
        """Whether its directory ends with it, and what is in its journal is in PostgreSQL."""
        shared = None if self.cluster is None else self.cluster.shared
        return shared is not None and shared.is_recovery

    @property
    def is_first(self) -> bool:
        """Whether it does what only one node of a directory does."""
        return self.node_id == FIRST_NODE


ALONE = NodePlace()


class Storage(msgspec.Struct, frozen=True):
    """The open storage of a node."""

    fs: OsFileSystem
    directory: DataDirectory
    meta: QueuedMeta
    broker: Broker
    log: Log
    commit_seconds: LatencyHistogram
    background: Background
    stack: ExitStack
    place: NodePlace = ALONE
    reach: Reach | None = None  # how jobs reach object storage, if configured
    objects: ObjectCache | None = None  # this process's cache of it
    shared: SharedCommitter | None = None  # with `ack=shared`

    @property
    def fence(self) -> Fence:
        """The fence of this process's transactions in meta."""
        return Fence(self.meta.state.node_id, self.meta.state.node_epoch)

    def give_up_reserve(self) -> None:
        """Remove the reserve file: flushes and deletions need its space on a full disk."""
        give_up_reserve(self.fs, self.directory)

    def restore_reserve(self) -> None:
        """Create the reserve file again if four times its size is free."""
        size = self.log.limits.reserve_bytes
        if not size or self.fs.exists(self.directory.reserve):
            return
        if self.fs.free_bytes(self.directory.path) > RESERVE_MARGIN * size:
            self.background(lambda: self.directory.make_reserve(self.fs, size))

    def close(self) -> None:
        """Make everything durable, and unlock the directory."""
        self.stack.close()


@contextmanager
def start_errors(path: Path) -> Iterator[None]:
    """Raise StartError with the reason where a data directory cannot be opened."""
    try:
        yield
    except AlreadyLocked as error:
        raise StartError(f"{path} is in use by another process") from error
    except LogError as error:
        raise StartError(f"{path}: {error}") from error
    except OSError as error:
        where = error.filename or path
        raise StartError(f"the data directory: {error.strerror}: {where}") from error


def open_storage(
    settings: Settings,
    *,
    loop: asyncio.AbstractEventLoop,
    background: Executor,
    on_failed: OnFailed,
    now_ms: Callable[[], int] = wall_clock_ms,
    place: NodePlace = ALONE,
    free_bytes: Callable[[], int] | None = None,
) -> Storage:
    """Open or create the data directory and recover; StartError with the reason if that fails.

    `free_bytes` returns the free bytes that the log goes by, instead of those of the disk.
    """
    path = Path(settings.text("data"))
    with ExitStack() as stack:
        with start_errors(path):
            storage = _open(
                settings,
                path,
                stack=stack,
                loop=loop,
                background=background,
                on_failed=on_failed,
                now_ms=now_ms,
                place=place,
                free_bytes=free_bytes,
            )
        storage.stack.push(stack.pop_all())
        return storage


def _open(
    settings: Settings,
    path: Path,
    *,
    stack: ExitStack,
    loop: asyncio.AbstractEventLoop,
    background: Executor,
    on_failed: OnFailed,
    now_ms: Callable[[], int],
    place: NodePlace,
    free_bytes: Callable[[], int] | None,
) -> Storage:
    fs = ScratchFileSystem() if place.is_recovery else OsFileSystem()
    directory = _open_directory(fs, path, place, settings.number("journal.file-size"))
    stack.callback(directory.close)
    last = stack.enter_context(ExitStack())  # closed after meta: others may serve as this node then
    meta = _open_meta(fs, directory, place, on_failed)
    stack.callback(meta.close)
    shared = _open_shared(
        fs, directory, place.cluster, meta.state, loop=loop, on_failed=on_failed, last=last
    )
    broker = _broker(settings, meta, loop, now_ms)
    ownership = broker.cluster.ownership
    _take_place(ownership, place.cluster)
    broker.restore_snapshot(meta.snapshots())
    reach = _find_objects(settings, meta.state.cluster_id, place)
    objects = None if reach is None else reach.cache(settings.number("objects.cache-size"))
    commit_seconds = LatencyHistogram(COMMIT_BOUNDS_S)
    engine = Log.open(
        directory,
        owned_manifest(meta.manifest(), ownership),
        LogEnvironment(
            fs=fs,
            scheduler=loop,
            background=background.submit,
            committer=shared or thread_committer(loop),
            now_ms=now_ms,
            monotonic=time.monotonic,
            random_bytes=os.urandom,
            free_bytes=free_bytes,
            objects=objects,
            on_commit_seconds=commit_seconds.observe,
        ),
        node_id=meta.state.node_id,
        node_epoch=meta.state.node_epoch,
        on_entry=broker.restore_entry,
        on_fact=broker.apply_fact,
        on_foreign=broker.restore_foreign,
        limits=log_limits(settings),
        salvage_damage=settings.switch("salvage"),
        owner_epoch=ownership.partition_epoch,
    )
    stack.callback(engine.close)
    engine.foreign_start, engine.on_failed = partial(_start_offset, meta.state), on_failed
    broker.attach(engine, engine.journal)
    return Storage(
        fs,
        directory,
        meta,
        broker,
        engine,
        commit_seconds,
        background.submit,
        ExitStack(),
        place,
        reach,
        objects,
        shared,
    )


def _take_place(ownership: Ownership, cluster: ClusterPlace | None) -> None:
    """Note what a node of a cluster serves, and what of it others can read."""
    if cluster is None:
        return
    ownership.hold()
    ownership.has_own_files = True
    ownership.has_own_segments = cluster.shared is None
    ownership.is_kept_elsewhere = cluster.shared is not None


def _find_objects(settings: Settings, cluster_id: bytes, place: NodePlace) -> Reach | None:
    if not settings.text("objects.url"):
        return None
    return reach_of(settings, cluster_id, None if place.cluster is None else place.node_id)


def _open_shared(
    fs: OsFileSystem,
    directory: DataDirectory,
    cluster: ClusterPlace | None,
    state: MetaState,
    *,
    loop: asyncio.AbstractEventLoop,
    on_failed: OnFailed,
    last: ExitStack,
) -> SharedCommitter | None:
    """Start the committer of a node with `ack=shared`; without it None."""
    if cluster is None or cluster.shared is None:
        return None
    from trilogue.node.cluster.opening import open_shared_journal, restore_journal

    shared = open_shared_journal(cluster, state, loop, on_failed)
    last.callback(shared.end)
    restore_journal(fs, directory, cluster, state, shared.epoch)
    return shared


def _open_meta(
    fs: OsFileSystem, directory: DataDirectory, place: NodePlace, on_failed: OnFailed
) -> QueuedMeta:
    if place.cluster is not None:
        from trilogue.node.cluster.opening import open_cluster_meta

        return open_cluster_meta(fs, directory, place.node_id, place.cluster, on_failed)
    is_new = not (fs.listdir(directory.journal) or fs.listdir(directory.segments))
    return SqliteMeta.open(
        directory.meta,
        create=is_new and not place.is_shared,
        node_id=place.node_id,
        on_failed=on_failed,
        shared=place.is_shared,
    )


def _open_directory(
    fs: OsFileSystem, path: Path, place: NodePlace, journal_file_bytes: int
) -> DataDirectory:
    """Lock the directory, or a node's part of it, and check its formats."""
    if place.is_shared:
        directory = DataDirectory.open_shared(fs, path, place.node_id)
    else:
        directory = DataDirectory.open(fs, path)
    try:
        check_formats(fs, directory)
        if fs.free_bytes(path) < journal_file_bytes + START_ROOM:
            give_up_reserve(fs, directory)
    except BaseException:
        directory.close()
        raise
    return directory


def owned_manifest(manifest: Manifest, ownership: Ownership) -> Manifest:
    """Return the part of a manifest that a node serves."""
    if ownership.is_alone and not ownership.has_own_files:
        return manifest
    owned = {
        each: known for each, known in manifest.partitions.items() if ownership.owns_partition(each)
    }
    segments = tuple(filter(ownership.reads_segment, manifest.segments))
    return replace(manifest, partitions=owned, segments=segments)


def _start_offset(state: MetaState, partition_id: int) -> int | None:
    row = state.partitions.get(partition_id)
    return None if row is None else row.start_offset


def _broker(
    settings: Settings,
    meta: QueuedMeta,
    loop: asyncio.AbstractEventLoop,
    now_ms: Callable[[], int],
) -> Broker:
    return Broker(
        meta.state,
        allocate=meta.allocate,
        timers=loop,
        now_ms=now_ms,
        new_topic_id=new_topic_id,
        new_member_suffix=new_member_suffix,
        decode_subscription=read_subscription,
        assignment_codec=CLASSIC_ASSIGNMENTS,
        load_internal_records=_load_internal_records,
        settings=broker_settings(settings),
    )


def _load_internal_records() -> InternalRecords:
    from trilogue.gateway.kafka.groups.internal_records import KafkaInternalRecords

    return KafkaInternalRecords()


def give_up_reserve(fs: OsFileSystem, directory: DataDirectory) -> None:
    """Remove the reserve file, if it exists."""
    try:
        fs.unlink(directory.reserve)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("reserve.stuck", extra={"reason": str(error)})
        return
    log.warning("reserve.given_up")


def broker_settings(settings: Settings) -> BrokerSettings:
    """Return the broker's settings."""
    migration = settings.text("groups.consumer-migration")
    return BrokerSettings(
        quota_burst_s=settings.seconds("quotas.burst"),
        cluster=ClusterLimits(
            default_partitions=settings.number("topics.default-partitions"),
            topic=TopicSettings(
                retention_ms=settings.number("topics.retention"),
                message_size_max=settings.number("topics.max-entry"),
                acks_from_memory=settings.text("topics.flush") == FLUSH_INTERVAL,
            ),
        ),
        groups=GroupSettings(
            initial_delay_ms=settings.number("groups.initial-delay"),
            session_timeout_min_ms=settings.number("groups.session-timeout-min"),
            session_timeout_max_ms=settings.number("groups.session-timeout-max"),
            size_max=settings.number("groups.max-size"),
            offset_retention_ms=settings.number("groups.offset-retention"),
            offset_check_ms=settings.number("groups.offset-check"),
        ),
        consumer_groups=ConsumerGroupSettings(
            session_timeout_ms=settings.number("groups.consumer-session-timeout"),
            heartbeat_interval_ms=settings.number("groups.consumer-heartbeat"),
            size_max=settings.number("groups.consumer-max-size"),
            total_max=settings.number("groups.consumer-max-total"),
            upgrade=migration in {"bidirectional", "upgrade"},
            downgrade=migration in {"bidirectional", "downgrade"},
        ),
        share_groups=ShareGroupSettings(
            record_lock_ms=settings.number("groups.share-record-lock"),
            record_lock_min_ms=settings.number("groups.share-record-lock-min"),
        ),
    )


def log_limits(settings: Settings) -> LogLimits:
    """Return the log's limits."""
    return LogLimits(
        tail_bytes=settings.number("tail.limit"),
        tail_entries=settings.number("tail.entries"),
        reserve_bytes=settings.number("disk.reserve"),
        journal=JournalLimits(
            interval_s=settings.seconds("journal.interval"),
            file_bytes=settings.number("journal.file-size"),
            file_entries=settings.number("journal.file-entries"),
            file_age_ms=settings.number("journal.file-age"),
            min_free_bytes=settings.number("disk.min-free"),
        ),
    )


def new_topic_id() -> bytes:
    """Return a random UUID (version 4) whose base64 form does not begin with a dash.

    Command line tools take such an id for an option; Kafka avoids it too.
    """
    while True:
        drawn = bytearray(os.urandom(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        if drawn[0] >> 2 != 62:
            return bytes(drawn)


def new_member_suffix() -> str:
    """Return a random suffix that makes a group member's id unique and unguessable."""
    return os.urandom(16).hex()
