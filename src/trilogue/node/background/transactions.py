"""Ends transactions that take too long, and forgets transactional ids that nobody uses."""

from __future__ import annotations

import asyncio
import logging

from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError

log = logging.getLogger(__name__)

CHECK_S = 1.0
FORGET_EVERY = 600  # checks


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
                self._transactions.abort_expired()
                if checks % FORGET_EVERY == 0:
                    self._transactions.forget_expired()
                    self._batch_commits.forget_expired()
            except BrokerError as error:  # as on a full disk: the next check does the rest
                log.warning("transactions.expiry_failed", extra={"reason": str(error)})
