"""The TubeMQ gateway: the endpoints of the master and of the broker, and the state of both.

A node opens it as it opens the others (`kafka/connection.py`), with a listener for each endpoint:

    gateway = TubeGateway(settings=TubeSettings(), authentication=..., broker=..., log=..., ...)
    async with gateway:
        Listener(gateway.master_endpoint, ...), Listener(gateway.broker_endpoint, ...)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Self, Unpack

from trilogue.broker.access.authorizer import USER, Principal
from trilogue.gateway.dependencies import GatewayDependencies
from trilogue.gateway.tubemq import methods
from trilogue.gateway.tubemq.auth.authentication import Authentication
from trilogue.gateway.tubemq.connection import TubeEndpoint
from trilogue.gateway.tubemq.gateway_context import TubeGatewayContext
from trilogue.gateway.tubemq.settings import TubeSettings

log = logging.getLogger(__name__)

TICK_S = 1.0


class TubeGateway(TubeGatewayContext):
    """Serves TubeMQ clients, as a master and as a broker."""

    def __init__(
        self,
        *,
        settings: TubeSettings,
        authentication: Authentication,
        **dependencies: Unpack[GatewayDependencies],
    ) -> None:
        super().__init__(settings=settings, authentication=authentication, **dependencies)
        ownership = self.broker.cluster.ownership
        self.master_endpoint = TubeEndpoint(
            self,
            "master",
            methods.MASTER,
            settings.request_bytes_max,
            is_standby=lambda: settings.standby or not ownership.is_master,
        )
        self.broker_endpoint = TubeEndpoint(
            self, "broker", methods.BROKER, settings.frame_bytes_max
        )

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        registrations = self.broker.registrations
        registrations.session_ms = int(self.settings.reader_timeout_s * 1_000)
        registrations.on_gone.append(self.held_gets.registration_removed)
        registrations.on_moved.append(self.held_gets.position_moved)
        self.broker.rules.listeners.append(self.forget_targets)
        self.broker.users.listeners.append(self._end_user)
        self.broker.cluster.release_listeners.append(self._partitions_moved)
        self.master.open()
        self.spawn(self._tick())
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.broker.users.listeners.remove(self._end_user)
        self.broker.rules.listeners.remove(self.forget_targets)
        self.master.close()
        self.broker.cluster.release_listeners.remove(self._partitions_moved)
        registrations = self.broker.registrations
        registrations.on_gone.remove(self.held_gets.registration_removed)
        registrations.on_moved.remove(self.held_gets.position_moved)
        await super().__aexit__(*problem)

    def _partitions_moved(self, _partition_ids: Sequence[int]) -> None:
        """Forget what the active master knew, if another node has become it."""
        if not self.broker.cluster.ownership.is_master:
            self.master.balances.clear()

    def _end_user(self, name: str) -> None:
        """Remove the clients of a user that was changed or deleted, so that others may go on."""
        principal = Principal(USER, name)
        self.producers.remove_producers(principal)
        self.master.balances.remove_members(principal)
        self.broker.registrations.remove_readers(principal)

    async def _tick(self) -> None:
        """Remove clients and registrations whose sessions have timed out, every second."""
        while True:
            await asyncio.sleep(TICK_S)
            self.producers.expire(self.loop.time())
            self.master.tick()
            for registration in self.broker.registrations.expire(self.monotonic_ms):
                log.info(
                    "reader.expired",
                    extra={"group": registration.group, "client": registration.client_id},
                )
