"""How far each of several nodes has applied meta's changes: a small file that all of them map.

The node that changes something answers its client when the others have applied it, too: a client
that creates a topic at one node may produce to another at once, and an ACL that was removed counts
at every node. A node that has shown no sign of life for a moment is not waited for.

A row for each node: u64 version of meta, f64 monotonic time of the machine. Nothing here has to
survive: at a start the rows are of nodes that show no sign.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

ROW: Final = Struct("=Qd")
ROWS: Final = 256  # more than nodes of one machine
ALIVE_S: Final = 5.0  # a busy machine keeps a node from its processor for seconds
BEAT_S: Final = 0.25
WAIT_MAX_S: Final = 5.0
LOOK_S: Final = 0.002


class AppliedVersions(ABC):
    """How far other nodes are; a subclass has the place where they report it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic

    @abstractmethod
    def publish(self, version: int) -> None:
        """Record that this node has applied all changes up to a version."""

    @abstractmethod
    def begin(self, version: int) -> None:
        """Record the version with which this node starts."""

    @abstractmethod
    def all_have(self, version: int) -> bool:
        """Whether every other node that is alive has applied a version."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the place."""

    async def wait_for_others(self, version: int) -> None:
        """Return when the others have applied a version, or after `WAIT_MAX_S` without them."""
        ends = self._monotonic() + WAIT_MAX_S
        while not self.all_have(version) and self._monotonic() < ends:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


class FollowedVersions(AppliedVersions):
    """The rows of all nodes of a machine, and the one of this node."""

    def __init__(
        self, path: Path, node_id: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(monotonic)
        self._node_id = node_id
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, ROWS * ROW.size)
            self._rows = mmap.mmap(fd, ROWS * ROW.size)
        finally:
            os.close(fd)

    def publish(self, version: int) -> None:
        """Record that this node has applied all changes up to a version."""
        known, _ = ROW.unpack_from(self._rows, self._node_id * ROW.size)
        row = (max(known, version), self._monotonic())
        ROW.pack_into(self._rows, self._node_id * ROW.size, *row)

    def begin(self, version: int) -> None:
        """Record the version with which this node starts."""
        ROW.pack_into(self._rows, self._node_id * ROW.size, version, self._monotonic())

    def all_have(self, version: int) -> bool:
        """Whether every other node that is alive has applied a version."""
        oldest = self._monotonic() - ALIVE_S
        rows = enumerate(ROW.iter_unpack(self._rows))
        return all(
            seen_s < oldest or applied >= version
            for node_id, (applied, seen_s) in rows
            if node_id != self._node_id
        )

    def close(self) -> None:
        """Unmap the file."""
        self._rows.close()
