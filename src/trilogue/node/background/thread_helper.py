"""Runs the jobs of a helper process in a thread of this process, where no client waits.

A process that only brings a journal into segments saves the start of others this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from trilogue.log.jobs import pace
from trilogue.node.background.helper import Helper, HelperDiedError

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class ThreadHelper(Helper):
    """A helper without a process: one job at a time."""

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a function in a thread; return its result or raise its exception."""
        async with self._turn:
            if self._closed:
                raise HelperDiedError("the helper is closed")
            pace.calm()
            result = await asyncio.to_thread(function, *arguments)
            self.jobs_done += 1
            return result

    def hurry(self) -> None:
        """Make the running job, if any, ignore its pace."""
        if self._turn.locked():
            pace.hurry()

    async def close(self) -> None:
        """Start no more jobs."""
        self._closed = True
