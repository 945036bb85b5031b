"""The life cycle of clients, producers and consumers: `async with`, and a client's own parts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from trilogue.client.errors import ClientError

OTHER_LOOP: Final = (
    "this belongs to another event loop, where it was first used: make a client in each "
    "asyncio.run(), or use the synchronous client, which any thread may call"
)
PRUNE_AT: Final = 64
"""The number of producers and consumers after which a client first drops the closed ones."""


class Closable(Protocol):
    """A producer or a consumer."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    async def close(self) -> None:
        """Close it."""


Opened = TypeVar("Opened", bound=Closable)


def check_loop(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Return the running loop; ClientError where it is not `loop`, whose futures cannot wake it."""
    running = asyncio.get_running_loop()
    if loop is not None and loop is not running:
        raise ClientError(OTHER_LOOP)
    return running


class AsyncCloseable(ABC):
    """Is closed at the end of an `async with`, in the event loop where it was first used."""

    _bound_loop: asyncio.AbstractEventLoop | None = None

    def _check_loop(self) -> None:
        """Bind it to the running event loop; ClientError where it is bound to another."""
        self._bound_loop = check_loop(self._bound_loop)

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class ClientBase(AsyncCloseable):
    """A client, which closes its producers and consumers with itself.

    `closed_error` makes the error of calls after the end.
    """

    def __init__(self, closed_error: Callable[[str], ClientError]) -> None:
        self._closed_error = closed_error
        self._opened: list[Any] = []
        self._prune_at = PRUNE_AT
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def _track(self, opened: Opened) -> Opened:
        """Close this with the client."""
        if len(self._opened) >= self._prune_at:
            self._opened = [one for one in self._opened if not one.closed]
            self._prune_at = max(PRUNE_AT, 2 * len(self._opened))
        self._opened.append(opened)
        return opened

    def _check_open(self) -> None:
        """Raise ClosedError after the end, ClientError in another event loop."""
        if self._closed:
            raise self._closed_error("the client is closed")
        self._check_loop()

    async def close(self) -> None:
        """Close producers and consumers, then the connections; messages in flight are awaited."""
        if self._closed:
            return
        self._check_loop()
        self._closed = True
        opened, self._opened = self._opened, []
        try:
            await asyncio.gather(*(one.close() for one in opened), return_exceptions=True)
        finally:
            await self._disconnect()

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connections."""
