"""Has parts of a transaction confirmed by its coordinator on another node.

A coordinator that is down is tried again for a while: the node is started again meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trilogue.broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    NotCoordinator,
    NotReady,
)
from trilogue.broker.node_requests import JoinTransaction
from trilogue.broker.promise import Promise
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.steps import wait_until_settled

LIMIT_S: Final = 10.0
PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 0.5
UNREACHED: Final = (NotCoordinator, NotReady)
RETRIABLE: Final = (ConcurrentTransactions, *UNREACHED)


async def join_transaction(
    gateway: ProtocolGateway, request: JoinTransaction
) -> BrokerError | None:
    """Return None when the part is confirmed, or the refusal; TimeoutError as below."""
    participant = gateway.broker.participant
    return await send_until_answered(lambda: participant.join(request))


async def send_until_answered(
    send: Callable[[], Promise[None]],
    retriable: tuple[type[BrokerError], ...] = RETRIABLE,
) -> BrokerError | None:
    """Send a request to another node; return None when it is done, or the refusal.

    TimeoutError if there was no answer until the limit, or none but to try again.
    """
    pause_s = PAUSE_S
    async with asyncio.timeout(LIMIT_S):
        while True:
            promise = send()
            await wait_until_settled(promise)
            error = promise.error
            if error is None:
                return None
            if not isinstance(error, retriable):
                return error if isinstance(error, BrokerError) else NotReady(str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
