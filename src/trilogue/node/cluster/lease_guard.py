"""Keeps a node whose lease ran out from answering clients.

Such a node may have been replaced: what it knows of latest offsets, positions and members may be
old. (It can acknowledge nothing: that is decided in PostgreSQL.) Its listeners close their
connections, and new ones, until the lease is renewed; if the node was replaced, its process ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

log = logging.getLogger(__name__)

LOOK_S: Final = 0.05  # how often the lease is looked at once it is over


class Lease(Protocol):
    """The lease of this node."""

    lease_ends_s: float  # by the monotonic clock


class SuspendableListener(Protocol):
    """A listener that can be suspended."""

    def suspend(self) -> None:
        """Close all connections, and new ones as they come."""

    def resume(self) -> None:
        """Serve connections again."""


class LeaseGuard:
    """Suspends the listeners of a node while its lease is over."""

    def __init__(
        self,
        lease: Lease,
        listeners: Mapping[str, SuspendableListener],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lapses = 0
        self._lease = lease
        self._listeners = listeners
        self._monotonic = monotonic
        self._is_over = False

    async def run(self) -> None:
        """Look at the lease when it would end, for ever."""
        while True:
            self.look()
            left_s = self._lease.lease_ends_s - self._monotonic()
            await asyncio.sleep(max(LOOK_S, left_s))

    def look(self) -> None:
        """Suspend or resume the listeners, if the lease is over or valid again."""
        is_over = self._monotonic() >= self._lease.lease_ends_s
        if is_over == self._is_over:
            return
        self._is_over = is_over
        self.lapses += is_over
        log.warning("lease.over" if is_over else "lease.renewed")
        for listener in self._listeners.values():
            if is_over:
                listener.suspend()
            else:
                listener.resume()
