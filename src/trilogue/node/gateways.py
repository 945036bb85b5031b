"""The gateways of a node and their listeners: Kafka's, Pulsar's, TubeMQ's, and HTTP's.

    gateways = Gateways(settings, storage, memory, stack, ...)
    await gateways.open(plan_listeners(settings))        # first the gateway, then its listeners

A gateway is there if one of its protocol's listeners is configured. Listeners with TLS share one
certificate. All close with `stack`, in the opposite order: listeners before their gateway.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, TypeAlias

from trilogue.gateway.dependencies import GatewayDependencies, ProtocolGateway
from trilogue.gateway.kafka.apis import PUBLIC
from trilogue.gateway.kafka.connection import KafkaGateway
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.listener import ConnectionFactory, Listener
from trilogue.gateway.listener_security import ListenerFactory, ListenerSecurity
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.stream import Limits
from trilogue.gateway.tubemq.gateway import TubeGateway
from trilogue.node.access import cluster_principals, make_tls, sasl_mechanisms
from trilogue.node.addresses import Address, choose_advertised
from trilogue.node.listeners import ListenerPlan, bind_listener, has_sasl, has_tls
from trilogue.node.settings.gateway_settings import pulsar_settings, tube_settings
from trilogue.node.settings.kafka_values import set_addresses, set_node, set_node_values
from trilogue.node.settings.table import (
    BY_KEY,
    HTTP_LISTENERS,
    INTERNAL_LISTENER,
    KAFKA_LISTENERS,
    PULSAR_LISTENERS,
    TUBEMQ_LISTENERS,
    Settings,
)
from trilogue.node.storage import Storage

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trilogue.gateway.http.listener import HttpListener
    from trilogue.gateway.tls import TlsContexts
    from trilogue.gateway.tubemq.auth.authentication import Authentication

WEBSOCKETS_MAX = 5_000  # each has three descriptors
LOAD_AFTER_S = 3.0  # after the start
END = object()
HTTP_CONNECTIONS_MAX = 1_000  # below the limit of descriptors, which clients need

Plans: TypeAlias = Mapping[str, ListenerPlan]  # by name


class Gateways:
    """The gateways of a node, and their listeners by name."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        memory: ConnectionMemory,
        stack: AsyncExitStack,
        *,
        dependencies: Callable[[Callable[[], tuple[str, int]]], GatewayDependencies],
        make_authentication: Callable[[], Awaitable[Authentication]],
        load_http_app: Callable[[ProtocolGateway], Awaitable[Callable[[], ASGIApp]]],
    ) -> None:
        self.settings = settings
        self.storage = storage
        self.memory = memory
        self.kafka: KafkaGateway | None = None
        self.pulsar: PulsarGateway | None = None
        self.tubemq: TubeGateway | None = None
        self.http: HttpListener | None = None
        self.listeners: dict[str, Listener] = {}  # without those of HTTP
        self.addresses: dict[str, str] = {}  # that are bound
        self.advertised: dict[str, Address] = {}  # that clients are given
        self.tls: TlsContexts | None = None
        self._dependencies = dependencies
        self._make_authentication = make_authentication
        self._load_http_app = load_http_app
        self._stack = stack

    async def open(self, plans: Plans) -> None:
        """Open the gateways that have listeners; StartError."""
        if names := [name for name in KAFKA_LISTENERS if name in plans]:
            await self._open_kafka([plans[name] for name in names])
        if names := [name for name in PULSAR_LISTENERS if name in plans]:
            await self._open_pulsar([plans[name] for name in names])
        if plans.keys() & set(TUBEMQ_LISTENERS):
            await self._open_tubemq(plans)
        if names := [name for name in HTTP_LISTENERS if name in plans]:
            await self._open_http([plans[name] for name in names])

    def suspend(self) -> None:
        """Close all connections of the protocols' clients at once, without answers."""
        for listener in self.listeners.values():
            listener.suspend()

    async def load_requests(self) -> None:
        """Load what Kafka's requests need and no client has used yet, in a thread.

        The loop would stand still at the first use of each. Not at once: that would make each start
        slower, and a client that comes first loads what it uses.
        """
        if self.kafka is None:
            return
        await asyncio.sleep(LOAD_AFTER_S)
        threads = ThreadPoolExecutor(1, "loading")
        loop, steps = asyncio.get_running_loop(), PUBLIC.load_all()
        try:
            with suppress(RuntimeError):  # the interpreter ends: no thread begins anything
                while await loop.run_in_executor(threads, next, steps, END) is not END:
                    pass
        finally:
            threads.shutdown(wait=False)

    async def _open_kafka(self, plans: list[ListenerPlan]) -> None:
        advertised: list[Address] = []
        settings = KafkaSettings(
            auto_create_topics=self.settings.switch("topics.auto-create"),
            accept_replication=self.settings.switch("kafka.accept-replication"),
            fetch_sessions_max=self.settings.number("kafka.fetch-sessions"),
            fetch_sessions_bytes_max=self.settings.number("kafka.fetch-sessions-memory"),
            sasl_mechanisms=sasl_mechanisms(self.settings),
            sasl_session_max_ms=self.settings.number("kafka.sasl-session"),
            cluster_principals=cluster_principals(self.settings),
        )
        self.kafka = KafkaGateway(settings=settings, **self._dependencies_at(advertised))
        await self._stack.enter_async_context(self.kafka)
        await self._open_secured(
            self.kafka, plans, advertised, self.settings.number("frames.limit")
        )
        values, first = self.storage.broker.values, plans[0].name
        set_node_values(values, self.settings, settings.fetch_bytes_max)
        set_addresses(values, self.addresses[first], lambda: advertised[0])
        set_node(values, self.storage.meta.state, self.addresses)

    def _dependencies_at(self, advertised: list[Address]) -> GatewayDependencies:
        """Return what a gateway gets whose first listener's address will be in `advertised`."""
        return self._dependencies(lambda: (advertised[0].host, advertised[0].port))

    async def _open_secured(
        self,
        gateway: KafkaGateway | PulsarGateway,
        plans: list[ListenerPlan],
        advertised: list[Address],
        frame_bytes: int,
    ) -> None:
        """Open the listeners of a gateway, in clear and with TLS, with and without a login."""
        gateway.is_tls_only = all(plan.name.endswith("-ssl") for plan in plans)
        for number, plan in enumerate(plans):

            def address(number: int = number) -> tuple[str, int]:
                return advertised[number].host, advertised[number].port

            listener = ListenerSecurity(
                plan.name,
                address,
                tls=has_tls(self.settings, plan.name),
                sasl=has_sasl(self.settings, plan.name),
                is_internal=plan.name == INTERNAL_LISTENER,
            )
            if listener.tls and not listener.is_internal:
                gateway.tls_advertised = address
            factory = ListenerFactory(gateway, listener)
            tls = self._tls_contexts(listener) if listener.tls else None
            advertised.append(await self._listen(plan, factory, frame_bytes, tls))

    async def _open_pulsar(self, plans: list[ListenerPlan]) -> None:
        advertised: list[Address] = []
        self.pulsar = PulsarGateway(
            settings=pulsar_settings(self.settings), **self._dependencies_at(advertised)
        )
        await self._stack.enter_async_context(self.pulsar)
        await self._open_secured(self.pulsar, plans, advertised, self.pulsar.frame_bytes_max)

    async def _open_tubemq(self, plans: Plans) -> None:
        """Open the broker's listener first: the master sends its address to clients."""
        advertised: list[Address] = []
        self.tubemq = gateway = TubeGateway(
            settings=tube_settings(self.settings),
            authentication=await self._make_authentication(),
            **self._dependencies_at(advertised),
        )
        await self._stack.enter_async_context(gateway)
        for side in (gateway.broker_endpoint, gateway.master_endpoint):
            for name in (side.name, f"{side.name}-ssl"):
                if name not in plans:
                    continue
                tls = name.endswith("-ssl")
                factory = ListenerFactory(side, ListenerSecurity(name, gateway.advertised, tls=tls))
                contexts = self._tls_contexts() if tls else None
                address = await self._listen(plans[name], factory, side.frame_bytes_max, contexts)
                if side is gateway.broker_endpoint:
                    advertised.append(address)
                    if tls:
                        gateway.tls_advertised = lambda host=address.host, port=address.port: (
                            host,
                            port,
                        )
        if not advertised:  # a standby has no broker to advertise
            advertised += [plans[name].listens for name in TUBEMQ_LISTENERS if name in plans]

    def _connection_wait_s(self, address: str) -> float:
        """Return by how many s a connection of an address comes too early for its quota."""
        return self.storage.broker.quotas.connection_wait_s(address, time.monotonic())

    async def _listen(
        self,
        plan: ListenerPlan,
        gateway: ConnectionFactory,
        frame_bytes: int,
        tls: TlsContexts | None,
    ) -> Address:
        """Open a listener; return the address that clients are given for it."""
        settings = self.settings
        limits = Limits(
            frame_bytes=frame_bytes,
            connections=settings.number("connections.limit"),
            connections_per_address=settings.number("connections.per-address"),
        )
        listener = Listener(
            gateway,
            limits,
            monotonic=time.monotonic,
            memory=self.memory,
            tls=tls,
        )
        listener.early_s = self._connection_wait_s
        self.listeners[plan.name] = await self._stack.enter_async_context(listener)
        return self._advertise(plan, await bind_listener(plan, listener.open))

    def _advertise(self, plan: ListenerPlan, bound: Address) -> Address:
        """Record the address of an open listener; return the one that clients are given."""
        self.addresses[plan.name] = str(bound)
        key = f"advertise.{plan.name}"
        address = self.advertised[plan.name] = choose_advertised(
            self.settings.text(key) if key in BY_KEY else "",
            listens=plan.listens,
            bound=bound,
            machine_name=socket.gethostname,
        )
        return address

    def _tls_contexts(self, listener: ListenerSecurity | None = None) -> TlsContexts:
        """Return the certificate that all listeners with TLS have; StartError.

        At the internal one without SASL clients have to show theirs, whatever the others require.
        """
        if listener is not None and listener.is_internal and not listener.sasl:
            return make_tls(self.settings, self.memory.iterations, "required")
        if self.tls is None:
            self.tls = make_tls(self.settings, self.memory.iterations)
        return self.tls

    async def _open_http(self, plans: list[ListenerPlan]) -> None:
        from trilogue.gateway.http.connection_limits import HttpLimits
        from trilogue.gateway.http.listener import HttpListener

        app = await self._load_http_app(ProtocolGateway(**self._dependencies_at([])))
        limit = self.settings.number("connections.limit")
        most, sockets = min(HTTP_CONNECTIONS_MAX, limit), min(WEBSOCKETS_MAX, limit)
        limits = HttpLimits(
            connections=most,
            connections_per_address=most // 2,
            websockets=sockets,
            websockets_per_address=sockets // 2,
        )
        http = HttpListener(app, limits, self.memory)
        self._stack.push_async_callback(http.close)

        for plan in plans:
            tls = self._tls_contexts() if plan.name == "https" else None

            async def bind(host: str, port: int, tls: TlsContexts | None = tls) -> tuple[str, int]:
                return http.bind(host, port, tls)

            self._advertise(plan, await bind_listener(plan, bind))
        http.serve()
        self.http = http
