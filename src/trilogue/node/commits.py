"""Carries out what the broker decided about slow facts: to meta, and then it is true.

Once begun a decision is carried to its end, also when whoever asked has gone away: meta may have
taken it, and then it must be true here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

from trilogue.broker.commit import Commit
from trilogue.gateway.turns import in_turns
from trilogue.log.errors import DiskFull
from trilogue.node.manifests import Manifests
from trilogue.node.storage import Storage

T = TypeVar("T")


class Commits:
    """What a door calls with a broker's `Commit`; raises the broker's error when it cannot be."""

    def __init__(self, storage: Storage, manifests: Manifests) -> None:
        self._storage = storage
        self._manifests = manifests
        self._tasks: set[asyncio.Task[object]] = set()

    async def carry_out(self, commit: Commit[T]) -> T:
        """Return when it is durable and true."""
        task = asyncio.create_task(self._carry_out(commit))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Return when nothing is under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry_out(self, commit: Commit[T]) -> T:
        meta, fence = self._storage.meta, self._storage.fence
        try:
            if commit.partition_ids:
                await meta.reserve("partition", commit.partition_ids)
            ops = commit.ops()
            try:
                await meta.commit(ops, commit.preconditions, fence)
            except DiskFull:  # a deletion makes room, but needs some first
                self._storage.give_up_reserve()
                await meta.commit(ops, commit.preconditions, fence)
        except BaseException as error:
            raise commit.abandon(error) from error
        result = await in_turns(commit.steps())
        self._manifests.changed()
        return result

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            with contextlib.suppress(BaseException):  # whoever asked was told, or has gone away
                task.result()
