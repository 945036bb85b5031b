"""Writes the broker's changes of metadata: first durable in meta, then applied to the broker.

A write that has begun is finished even if the caller is cancelled: meta may hold the change
already, and then the broker must apply it too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from trilogue.broker.errors import MetadataUnavailable
from trilogue.broker.metadata_change import MetadataChange
from trilogue.gateway.steps import run_steps
from trilogue.log.errors import DiskFull
from trilogue.meta.errors import Unavailable
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.storage import Storage

if TYPE_CHECKING:
    from trilogue.node.followed_versions import AppliedVersions

T = TypeVar("T")

AWAY_MAX_S = 5.0  # a store that has been away for longer is not waited for
ANSWER_MAX_S = 20.0


class MetadataWriter:
    """Writes one `MetadataChange` at a time per caller; several may be under way."""

    def __init__(
        self,
        storage: Storage,
        manifests: ManifestWriter,
        others: AppliedVersions | None = None,
    ) -> None:
        self._storage = storage
        self._others = others  # where several nodes share meta
        self._manifests = manifests
        self._tasks: set[asyncio.Task[object]] = set()

    async def write(self, change: MetadataChange[T]) -> T:
        """Return the result once it is durable and applied, or raise the broker's error.

        Of several nodes, the others have applied it, too, unless they do not answer.
        """
        if self._storage.meta.unavailable_s > AWAY_MAX_S:
            raise change.abandon(Unavailable("metadata cannot be written now: retry later"))
        task = asyncio.create_task(self._write(change))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                result, version = await asyncio.shield(task)
        except TimeoutError as error:
            if task.done():
                raise
            # It goes on: what it changes shows as soon as it is durable.
            raise MetadataUnavailable("metadata is being written: retry later") from error
        if self._others is not None:
            await self._others.wait_for_others(version)
        return result

    @property
    def is_idle(self) -> bool:
        """Whether no write is under way."""
        return not self._tasks

    async def finish(self) -> None:
        """Return when no write is under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, change: MetadataChange[T]) -> tuple[T, int]:
        meta, fence = self._storage.meta, self._storage.fence
        try:
            if change.partition_ids:
                await meta.reserve("partition", change.partition_ids)
            ops = change.ops()
            try:
                made = await meta.write(ops, change.preconditions, fence)
            except DiskFull:  # a deletion frees space, but needs some first
                self._storage.give_up_reserve()
                made = await meta.write(ops, change.preconditions, fence)
        except BaseException as error:
            raise change.abandon(error) from error
        result = await run_steps(change.steps())
        self._manifests.changed()
        return result, made.version

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            with contextlib.suppress(
                BaseException
            ):  # the caller has received the error, or was cancelled
                task.result()
