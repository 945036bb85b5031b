"""Requests between the nodes of a cluster: joins and ends of transactions over several nodes.

The frames and their order are those of the nodes of one machine (node/siblings); the connections
are TCP with TLS, between ends that know the key of the cluster (link_proof.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from trilogue.gateway.socket_acceptor import ConnectionTasks, SocketAcceptor
from trilogue.meta.link_key import read_link_key
from trilogue.meta.postgres_connection import BlockingConnection
from trilogue.node.addresses import Address, choose_advertised, parse_address, resolve
from trilogue.node.cluster.link_proof import (
    WrongPeer,
    make_client_context,
    make_server_context,
    prove_client,
    prove_server,
)
from trilogue.node.cluster.place import ClusterPlace
from trilogue.node.listeners import ListenerPlan, bind_listener
from trilogue.node.secure.files import SecureFiles
from trilogue.node.settings.table import Settings
from trilogue.node.siblings.links import NodeLinks
from trilogue.node.siblings.server import HELLO_LIMIT_S, Handle, NodeConnections
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

LISTENER: Final = "nodes"  # among the addresses of a node
ANSWER_S: Final = 5.0  # a node that is silent for so long is given up: its slots may have moved
BUFFER: Final = 1 << 16  # of received bytes; larger frames are taken as they come
HANDSHAKES_MAX: Final = 256  # of peers that have not proved anything
HANDSHAKES_OF_ADDRESS_MAX: Final = 8


class LinkServer:
    """Where other nodes of the cluster connect."""

    def __init__(self, key: bytes, handle: Handle) -> None:
        self._key = key
        self._context, self._certificate = make_server_context()
        self._connections = NodeConnections(handle)
        self._tasks = ConnectionTasks(self._serve)
        self._acceptors: list[SocketAcceptor] = []
        self._unproved: Counter[str] = Counter()  # connections by address
        self._is_suspended = False

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Listen at a literal address; return it with the port that is bound. OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        listening.setblocking(False)
        self._acceptors.append(SocketAcceptor(LISTENER, listening, self._tasks.begin))
        return host, listening.getsockname()[1]

    def suspend(self) -> None:
        """Close all connections, and new ones as they come: the lease of this node is over."""
        self._is_suspended = True
        self._connections.end_all()

    def resume(self) -> None:
        """Serve connections again."""
        self._is_suspended = False

    async def close(self) -> None:
        """Listen no more, and close the connections."""
        for each in self._acceptors:
            each.close()
        self._tasks.cancel()
        await self._tasks.wait()
        await self._connections.close()

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        if self._is_suspended or self._is_full(address):
            accepted.close()
            return
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=BUFFER, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        self._unproved[address] += 1
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HELLO_LIMIT_S,
            )
        except BaseException:
            self._note_proved(address)
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        check = partial(self._check, address, reader, writer)
        await self._connections.serve(reader, writer, check)

    async def _check(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await prove_server(self._key, self._certificate, reader, writer)
        except WrongPeer:
            log.warning("nodes.refused", extra={"address": address})
            raise
        finally:
            self._note_proved(address)

    def _is_full(self, address: str) -> bool:
        unproved = self._unproved
        return (
            self._connections.is_full
            or unproved[address] >= HANDSHAKES_OF_ADDRESS_MAX
            or unproved.total() >= HANDSHAKES_MAX
        )

    def _note_proved(self, address: str) -> None:
        """Note that a connection is proved, or over."""
        self._unproved[address] -= 1
        if not self._unproved[address]:
            del self._unproved[address]


class LinkConnector:
    """Connects to other nodes of the cluster."""

    def __init__(self, key: bytes, address_of: Callable[[int], str | None]) -> None:
        self._key = key
        self._address_of = address_of
        self._context = make_client_context()

    async def connect(self, node_id: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection whose other end knows the key. OSError, TimeoutError."""
        text = self._address_of(node_id)
        if text is None:
            raise OSError(f"node {node_id} has no address for other nodes")
        at = parse_address(text)
        reader, writer = await asyncio.open_connection(
            at.host, at.port, ssl=self._context, limit=BUFFER
        )
        try:
            await prove_client(self._key, reader, writer)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, asyncio.IncompleteReadError):
                raise OSError("the connection was closed before the proof") from error
            raise
        return reader, writer


async def reach_nodes(
    settings: Settings,
    storage: Storage,
    cluster: ClusterPlace,
    advertised: Mapping[str, Address],
    stack: AsyncExitStack,
) -> tuple[LinkServer, Address]:
    """Answer requests of the other nodes, and send them those of this one's broker.

    Returns the server, and the address that other nodes are given. LogError, StartError.
    """
    with BlockingConnection(cluster.url) as connection:
        key = mix_secret(connection.run(read_link_key), settings)
    broker, state = storage.broker, storage.meta.state
    server = LinkServer(key, broker.node_requests.handle)
    stack.push_async_callback(server.close)
    listens = choose_listening(settings, advertised)
    bound = await bind_listener(
        ListenerPlan(LISTENER, listens, tuple(resolve(listens))), server.bind
    )

    def address_of(node_id: int) -> str | None:
        row = state.nodes.get(node_id)
        return None if row is None else row.listeners.get(LISTENER)

    connector = LinkConnector(key, address_of)
    links = NodeLinks(state.node_id, state.node_epoch, connector.connect, ANSWER_S)
    stack.push_async_callback(links.close)
    broker.branches.port = links
    first = next(iter(advertised.values()))
    chosen = settings.text("cluster.advertise")
    if not chosen and not settings.text("cluster.listen"):
        chosen = str(Address(first.host, 0))
    return server, choose_advertised(
        chosen, listens=listens, bound=bound, machine_name=socket.gethostname
    )


def choose_listening(settings: Settings, advertised: Mapping[str, Address]) -> Address:
    """Return where to listen: as set, else a free port at the host of the first listener."""
    if text := settings.text("cluster.listen"):
        return parse_address(text)
    first = settings.text(f"listen.{next(iter(advertised))}")
    return Address(parse_address(first).host, 0)


def mix_secret(key: bytes, settings: Settings) -> bytes:
    """Return the key; in a secured cluster who reads the database only does not have it."""
    files = SecureFiles(Path(settings.text("data")))
    if not files.is_secured:
        return key
    secret = files.cluster_secret.read_bytes().strip()
    return hmac.digest(hashlib.sha256(secret).digest(), key, "sha256")
