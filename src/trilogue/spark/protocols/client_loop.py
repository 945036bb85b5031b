"""Clients of other protocols for Spark's threads: one per process and cluster, as `Link` is.

Each runs in a thread of its own. Spark keeps its Python workers for the next task, and a client
whose loop stands still meanwhile answers no keep-alive: its broker closes the connection.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from trilogue.client.errors import ClientError
from trilogue.client.threads import LoopThread
from trilogue.spark.protocols.service_url import ServiceUrl

Client = TypeVar("Client")
T = TypeVar("T")


class ClientLoop(Generic[Client]):
    """A client, and the thread that runs it; it outlives a task."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._thread = LoopThread("trilogue-spark", ClientError)
        self.client = self.run(_call(make))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return self._thread.run(work)


async def _call(make: Callable[[], T]) -> T:
    return make()


_loops: dict[tuple[int, ServiceUrl], ClientLoop[Any]] = {}


def client_loop(url: ServiceUrl, make: Callable[[], Client]) -> ClientLoop[Client]:
    """Return this process's client of a cluster. A forked worker must not use its parent's."""
    key = (os.getpid(), url)
    if key not in _loops:
        _loops[key] = ClientLoop(make)
    return _loops[key]
