"""Removes the files of segments that meta has removed, after a grace period.

The grace period is for readers without a broker, which planned from an older manifest. Files that
meta does not know at the start (of a flush or merge that died) are removed after the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec

from trilogue.log.files import FileSystem
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

SEGMENT_SUFFIX = ".segment"
MANIFEST_LATE_S = 30.0  # a manifest that is later than this is not waited for
EVERYTHING = 1 << 62


class _Leaving(msgspec.Struct, frozen=True):
    due: float
    name: str
    generation: int  # the first generation of meta without it
    segment: SegmentInfo | None = None  # None: an orphan


async def no_store(segment: SegmentInfo) -> None:
    """Do nothing: no object store is configured."""
    raise AssertionError(f"no store for {segment.name} in {segment.store}")


async def unlink(fs: FileSystem, path: Path) -> None:
    """Remove a file in a thread: ext4 takes a fifth of a second for a GiB."""
    await asyncio.get_running_loop().run_in_executor(None, fs.unlink, path)


class RetiredFiles:
    """The files to remove, and when; `monotonic` is the clock of the grace period."""

    def __init__(self, storage: Storage, *, monotonic: Callable[[], float], grace_s: float) -> None:
        self.removed_files = 0
        self.grace_s = grace_s
        self.published: Callable[[], int] = lambda: EVERYTHING  # set by the node
        self.remove_object: Callable[[SegmentInfo], Awaitable[None]] = no_store  # set by its owner
        self._storage = storage
        self._monotonic = monotonic
        self._leaving: deque[_Leaving] = deque()
        self._find_orphans()

    def __len__(self) -> int:
        """Return the number of waiting files."""
        return len(self._leaving)

    def leave(self, segment: SegmentInfo) -> None:
        """Start the grace period of a segment that meta and the log have removed."""
        due = self._monotonic() + self.grace_s
        generation = self._storage.meta.state.version
        self._leaving.append(_Leaving(due, segment.name, generation, segment))
        log.info("segment.retired", extra={"segment": segment.segment_id})

    def discard(self, names: Iterable[str]) -> None:
        """Remove the output of a job that meta never recorded: it must not fill the disk.

        An object in the store is left as an orphan, which ObjectMover finds.
        """
        for name in names:
            with contextlib.suppress(OSError):
                self._storage.fs.unlink(self._path(name))

    async def remove_due(self) -> None:
        """Remove files whose grace period is over; one that cannot be removed becomes an orphan."""
        while self._leaving and self._is_due(self._leaving[0]):
            leaving = self._leaving.popleft()
            segment = leaving.segment
            if segment is None and leaving.name in self._known():
                continue  # a copied directory may have ids to come
            try:
                if segment is not None and segment.store:
                    await self.remove_object(segment)
                else:
                    await unlink(self._storage.fs, self._path(leaving.name))
            except FileNotFoundError:
                continue
            except OSError as error:
                extra = {"file": leaving.name, "reason": str(error)}
                log.warning("segment.not_removed", extra=extra)
                continue
            finally:
                if segment is not None:  # a late reader may have opened it again
                    self._storage.log.readers.forget(segment.segment_id)
            self.removed_files += 1
            log.info("segment.removed", extra={"file": leaving.name})

    def _is_due(self, leaving: _Leaving) -> bool:
        """Return whether the grace period is over and the published manifest is without the file.

        On a full disk no new manifest can be written, and removals are what frees space: so the
        wait for a manifest is limited.
        """
        now = self._monotonic()
        if now < leaving.due:
            return False
        return leaving.generation <= self.published() or now >= leaving.due + MANIFEST_LATE_S

    def _find_orphans(self) -> None:
        """List files that meta does not know; called before the first flush writes new ones."""
        known = self._known()
        due = self._monotonic() + self.grace_s
        for name in self._storage.fs.listdir(self._storage.directory.segments):
            if name.endswith(SEGMENT_SUFFIX) and name not in known and self._is_ours(name):
                log.info("segment.orphan", extra={"file": name})
                self._leaving.append(_Leaving(due, name, 0))

    def _is_ours(self, name: str) -> bool:
        """Leave out what another node may be writing now."""
        below, number = self._storage.place.orphans_below, name.removesuffix(SEGMENT_SUFFIX)
        return below is None or (number.isdigit() and int(number) < below)

    def _known(self) -> set[str]:
        return {segment.name for segment in self._storage.meta.state.segments.values()}

    def _path(self, name: str) -> Path:
        return self._storage.directory.segments / name
