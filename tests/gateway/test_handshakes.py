"""Turns of TLS handshakes: who starts, who waits, who gives way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.gateway.loop import on_loop
from trilogue.gateway.handshakes import STALLED_S, STARTS_PER_STEP, Handshakes


class Peers:
    """Handshakes by name; each lasts until it is ended or released."""

    def __init__(self, limit: int, waiting_max: int = 1_000) -> None:
        self.handshakes = Handshakes(limit, waiting_max)
        self.started: list[str] = []
        self.ended: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def come(self, name: str, address: str = "10.0.0.1") -> None:
        self.tasks[name] = asyncio.create_task(self._shake(name, address))

    async def _shake(self, name: str, address: str) -> None:
        over = asyncio.Event()

        def end() -> None:
            self.ended.append(name)
            over.set()

        async with self.handshakes.turn(address, end):
            self.started.append(name)
            await over.wait()

    def leave(self, name: str) -> None:
        self.tasks[name].cancel()


async def take_steps(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_loop
async def test_few_start_in_each_iteration_the_newest_first():
    peers = Peers(limit=100)
    for number in range(2 * STARTS_PER_STEP):
        peers.come(str(number))
    await asyncio.sleep(0)  # all of them wait
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert peers.started == [str(2 * STARTS_PER_STEP - 1 - n) for n in range(STARTS_PER_STEP)]
    await take_steps()
    assert len(peers.started) == 2 * STARTS_PER_STEP


@on_loop
async def test_a_place_that_is_free_is_used_at_once():
    peers = Peers(limit=1)
    peers.come("first")
    await take_steps()
    peers.come("second")
    await take_steps()
    assert peers.started == ["first"]

    peers.leave("first")
    await take_steps()

    assert peers.started == ["first", "second"]
    assert peers.ended == []
    assert peers.handshakes.running == 1


@on_loop
async def test_the_oldest_gives_way_once_it_has_stalled_and_not_before():
    peers = Peers(limit=2)
    for name in ("oldest", "old"):
        peers.come(name)
        await take_steps()
    peers.come("new")
    await asyncio.sleep(STALLED_S * 0.9)
    assert peers.ended == []

    await asyncio.sleep(STALLED_S * 0.2)

    assert peers.ended == ["oldest"]
    assert peers.started == ["oldest", "old", "new"]


@on_loop
async def test_without_others_a_slow_handshake_goes_on():
    peers = Peers(limit=1)
    peers.come("slow")
    await asyncio.sleep(10 * STALLED_S)
    assert peers.ended == []


@on_loop
async def test_addresses_take_turns():
    peers = Peers(limit=1)
    peers.come("running")
    await take_steps()
    for number in range(50):
        peers.come(f"flood-{number}")
    peers.come("client", "10.0.0.2")
    await take_steps()
    for turns in range(1, 3):
        peers.leave(peers.started[-1])
        await take_steps()
        assert len(peers.started) == 1 + turns

    assert peers.started[1:] == ["flood-49", "client"]


@on_loop
async def test_one_that_gave_up_is_passed_over():
    peers = Peers(limit=1)
    for name in ("running", "waiting", "gone"):
        peers.come(name)
        await take_steps()
    peers.leave("gone")
    peers.leave("running")
    await take_steps()

    assert peers.started == ["running", "waiting"]


@on_loop
async def test_the_oldest_of_an_address_is_dropped_where_too_many_wait():
    peers = Peers(limit=1, waiting_max=3)
    peers.come("running")
    await take_steps()
    for name in ("first", "second", "third", "fourth"):
        peers.come(name)
        await take_steps()
    with pytest.raises(ConnectionAbortedError):
        await peers.tasks["first"]

    peers.come("client", "10.0.0.2")
    await take_steps()

    with pytest.raises(ConnectionAbortedError):
        await peers.tasks["second"]
    peers.come("fifth")
    await take_steps()
    with pytest.raises(ConnectionAbortedError):
        await peers.tasks["third"]
    assert not any(peers.tasks[name].done() for name in ("fourth", "fifth", "client"))


def record(size: int, kind: int = 22) -> bytes:
    return bytes([kind, 3, 1]) + size.to_bytes(2, "big") + bytes(size)


def test_a_hello_is_whole_before_a_handshake_starts():
    async def test() -> None:
        handshakes = Handshakes()
        async with listening_pair() as (client, accepted):
            waits = asyncio.create_task(handshakes.wait_hello(accepted, "10.0.0.1"))
            hello = record(300)
            for part in (hello[:3], hello[3:200]):
                client.sendall(part)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(waits), 0.05)
            client.sendall(hello[200:])
            await asyncio.wait_for(waits, 60)
            assert accepted.recv(1_000) == hello, "it was looked at, not taken"
            assert handshakes.waiting == 0

    asyncio.run(test())


def test_a_kernel_short_of_memory_ends_no_hello():
    """It makes a socket readable with fewer bytes than SO_RCVLOWAT."""

    async def test() -> None:
        hello = record(300)
        async with listening_pair() as (client, accepted):
            waits = asyncio.create_task(Handshakes().wait_hello(accepted, "10.0.0.1"))
            client.sendall(hello[:200])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waits), 0.05)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waits), 0.2)
            client.sendall(hello[200:])
            await asyncio.wait_for(waits, 60)
            assert accepted.recv(1_000) == hello

    asyncio.run(test())


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"),
        (bytes(20), "does not speak TLS"),
        (record(40_000)[:100], "does not speak TLS"),
        (record(300)[:100], "closed"),
        (record(300)[:2], "closed"),
        (b"", "closed"),
    ],
)
def test_invalid_client_hello_is_refused(sent: bytes, problem: str):
    async def test() -> None:
        async with listening_pair() as (client, accepted):
            waits = asyncio.create_task(Handshakes().wait_hello(accepted, "10.0.0.1"))
            if sent:
                client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionError, match=problem):
                await asyncio.wait_for(waits, 60)

    asyncio.run(test())


def test_peers_without_a_hello_give_way_first():
    async def test() -> None:
        handshakes = Handshakes(limit=1, waiting_max=2)
        async with listening_pair() as (_, first), listening_pair() as (_, second):
            silent = [
                asyncio.create_task(handshakes.wait_hello(accepted, "10.0.0.1"))
                for accepted in (first, second)
            ]
            await take_steps()
            ready = asyncio.create_task(enter(handshakes, "10.0.0.1"))
            with pytest.raises(ConnectionAbortedError):
                await silent[0]
            await ready
            silent[1].cancel()

    asyncio.run(test())


async def enter(handshakes: Handshakes, address: str) -> None:
    async with handshakes.turn(address, lambda: None):
        pass


@asynccontextmanager
async def listening_pair() -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with client, accepted:
        accepted.setblocking(False)
        yield client, accepted
