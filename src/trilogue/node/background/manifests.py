"""Writes the manifest of the segments after changes of meta, for readers without a broker.

At most once a second, in a thread; of several nodes the owner of slot 0 does it. A failure is
logged, and the next change writes again: meta is authoritative, and each start writes the manifest.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from pathlib import Path

from trilogue.log.files import FileSystem
from trilogue.log.segments.manifest import write_manifest
from trilogue.meta.state import MetaState
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

PAUSE_S = 1.0


class ManifestWriter:
    """Writes the manifest whenever meta has changed."""

    def __init__(self, storage: Storage, executor: Executor) -> None:
        self.generation = -1  # of the manifest that is there, as far as this process wrote it
        self.is_publisher = True  # one of several nodes writes it
        self._storage = storage
        self._executor = executor
        self._dirty = asyncio.Event()
        self._dirty.set()
        self._writing = asyncio.Lock()

    def changed(self) -> None:
        """Mark the manifest as outdated."""
        self._dirty.set()

    async def run(self) -> None:
        """Write after each change, for ever."""
        while self.is_publisher:
            await self._dirty.wait()
            await self.write()
            await asyncio.sleep(PAUSE_S)

    async def write(self) -> None:
        """Write it now if it is outdated."""
        async with self._writing:
            if not self._dirty.is_set() or not self.is_publisher:
                return
            self._dirty.clear()
            storage = self._storage
            state = storage.meta.state.copy()  # slow with many partitions: in the thread
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(
                    self._executor,
                    _write,
                    storage.fs,
                    storage.directory.segments,
                    state,
                )
            except OSError as error:
                self._dirty.set()
                log.warning("manifest.failed", extra={"reason": str(error)})
            else:
                self.generation = state.version


def _write(files: FileSystem, directory: Path, state: MetaState) -> None:
    write_manifest(files, directory, state.manifest())
