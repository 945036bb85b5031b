"""Removes expired positions of groups periodically; the broker decides which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError

log = logging.getLogger(__name__)


class OffsetExpiry:
    """Checks every `every_s`, the first time after that: after a restart members return first."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int], *, every_s: float) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._every_s = every_s

    async def run(self) -> None:
        """Check periodically, for ever."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.remove_expired()

    async def remove_expired(self) -> None:
        """Remove what is due now, in steps."""
        retention_ms = self._broker.groups.settings.offset_retention_ms
        removed = 0
        try:
            for count in self._broker.group_expiry.remove_expired(self._now_ms(), retention_ms):
                removed += count
                await asyncio.sleep(0)
        except BrokerError as error:  # as on a full disk: the next check removes the rest
            log.warning("groups.expiry_failed", extra={"reason": str(error)})
        if removed:
            log.info("groups.expired", extra={"positions": removed})
