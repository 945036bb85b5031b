"""A client that makes things for the application, and closes with itself what is still open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from trilogue.client.closing import Closing
from trilogue.client.errors import ClientError

LOOK_THROUGH: Final = 64


class Closable(Protocol):
    """A producer, a consumer."""

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""

    async def close(self) -> None:
        """Close it."""


Made = TypeVar("Made", bound=Closable)


class Making(Closing):
    """What clients have in common; `closed_error` makes the error of whoever comes too late."""

    def __init__(self, closed_error: Callable[[str], ClientError]) -> None:
        self._closed_error = closed_error
        self._made: list[Any] = []
        self._look_through = LOOK_THROUGH
        self._closed = False

    def _remember(self, made: Made) -> Made:
        """To be closed with the client; what was closed before is forgotten now and then."""
        if len(self._made) >= self._look_through:
            self._made = [one for one in self._made if not one.closed]
            self._look_through = max(LOOK_THROUGH, 2 * len(self._made))
        self._made.append(made)
        return made

    def _check(self) -> None:
        if self._closed:
            raise self._closed_error("the client is closed")

    async def close(self) -> None:
        """Close what was made, then the connections; messages under way are awaited."""
        if self._closed:
            return
        self._closed = True
        made, self._made = self._made, []
        try:
            await asyncio.gather(*(one.close() for one in made), return_exceptions=True)
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        """Close the connections."""
        raise NotImplementedError
