"""Connections between nodes of a cluster: who has to prove what, and nodes that do not answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from trilogue.broker.errors import NotReady
from trilogue.broker.node_requests import JoinTransaction, NodeRequest, TransactionName
from trilogue.broker.promise import Promise
from trilogue.node.cluster.link_proof import (
    CONNECTS,
    NONCE,
    PROOF,
    make_client_context,
    make_proof,
    make_server_context,
    prove_client,
    prove_server,
)
from trilogue.node.cluster.links import LinkConnector, LinkServer
from trilogue.node.siblings.frames import Hello, make_frame
from trilogue.node.siblings.links import NodeLinks

KEY, OTHER = b"k" * 32, b"o" * 32
HOST = "127.0.0.1"
LIMIT_S = 60.0
REQUEST = JoinTransaction("tx", 7, 0, 7, adds=True)
NAME = TransactionName("tx", "owner")


class ListeningNode:
    """Node 2, which listens, and the requests that it got."""

    def __init__(self, key: bytes) -> None:
        self.got: list[tuple[int, NodeRequest]] = []
        self.answer: Callable[[], Promise[TransactionName]] = lambda: Promise.resolved(NAME)
        self.server = LinkServer(key, self.handle)
        self.address = ""

    def handle(self, sender: int, request: NodeRequest) -> Promise[TransactionName]:
        self.got.append((sender, request))
        return self.answer()

    def links(self, key: bytes, answer_s: float | None = None) -> NodeLinks:
        connector = LinkConnector(key, lambda _: self.address or None)
        return NodeLinks(1, 1, connector.connect, answer_s)


@asynccontextmanager
async def serving(key: bytes = KEY) -> AsyncIterator[ListeningNode]:
    world = ListeningNode(key)
    host, port = await world.server.bind(HOST, 0)
    world.address = f"{host}:{port}"
    try:
        async with asyncio.timeout(LIMIT_S):
            yield world
    finally:
        await world.server.close()


async def outcome(promise: Promise[TransactionName]) -> object:
    settled = asyncio.Event()
    promise.then(lambda _: settled.set())
    await settled.wait()
    return promise.error or promise.result()


async def send_until(links: NodeLinks, wanted: TransactionName | None) -> None:
    """Send until there is this answer, or with None until the node is not reached."""
    while (found := await outcome(links.send(2, REQUEST))) != wanted:
        if wanted is None and isinstance(found, NotReady):
            return
        await asyncio.sleep(0.01)


def run(work: Callable[[ListeningNode], Awaitable[None]], key: bytes = KEY) -> None:
    async def main() -> None:
        async with serving(key) as world:
            await work(world)

    asyncio.run(main())


def test_nodes_with_the_key_of_the_cluster_exchange_requests():
    async def work(world: ListeningNode) -> None:
        links = world.links(KEY)
        assert await outcome(links.send(2, REQUEST)) == NAME
        assert world.got == [(1, REQUEST)]
        await links.close()

    run(work)


def test_a_node_with_another_key_is_refused_by_both_ends():
    async def work(world: ListeningNode) -> None:
        links = world.links(OTHER)
        assert isinstance(await outcome(links.send(2, REQUEST)), NotReady)
        await links.close()

        reader, writer = await connect(world)
        writer.write(bytes(NONCE))
        await reader.readexactly(NONCE + PROOF)
        writer.write(bytes(PROOF) + make_frame(0, Hello(1, 9, 9)) + make_frame(1, REQUEST))
        assert await reader.read() == b""
        writer.transport.abort()
        assert world.got == []

    run(work)


def test_a_peer_between_two_nodes_cannot_pass_proofs_on():
    """It has a certificate of its own, and the proofs of both ends name the one that they saw."""

    async def work(world: ListeningNode) -> None:
        context, _ = make_server_context()
        passed_on: list[bytes] = []
        ended = asyncio.Event()
        real = ListeningNode(KEY)
        real.address = world.address

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            onward, outward = await connect(real)
            outward.write(await reader.readexactly(NONCE))
            passed_on.append(await onward.readexactly(NONCE + PROOF))
            writer.write(passed_on[0])
            await reader.read()
            outward.transport.abort()
            writer.transport.abort()
            ended.set()

        between = await asyncio.start_server(pass_on, HOST, 0, ssl=context)
        world.address = "{}:{}".format(*between.sockets[0].getsockname())
        reader, writer = await connect(world)
        with pytest.raises(OSError, match="does not know the key"):
            await prove_client(KEY, reader, writer)
        writer.transport.abort()
        between.close()
        await ended.wait()
        assert len(passed_on[0]) == NONCE + PROOF
        assert world.got == []

    run(work)


async def connect(world: ListeningNode) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = world.address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=make_client_context())


def test_a_node_that_does_not_answer_is_given_up():
    async def work(world: ListeningNode) -> None:
        world.answer = Promise
        links = world.links(KEY, answer_s=0.05)
        assert isinstance(await outcome(links.send(2, REQUEST)), NotReady)
        world.answer = lambda: Promise.resolved(NAME)
        await send_until(links, NAME)
        await links.close()

    run(work)


def test_a_node_without_its_lease_answers_no_request():
    async def work(world: ListeningNode) -> None:
        links = world.links(KEY)
        assert await outcome(links.send(2, REQUEST)) == NAME
        world.server.suspend()
        await send_until(links, None)
        count = len(world.got)
        assert isinstance(await outcome(links.send(2, REQUEST)), NotReady)
        assert len(world.got) == count
        world.server.resume()
        await send_until(links, NAME)
        await links.close()

    run(work)


def test_a_node_that_has_no_address_is_not_reached():
    async def work(world: ListeningNode) -> None:
        world.address = ""
        links = world.links(KEY)
        assert isinstance(await outcome(links.send(2, REQUEST)), NotReady)
        await links.close()

    run(work)


def test_a_server_that_proves_for_another_certificate_is_refused():
    async def main() -> None:
        context, _ = make_server_context()
        _, other = make_server_context()
        seen: list[object] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await prove_server(KEY, other, reader, writer)
            except (OSError, asyncio.IncompleteReadError) as error:
                seen.append(type(error))
            writer.transport.abort()

        server = await asyncio.start_server(serve, HOST, 0, ssl=context)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port, ssl=make_client_context())
        with pytest.raises(OSError, match="does not know the key"):
            await prove_client(KEY, reader, writer)
        writer.transport.abort()
        server.close()

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_proofs_of_the_two_ends_differ():
    """So that a proof that was received cannot be sent back."""
    assert make_proof(KEY, CONNECTS, b"n", b"c") != make_proof(KEY, b"listens ", b"n", b"c")


def test_the_certificate_is_one_of_this_start():
    assert make_server_context()[1] != make_server_context()[1]
    assert make_client_context().minimum_version is ssl.TLSVersion.TLSv1_3
