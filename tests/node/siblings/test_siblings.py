"""Requests between nodes of one machine: their order, lost connections, and other processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trilogue.broker.errors import NotOwner, NotReady, ProducerFenced
from trilogue.broker.node_requests import EndBranch, JoinTransaction, NodeRequest
from trilogue.broker.promise import Promise
from trilogue.node.siblings import frames, server
from trilogue.node.siblings.frames import HEAD, Hello, make_frame, socket_address
from trilogue.node.siblings.links import UNANSWERED_MAX, SiblingLinks
from trilogue.node.siblings.server import SiblingServer

LIMIT_S = 60.0


def a_join(producer_id: int) -> JoinTransaction:
    return JoinTransaction("tx", producer_id, 0, 7, adds=True)


class World:
    """Node 2, which answers as a test wants, and what it got."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.got: list[tuple[int, NodeRequest]] = []
        self.answer: Callable[[NodeRequest], Promise[None]] = lambda _: Promise.resolved(None)
        self.server = SiblingServer(path, 2, self.handle)
        self.writers: list[asyncio.StreamWriter] = []

    def handle(self, sender: int, request: NodeRequest) -> Promise[None]:
        self.got.append((sender, request))
        return self.answer(request)

    async def connect(
        self, hello: Hello | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours = socket.socket(socket.AF_UNIX)
        with socket_address(self.path, 2) as address:
            ours.connect(address)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        self.writers.append(writer)
        if hello is not None:
            writer.write(make_frame(0, hello))
        return reader, writer


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[World]:
    world = World(path)
    await world.server.open()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield world
    finally:
        for writer in world.writers:
            writer.transport.abort()
        await world.server.close()


async def send_until_reached(links: SiblingLinks, request: NodeRequest) -> None:
    while await outcome(links.send(2, request)) is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def wait_for_requests(world: World, count: int) -> None:
    while len(world.got) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def outcome(promise: Promise[None]) -> BaseException | None:
    settled = asyncio.Event()
    promise.then(lambda _: settled.set())
    await settled.wait()
    return promise.error


def run(work: Callable[[World], object], path: Path) -> None:
    async def main() -> None:
        async with serving(path) as world:
            await work(world)  # type: ignore[misc]

    asyncio.run(main())


def test_requests_arrive_in_their_order_and_have_their_answers(tmp_path: Path):
    end = EndBranch("tx", 3, 1, 2, True, tuple(range(20_000)), ("g",))

    async def work(world: World) -> None:
        refusals = {1: ProducerFenced("of 1"), 2: NotOwner("of 2")}
        world.answer = lambda request: (
            Promise.rejected(refusals[request.producer_id])
            if request.producer_id in refusals
            else Promise.resolved(None)
        )
        links = SiblingLinks(tmp_path, 1, 5)
        requests = [a_join(0), a_join(1), a_join(2), end]
        sent = [links.send(2, each) for each in requests]
        errors = [await outcome(each) for each in sent]

        assert world.got == [(1, each) for each in requests]
        assert [type(each) for each in errors] == [
            type(None), ProducerFenced, NotOwner, type(None),
        ]  # fmt: skip
        assert str(errors[1]) == "of 1"
        await links.close()

    run(work, tmp_path)


def test_answers_come_in_any_order(tmp_path: Path):
    async def work(world: World) -> None:
        waiting = [Promise[None](), Promise[None]()]
        world.answer = lambda request: waiting[request.producer_id]
        links = SiblingLinks(tmp_path, 1, 5)
        first, second = links.send(2, a_join(0)), links.send(2, a_join(1))
        await wait_for_requests(world, 2)
        waiting[1].set_result(None)
        assert await outcome(second) is None
        assert not first.done
        waiting[0].set_error(NotReady("later"))
        assert str(await outcome(first)) == "later"
        await links.close()

    run(work, tmp_path)


def test_a_node_that_is_away_is_not_ready_and_reached_when_it_is_back(tmp_path: Path):
    async def work() -> None:
        links = SiblingLinks(tmp_path, 1, 5)
        assert isinstance(await outcome(links.send(2, a_join(0))), NotReady)
        async with serving(tmp_path) as world:
            await send_until_reached(links, a_join(1))
            world.answer = lambda _: Promise()
            unanswered = links.send(2, a_join(2))
            await wait_for_requests(world, 2)
        assert isinstance(await outcome(unanswered), NotReady), "the connection has ended"
        async with serving(tmp_path) as again:
            await send_until_reached(links, a_join(3))
            assert again.got[-1] == (1, a_join(3))
        await links.close()

    asyncio.run(work())


def test_nothing_of_an_earlier_connection_is_handled_after_a_later_one(tmp_path: Path):
    async def work(world: World) -> None:
        reader, earlier = await world.connect(Hello(1, 5, 1))
        earlier.write(make_frame(1, a_join(1)))
        await frames.read_frame(reader)
        later_reader, later = await world.connect(Hello(1, 5, 2))
        later.write(make_frame(1, a_join(2)))
        await frames.read_frame(later_reader)
        earlier.write(make_frame(2, a_join(3)))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await frames.read_frame(reader)
        for old in (Hello(1, 5, 1), Hello(1, 4, 9)):  # of a process that is no more
            old_reader, writer = await world.connect(old)
            writer.write(make_frame(1, a_join(4)))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await frames.read_frame(old_reader)
        third_reader, third = await world.connect(Hello(3, 1, 1))  # another node is apart
        third.write(make_frame(1, a_join(5)))
        await frames.read_frame(third_reader)
        later.write(make_frame(2, a_join(6)))
        await frames.read_frame(later_reader)

        assert [request.producer_id for _, request in world.got] == [1, 2, 5, 6]

    run(work, tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"\0" * HEAD.size, HEAD.pack(1 << 31, 0), HEAD.pack(12, 0) + b"oops", b"\xff" * 100],
    ids=["empty", "too long", "no MessagePack", "noise"],
)
def test_bad_bytes_end_their_connection_only(tmp_path: Path, data: bytes):
    async def work(world: World) -> None:
        for hello in (None, Hello(3, 1, 1)):
            reader, writer = await world.connect(hello)
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        links = SiblingLinks(tmp_path, 1, 5)
        assert await outcome(links.send(2, a_join(1))) is None
        await links.close()

    run(work, tmp_path)


def test_a_process_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "is_same_user", lambda _peer: False)

    async def work(world: World) -> None:
        reader, _ = await world.connect(Hello(1, 5, 1))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await frames.read_frame(reader)
        assert (tmp_path / "node-2.sock").stat().st_mode & 0o777 == 0o600

    run(work, tmp_path)


def test_requests_without_an_answer_have_a_bound(tmp_path: Path):
    async def work(world: World) -> None:
        world.answer = lambda _: Promise()
        links = SiblingLinks(tmp_path, 1, 5)
        for number in range(UNANSWERED_MAX):
            links.send(2, a_join(number))
        assert isinstance(links.send(2, a_join(0)).error, NotReady)
        await links.close()

    run(work, tmp_path)


def test_the_path_of_a_data_directory_may_be_long(tmp_path: Path):
    path = tmp_path / ("long" * 50)
    path.mkdir()

    async def work(_world: World) -> None:
        links = SiblingLinks(path, 1, 5)
        assert await outcome(links.send(2, a_join(1))) is None
        await links.close()

    run(work, path)


def test_a_server_that_ends_with_connections_reports_no_error(tmp_path: Path):
    async def scenario() -> list[dict[str, object]]:
        reported: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        async with serving(tmp_path) as world:
            links = SiblingLinks(tmp_path, 1, 1)
            await send_until_reached(links, a_join(1))
            await world.server.close()
            assert isinstance(await outcome(links.send(2, a_join(2))), NotReady)
            await links.close()
        await asyncio.sleep(0)
        return reported

    assert asyncio.run(scenario()) == []
