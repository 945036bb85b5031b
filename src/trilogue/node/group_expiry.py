"""Removes positions of groups whose time is over, every now and then; the broker says which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError

log = logging.getLogger(__name__)


class GroupExpiry:
    """Looks `every_s`, and not before: members of before a restart come back first."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int], *, every_s: float) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._every_s = every_s

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Remove what is due now; between steps others have a turn."""
        retention_ms = self._broker.groups.settings.offset_retention_ms
        removed = 0
        try:
            for count in self._broker.group_expiry.look(self._now_ms(), retention_ms):
                removed += count
                await asyncio.sleep(0)
        except BrokerError as error:  # a disk that is full, say: the next look finds the rest
            log.warning("groups.expiry_failed", extra={"reason": str(error)})
        if removed:
            log.info("groups.expired", extra={"positions": removed})
