"""Applies to the broker what other nodes have changed in meta.

Meta's state has moved already when a change arrives here. Changes of this node that are durable and
not applied yet come first: otherwise the deletion of a topic by another node could be applied
before its creation by this one. What is applied is the present row, so a row that moved twice is
applied once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from trilogue.broker.topics.ownership import Ownership
from trilogue.log.segments.segment_info import Swap
from trilogue.meta.change_log import last_version
from trilogue.meta.operations import TopicKey
from trilogue.meta.state import Write
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.followed_versions import BEAT_S, AppliedVersions
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.storage import Storage

SETTINGS_A_STEP = 100
CATCH_UP_MAX_S = 2.0


class MetadataFollower:
    """Topics first, then what refers to them; one batch of changes at a time."""

    def __init__(
        self,
        storage: Storage,
        writer: MetadataWriter,
        manifests: ManifestWriter,
        versions: AppliedVersions,
        on_owners: Callable[[Ownership], Awaitable[None]] | None = None,
    ) -> None:
        """`on_owners` is awaited when slots have other owners, after what came with that change."""
        self._on_owners = on_owners
        self._storage = storage
        self._versions = versions
        self._writer = writer
        self._manifests = manifests
        self._batches: asyncio.Queue[Sequence[Write]] = asyncio.Queue()
        self._is_applying = False
        storage.meta.follow(self._batches.put_nowait)
        versions.begin(storage.meta.state.version)

    async def catch_up(self) -> None:
        """Return when the changes that are durable now are applied, or the store is away."""
        meta = self._storage.meta
        if meta.unavailable_s:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_MAX_S):
                await meta.catch_up()
                await self._batches.join()

    async def run(self) -> None:
        """Apply changes for ever."""
        while True:
            writes = await self._batches.get()
            self._is_applying = True
            await self._writer.finish()
            await self._apply(writes)
            self._is_applying = False
            self._versions.publish(last_version(writes))
            self._batches.task_done()
            self._manifests.changed()

    async def publish(self) -> None:
        """Show again and again that this node is alive, and how far it is."""
        while True:
            is_behind = self._is_applying or not self._batches.empty()
            is_idle = not is_behind and self._writer.is_idle
            self._versions.publish(self._storage.meta.state.version if is_idle else 0)
            await asyncio.sleep(BEAT_S)

    async def _apply(self, writes: Sequence[Write]) -> None:
        broker = self._storage.broker
        ownership, changed = broker.cluster.ownership, {table for table, _, _ in writes}
        if changed & {"slots", "nodes"}:
            ownership.generation += 1
        topics: dict[TopicKey, None] = {key: None for table, key, _ in writes if table == "topics"}
        for key in topics:
            for _ in broker.cluster.follow(key):
                await asyncio.sleep(0)
        self._follow_segments(writes)
        settings = dict.fromkeys(key for table, key, _ in writes if table == "settings")
        for count, name in enumerate(settings, 1):
            broker.apply_setting(name, self._storage.meta.state.settings.get(name))
            if count % SETTINGS_A_STEP == 0:
                await asyncio.sleep(0)
        if self._on_owners is not None and "slots" in changed:
            await self._on_owners(ownership)

    def _follow_segments(self, writes: Sequence[Write]) -> None:
        """Apply what another node did to segments that this one reads, too."""
        engine, known = self._storage.log, self._storage.meta.state.segments
        for key in dict.fromkeys(key for table, key, _ in writes if table == "segments"):
            before, row = engine.segments.get(key), known.get(key)
            if before is None:
                continue
            if row is None:  # its messages are dead; the file is the other node's affair
                engine.forget_segment(key)
            elif row != before:
                engine.apply_swap(Swap(changed=(row,)))
