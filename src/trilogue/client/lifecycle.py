"""The life cycle of clients, producers and consumers: `async with`, and a client's own parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from trilogue.client.errors import ClientError

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


class AsyncCloseable:
    """Is closed at the end of an `async with`."""

    async def close(self) -> None:
        """Close it."""
        raise NotImplementedError

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
        if self._closed:
            raise self._closed_error("the client is closed")

    async def close(self) -> None:
        """Close producers and consumers, then the connections; messages in flight are awaited."""
        if self._closed:
            return
        self._closed = True
        opened, self._opened = self._opened, []
        try:
            await asyncio.gather(*(one.close() for one in opened), return_exceptions=True)
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        """Close the connections."""
        raise NotImplementedError
