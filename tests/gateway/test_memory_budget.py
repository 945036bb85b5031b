"""Memory of all connections: what is admitted, who waits, and who has to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest

from tests.gateway.fakes import FakeTransport, frame
from tests.gateway.loop import on_loop
from tests.waiting import wait_on_loop
from trilogue.gateway import memory_budget
from trilogue.gateway.memory_budget import (
    LOST_BYTES_MAX,
    MIB,
    ConnectionMemory,
    MemoryBudget,
    MemoryHolder,
    WorkMemory,
)
from trilogue.gateway.segments.cold_reads import ColdReads
from trilogue.gateway.stream import STOP_BROKER, Limits, Stream

STALLED_S = 0.05
PATIENCE_S = 0.2
RATE_MIN = 10 * MIB


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "TICK_S", 0.01)
    monkeypatch.setattr(memory_budget, "STALLED_S", STALLED_S)
    monkeypatch.setattr(memory_budget, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(memory_budget, "RATE_MIN", RATE_MIN)
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(memory_budget, "time", clock)  # the loop's: a slow machine changes nothing


class Peer(MemoryHolder):
    """A connection whose peer moves, or does not."""

    def __init__(self, budget: MemoryBudget, size: int, *, moves: bool, address: str = "") -> None:
        super().__init__(budget, address)
        self.moves = moves
        self.steps = 0
        self.is_evicted = False
        self.can_reclaim = False
        self.resize(size)

    def progress(self) -> int | None:
        self.steps += self.moves
        return self.steps

    def reclaim(self) -> None:
        if self.can_reclaim:
            self.resize(0)

    def evict(self) -> None:
        self.is_evicted = True
        self.resize(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    on_loop(test)()


def test_large_requests_leave_a_share_to_small_ones():
    async def test() -> None:
        budget = MemoryBudget(100 * MIB)
        Peer(budget, 60 * MIB, moves=True)

        assert not budget.admit("large", 20 * MIB)
        assert budget.admit("small", 2 * MIB)
        assert budget.free_bytes == 15 * MIB

    run(test)


def test_one_alone_may_have_more_than_all():
    async def test() -> None:
        assert MemoryBudget(MIB).admit("huge", 55 * MIB)

    run(test)


def test_connections_take_turns():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peer = Peer(budget, 10 * MIB, moves=True)
        turns: list[str] = []
        for key, connection in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
            budget.wait(key, MIB, lambda key=key: turns.append(key), connection=connection)
        peer.resize(0)

        await wait_on_loop(lambda: len(turns) == 4)

        assert turns == ["a1", "b1", "a2", "a3"]

    run(test)


def test_a_grant_is_kept_for_the_one_that_waited():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peer = Peer(budget, 10 * MIB, moves=True)
        resumed: list[bool] = []
        budget.wait("first", 8 * MIB, lambda: resumed.append(True), connection="first")
        peer.resize(2 * MIB - 1)
        peer.resize(0)
        await wait_on_loop(lambda: bool(resumed))

        assert not budget.admit("late", 4 * MIB)
        assert budget.admit("first", 8 * MIB)

    run(test)


def test_memory_that_can_be_had_again_goes_before_connections():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        stalled = Peer(budget, 5 * MIB, moves=False)
        cache = Peer(budget, 5 * MIB, moves=False)
        cache.can_reclaim = True
        await asyncio.wait_for(budget.reserve(MemoryHolder(budget), 2 * MIB), 5)

        assert not stalled.is_evicted
        assert not cache.is_evicted

    run(test)


def test_the_one_that_stalls_goes_and_the_one_that_moves_stays():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        stalled = Peer(budget, 5 * MIB, moves=False)
        moving = Peer(budget, 5 * MIB, moves=True)
        small = Peer(budget, 1_000, moves=False)
        await asyncio.wait_for(budget.reserve(MemoryHolder(budget), 2 * MIB), 5)

        assert stalled.is_evicted
        assert not moving.is_evicted
        assert not small.is_evicted, "it would not help"
        assert budget.evictions == 1

    run(test)


def test_without_others_that_wait_a_stalled_one_stays():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        stalled = Peer(budget, 10 * MIB, moves=False)
        await asyncio.sleep(3 * STALLED_S)

        assert not stalled.is_evicted

    run(test)


def test_one_goes_in_the_end_when_all_move_slowly():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peers = [Peer(budget, 5 * MIB, moves=True) for _ in range(2)]
        await asyncio.wait_for(budget.reserve(MemoryHolder(budget), 2 * MIB), 5)

        assert [each.is_evicted for each in peers] == [True, False]

    run(test)


class SlowPeer(Peer):
    """Reads what it was sent at a rate, and asks again when its connection was closed."""

    def __init__(self, budget: MemoryBudget, rate: int) -> None:
        super().__init__(budget, 0, moves=True)
        self.rate = rate
        self.closings = 0

    def evict(self) -> None:
        self.closings += 1
        super().evict()

    async def read(self, size: int) -> None:
        """Read so many bytes without being closed meanwhile."""
        while True:
            self.is_evicted = False
            await self.budget.reserve(self, size)
            while self.size_bytes and not self.is_evicted:
                await asyncio.sleep(0.01)
                self.resize(max(0, self.size_bytes - self.rate // 100))
            if not self.is_evicted:
                return


def test_a_crowd_of_slow_peers_is_served():
    """Each needs longer than others wait with patience: closed for them, none would ever end."""

    async def test() -> None:
        size, rate = 4 * MIB, int(1.5 * RATE_MIN)
        assert size / rate > PATIENCE_S
        budget = MemoryBudget(20 * MIB)
        peers = [SlowPeer(budget, rate) for _ in range(40)]

        await asyncio.wait_for(asyncio.gather(*[each.read(size) for each in peers]), 60)

        assert [each.closings for each in peers] == [0] * 40
        assert not budget.size_bytes

    run(test)


def test_a_peer_below_the_least_rate_makes_room():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        slow = SlowPeer(budget, RATE_MIN // 10)
        steady = SlowPeer(budget, 2 * RATE_MIN)
        reading = asyncio.create_task(slow.read(5 * MIB))
        other = asyncio.create_task(steady.read(2 * MIB))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(budget.reserve(MemoryHolder(budget), 6 * MIB), 60)
        await other

        assert slow.closings == 1
        assert not steady.closings
        reading.cancel()

    run(test)


def test_a_peer_that_moves_without_a_pause_has_time_for_what_is_new():
    """A consumer of a long backlog holds something all the time, but not the same."""

    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        steady = Peer(budget, 4 * MIB, moves=True)
        other = Peer(budget, 3 * MIB, moves=True)
        budget.wait("late", 8 * MIB, lambda: None, connection="late")
        for _ in range(20):  # longer than any may need
            await asyncio.sleep(0.1)
            steady.resize(MIB)
            steady.resize(4 * MIB)

        assert other.is_evicted
        assert not steady.is_evicted

    run(test)


def test_of_a_crowd_the_newest_goes_first():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peers = []
        for _ in range(10):
            peers.append(Peer(budget, MIB, moves=True, address="crowd"))
            await asyncio.sleep(0.001)
        granted: list[None] = []
        budget.wait("one", MIB, lambda: granted.append(None), connection="c", address="other")
        await wait_on_loop(lambda: bool(granted))

        assert [each.is_evicted for each in peers] == [False] * 9 + [True]

    run(test)


def test_an_address_does_not_take_the_half_that_others_wait_for():
    async def test() -> None:
        budget = MemoryBudget(100 * MIB)
        greedy = Peer(budget, 50 * MIB, moves=True, address="a")
        other = Peer(budget, 50 * MIB, moves=True, address="c")
        budget.wait("b", MIB, lambda: None, connection="b", address="b")
        budget.wait("a", MIB, lambda: None, connection="a", address="a")
        other.resize(49 * MIB)
        await asyncio.sleep(0)

        assert budget.admit("b", MIB, "b")
        assert greedy.size_bytes == 50 * MIB

    run(test)


# ---- reads


class Threads(Executor):
    """An executor whose work ends when a test lets it."""

    def __init__(self) -> None:
        self.works: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Callable[..., Any], /, *_args: Any, **_more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.works.append((future, work))
        return future

    def end_one(self) -> None:
        future, work = self.works.pop(0)
        future.set_result(work())


def test_a_read_keeps_its_memory_until_the_thread_has_ended():
    """Also where no connection waits for it any more."""

    async def test() -> None:
        threads, memory = Threads(), MemoryBudget(100 * MIB)
        reads = ColdReads(threads, memory)
        future = reads.start("key", 55 * MIB, lambda: b"data")
        assert future is not None
        future.cancel()
        await asyncio.sleep(0.01)
        assert memory.size_bytes == 55 * MIB
        assert reads.start("other", 55 * MIB, lambda: b"data") is None

        threads.end_one()
        await wait_on_loop(lambda: memory.size_bytes == 0)

    run(test)


def test_read_bytes_are_counted_before_the_reservation_ends():
    async def test() -> None:
        threads, memory = Threads(), MemoryBudget(100 * MIB)
        future = ColdReads(threads, memory).start("key", 5 * MIB, lambda: b"data")
        assert future is not None
        counted: list[int] = []
        future.add_done_callback(lambda _: counted.append(memory.size_bytes))

        threads.end_one()
        await future

        assert counted == [5 * MIB]

    run(test)


def test_reads_beyond_the_threads_wait_in_turn():
    async def test() -> None:
        threads = Threads()
        reads = ColdReads(threads, MemoryBudget(100 * MIB), reads_max=2)
        works = [
            asyncio.create_task(reads.run(MIB, lambda number=number: number, connection=number))
            for number in range(5)
        ]
        await asyncio.sleep(0.01)
        assert len(threads.works) == 2
        while not all(each.done() for each in works):
            if threads.works:
                threads.end_one()
            await asyncio.sleep(0)

        assert [each.result() for each in works] == [0, 1, 2, 3, 4]
        await wait_on_loop(lambda: not reads.running)
        assert reads.memory.size_bytes == 0

    run(test)


# ---- frames received in part


class Session:
    """Takes every frame."""

    busy = False

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def opened(self, stream: Stream) -> None:
        pass

    def frame(self, taken: memoryview) -> bool:
        self.sizes.append(len(taken))
        return True

    def end_iteration(self) -> None:
        pass

    def writable(self) -> None:
        pass

    def closed(self) -> None:
        pass

    def drain(self) -> None:
        pass


class Connection:
    def __init__(self, memory: ConnectionMemory) -> None:
        self.session = Session()
        loop = asyncio.get_running_loop()
        self.stream = Stream(
            self.session, Limits(), call_soon=loop.call_soon, on_gone=lambda _: None, memory=memory
        )
        self.transport = FakeTransport(self.stream)
        self.stream.connection_made(self.transport)


def test_a_large_frame_waits_until_there_is_memory_for_the_rest_of_it():
    async def test() -> None:
        memory = ConnectionMemory(received=MemoryBudget(16 * MIB))
        peer = Peer(memory.received, 12 * MIB, moves=True)
        connection = Connection(memory)
        body = bytes(6 * MIB)

        connection.transport.receive(frame(body))
        await asyncio.sleep(0.05)
        assert not connection.transport.reading
        assert connection.stream._frames.pending <= 4 * MIB
        peer.resize(0)
        await wait_on_loop(lambda: bool(connection.session.sizes))

        assert connection.session.sizes == [len(body)]
        assert connection.transport.reading
        connection.stream.sweep(1.0)
        connection.stream.sweep(2.0)
        connection.stream.sweep(3.0)
        assert memory.received.size_bytes == 0

    run(test)


def test_frames_up_to_a_mebibyte_do_not_wait_while_memory_is_left():
    async def test() -> None:
        memory = ConnectionMemory(received=MemoryBudget(16 * MIB))
        Peer(memory.received, 14 * MIB, moves=True)
        connection = Connection(memory)

        connection.transport.receive(frame(bytes(MIB - 5)))

        assert connection.session.sizes == [MIB - 5]

    run(test)


def test_a_small_frame_waits_while_all_memory_is_spent():
    """Thousands of connections with half of a mebibyte each took more than the budget."""

    async def test() -> None:
        memory = ConnectionMemory(received=MemoryBudget(16 * MIB))
        peer = Peer(memory.received, 16 * MIB, moves=True)
        connection = Connection(memory)
        octets = frame(bytes(MIB - 5))

        connection.transport.receive(octets[: 16 << 10])
        assert connection.session.sizes == []
        assert not connection.transport.reading
        peer.resize(0)
        await wait_on_loop(lambda: connection.transport.reading)
        connection.transport.receive(octets[16 << 10 :])

        assert connection.session.sizes == [MIB - 5]

    run(test)


def test_peers_without_a_login_have_little_memory_together():
    """They are not in the way of a frame of one that has logged in."""

    async def test() -> None:
        memory = ConnectionMemory(unauthenticated=MemoryBudget(MIB))
        unknown = [Connection(memory) for _ in range(8)]
        for each in unknown:
            each.stream.expect_login()
            each.transport.receive(frame(bytes(500_000))[:-1])
        known = Connection(memory)
        known.transport.receive(frame(bytes(MIB)))

        assert known.session.sizes == [MIB]
        assert sum(each.stream._frames.capacity for each in unknown) < 2 * MIB
        await wait_on_loop(lambda: any(each.transport.aborted for each in unknown))
        assert not known.transport.aborted

    run(test)


def test_the_login_moves_a_buffer_to_the_budget_of_all_others():
    async def test() -> None:
        memory = ConnectionMemory(unauthenticated=MemoryBudget(MIB))
        Peer(memory.unauthenticated, MIB, moves=True)
        connection = Connection(memory)
        connection.stream.expect_login()
        connection.transport.receive(frame(bytes(500_000))[: 16 << 10])
        assert not connection.transport.reading
        connection.stream.limit_frames(4 * MIB)
        await wait_on_loop(lambda: connection.transport.reading)
        connection.transport.receive(frame(bytes(500_000))[16 << 10 :])

        assert connection.session.sizes == [500_000]
        assert memory.unauthenticated.size_bytes == MIB
        assert memory.received.size_bytes >= 500_000
        connection.stream.connection_lost(None)
        assert memory.received.size_bytes == 0

    run(test)


def test_large_requests_wait_until_the_heap_of_lost_connections_was_given_back(monkeypatch):
    """Small ones do not, and nobody waits after connections that held little."""
    releases: list[bool] = []
    monkeypatch.setattr(memory_budget, "release_heap", lambda: releases.append(True))

    async def test() -> None:
        asyncio.get_running_loop().run_in_executor = run_inline
        budget = MemoryBudget(100 * MIB)
        budget.count_lost(LOST_BYTES_MAX - 1)
        assert budget.admit("before", 10 * MIB)
        budget.count_lost(1)

        assert not budget.admit("large", 10 * MIB)
        assert budget.admit("small", 2 * MIB)
        await budget.reserve(MemoryHolder(budget), 10 * MIB)
        assert releases == [True]
        assert budget.admit("after", 10 * MIB)

    run(test)


def run_inline(_executor: object, work: Callable[[], None]) -> asyncio.Future[None]:
    """Stands for a thread, which the jumping clock would not wait for."""
    work()
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def test_peers_above_the_limit_go_though_they_move_and_none_waits():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peers = [Peer(budget, MIB, moves=True) for _ in range(15)]

        await wait_on_loop(lambda: budget.size_bytes <= 10 * MIB)

        assert sum(peer.is_evicted for peer in peers) == 5

    run(test)


def test_peers_of_a_crowding_address_make_room_for_another_address():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peers = [Peer(budget, MIB, moves=True, address="crowd") for _ in range(10)]
        granted: list[None] = []
        began = asyncio.get_running_loop().time()

        budget.wait("one", MIB, lambda: granted.append(None), connection="c", address="other")
        await wait_on_loop(lambda: bool(granted))

        assert asyncio.get_running_loop().time() - began < memory_budget.PATIENCE_S
        assert sum(peer.is_evicted for peer in peers) == 1

    run(test)


def test_a_connection_that_the_server_does_not_read_is_not_evicted():
    async def test() -> None:
        memory = ConnectionMemory(received=MemoryBudget(4 * MIB))
        paused = Connection(memory)
        paused.transport.receive(frame(bytes(MIB))[: MIB // 2])
        paused.stream.stop(STOP_BROKER)
        Peer(memory.received, 8 * MIB, moves=False)

        await asyncio.sleep(4 * STALLED_S)

        assert not paused.transport.aborted

    run(test)


def test_a_large_frame_takes_the_memory_for_all_of_it_before_it_is_read():
    """Two that have half of theirs, and no room for the rest, would wait for each other."""

    async def test() -> None:
        memory = ConnectionMemory(received=MemoryBudget(16 * MIB))
        first, second = Connection(memory), Connection(memory)
        octets = frame(bytes(9 * MIB))
        for each in (first, second):
            each.transport.receive(octets[: 6 * MIB])
        assert memory.received.size_bytes < 11 * MIB
        assert not second.transport.reading
        first.stream.sweep(1.0)
        assert memory.received.size_bytes >= 9 * MIB, (
            "all of the frame is counted until it is whole"
        )
        first.transport.receive(octets[6 * MIB :])
        first.stream.sweep(2.0)
        first.stream.sweep(3.0)
        await wait_on_loop(lambda: second.transport.reading)
        second.transport.receive(octets[6 * MIB :])

        assert first.session.sizes == second.session.sizes == [9 * MIB]
        assert not memory.received.evictions

    run(test)


def test_an_incomplete_frame_that_does_not_grow_costs_its_connection_when_others_wait():
    async def test() -> None:
        memory = ConnectionMemory(received=MemoryBudget(16 * MIB))
        stalled, other = Connection(memory), Connection(memory)
        stalled.transport.receive(frame(bytes(11 * MIB))[: 9 * MIB])
        other.transport.receive(frame(bytes(6 * MIB)))
        await wait_on_loop(lambda: bool(other.session.sizes))

        assert stalled.transport.aborted
        assert not other.transport.aborted

    run(test)


def test_memory_of_work_is_never_taken_away():
    """A peer that stalls goes for others that wait; what the node works on ends by itself."""

    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        resumed: list[str] = []
        with WorkMemory(budget, "", 8 * MIB) as memory:
            peer = Peer(budget, 4 * MIB, moves=False)
            budget.wait("a", MIB, lambda: resumed.append("a"), connection="a")

            await wait_on_loop(lambda: peer.is_evicted)
            assert memory.size_bytes == 8 * MIB
        assert budget.size_bytes <= MIB
        await wait_on_loop(lambda: resumed)

    run(test)


def test_work_that_holds_memory_and_waits_for_more_goes_on():
    """Where all that is worked on waits, one after the other has more than the limit."""

    async def test() -> None:
        budget = MemoryBudget(100 * MIB)
        most = 0

        async def decode(address: str) -> None:
            nonlocal most
            with WorkMemory(budget, address, 8 * MIB) as memory:
                await budget.reserve(memory, 32 * MIB)
                most = max(most, budget.size_bytes)
                await asyncio.sleep(0)

        works = [decode(f"address-{number}") for number in range(20)]
        await asyncio.wait_for(asyncio.gather(*works), 60)

        assert most <= 20 * 8 * MIB + 24 * MIB, "one at a time"
        assert not budget.size_bytes
        assert not budget.waiting

    run(test)


def test_work_goes_on_beside_peers_that_hold_memory_and_move():
    async def test() -> None:
        budget = MemoryBudget(10 * MIB)
        peer = Peer(budget, 4 * MIB, moves=True)
        with WorkMemory(budget, "", 4 * MIB) as memory:
            await asyncio.wait_for(budget.reserve(memory, 6 * MIB), 60)

        assert not peer.is_evicted

    run(test)
