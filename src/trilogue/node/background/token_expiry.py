"""Removes expired and revoked delegation tokens periodically; the broker decides which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Principal, Resource, ResourceKind
from trilogue.broker.access.delegation_tokens import DelegationTokens
from trilogue.broker.errors import BrokerError
from trilogue.broker.metadata_change import MetadataChange

log = logging.getLogger(__name__)

NODE = Principal("Node", "expiry")  # in the audit log


class DelegationTokenExpiry:
    """Checks every `every_s`, the first time at the start."""

    def __init__(
        self,
        tokens: DelegationTokens,
        write_metadata: Callable[[MetadataChange[Any]], Awaitable[object]],
        audit: AuditLog,
        now_ms: Callable[[], int],
        *,
        every_s: float,
    ) -> None:
        self._tokens = tokens
        self._write_metadata = write_metadata
        self._audit = audit
        self._now_ms = now_ms
        self._every_s = every_s

    async def run(self) -> None:
        """Check periodically, for ever."""
        while True:
            await self.remove_expired()
            await asyncio.sleep(self._every_s)

    async def remove_expired(self) -> None:
        """Remove what is due now, in several changes if there are many."""
        while due := self._tokens.find_removable(self._now_ms()):
            try:
                await self._write_metadata(self._tokens.plan_remove(due))
            except BrokerError as error:  # as on a full disk: the next check removes the rest
                log.warning("delegation_tokens.expiry_failed", extra={"reason": str(error)})
                return
            for token in due:
                resource = Resource(ResourceKind.DELEGATION_TOKEN, token.token_id)
                self._audit.done(
                    NODE,
                    "",
                    "",
                    "remove expired delegation token",
                    resource,
                    owner=str(token.owner),
                )
            log.info("delegation_tokens.expired", extra={"tokens": len(due)})
