"""Ends transactions that take too long, and forgets transactional ids that are not used."""

from __future__ import annotations

import asyncio
import logging
import time

from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError

log = logging.getLogger(__name__)

CHECK_S = 1.0
FORGET_EVERY = 600  # checks
DECISIONS_LIMIT_S, DECISIONS_LOOK_S = 2.0, 0.01


class TransactionExpiry:
    """Checks every second."""

    def __init__(self, broker: Broker) -> None:
        self._transactions = broker.transactions
        self._batch_commits = broker.batch_commits

    async def run(self) -> None:
        """Check periodically, for ever."""
        checks = 0
        while True:
            await asyncio.sleep(CHECK_S)
            checks += 1
            try:
                for _ in self._transactions.abort_expired():
                    await asyncio.sleep(0)
                if checks % FORGET_EVERY == 0:
                    self._transactions.forget_expired()
                    self._batch_commits.forget_expired()
            except BrokerError as error:  # as on a full disk: the next check does the rest
                log.warning("transactions.expiry_failed", extra={"reason": str(error)})


async def finish_decisions(broker: Broker) -> None:
    """Let what is decided reach the other nodes, if they are there: their slots may move."""
    ends = time.monotonic() + DECISIONS_LIMIT_S
    while broker.transactions.table.is_ending() and time.monotonic() < ends:  # noqa: ASYNC110
        await asyncio.sleep(DECISIONS_LOOK_S)
