"""Streams: fair shares, back-pressure, deadlines; bad bytes end only their own connection."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.gateway.fakes import FakeTransport, Turns, frame
from tests.pure import load_pure
from trilogue.gateway import frame_dispatcher
from trilogue.gateway.frame_dispatcher import ITERATION_S, LARGE_BYTES, SHORT_S
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.stream import STOP_BROKER, STOP_SESSION, Close, Limits, Stream
from trilogue.wire.frames import Frames, Int32Frames
from trilogue.wire.tubemq.frame import BlockFrames
from trilogue.wire.tubemq.frame import encode_frame as blocks


class Recorder:
    """A session that records its calls."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.turns = 0
        self.refuse = 0
        self.busy = False
        self.gone = 0
        self.writables = 0
        self.on_frame = lambda frame: None

    def opened(self, stream):
        self.stream = stream

    def frame(self, frame):
        if self.refuse:
            self.refuse -= 1
            self.stream.stop(STOP_BROKER)
            return False
        self.frames.append(bytes(frame))
        self.on_frame(frame)
        return True

    def end_iteration(self):
        self.turns += 1

    def writable(self):
        self.writables += 1

    def closed(self):
        self.gone += 1


DEFAULTS = Limits()


class Setup:
    def __init__(
        self,
        limits: Limits = DEFAULTS,
        framer: Callable[[int], Frames] = Int32Frames,
        turns: Turns | None = None,
        memory: ConnectionMemory | None = None,
        defer: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.turns = turns or Turns()
        self.session = Recorder()
        self.gone: list[Stream] = []
        self.stream = Stream(
            self.session,
            limits,
            call_soon=defer or self.turns.call_soon,
            on_gone=self.gone.append,
            framer=framer,
            memory=memory,
        )
        self.transport = FakeTransport(self.stream)
        self.stream.connection_made(self.transport)


@pytest.mark.parametrize("piece", [None, 1, 3, 7])
def test_frames_come_out_whatever_the_pieces_they_came_in(piece):
    setup = Setup()

    setup.transport.receive(frame(b"one") + frame(b"") + frame(b"three"), piece)

    assert setup.session.frames == [b"one", b"", b"three"]


@pytest.mark.parametrize("piece", [None, 1, 3, 5_000])
def test_another_protocol_brings_what_cuts_its_bytes(piece):
    setup = Setup(Limits(frame_bytes=10_000), BlockFrames)

    sent = blocks(7, b"one") + blocks(8, b"") + blocks(9, bytes(9_000))

    setup.transport.receive(bytes(sent), piece)
    setup.turns.run_all()

    assert setup.session.frames == [b"\0\0\0\7one", b"\0\0\0\x08", b"\0\0\0\t" + bytes(9_000)]
    assert not setup.transport.aborted


@pytest.mark.parametrize("octets", [frame(bytes(20)), bytes(blocks(1, bytes(10_001)))])
def test_malformed_frame_ends_the_connection(octets: bytes):
    setup = Setup(Limits(frame_bytes=10_000), BlockFrames)

    setup.transport.receive(octets)

    assert setup.transport.aborted


def test_a_turn_is_over_after_so_many_frames():
    setup = Setup(Limits(turn_frames=3))

    setup.transport.receive(frame(b"x") * 7)

    assert len(setup.session.frames) == 3
    assert not setup.transport.reading
    assert setup.turns.run() == 1
    assert len(setup.session.frames) == 6
    setup.turns.run_all()
    assert len(setup.session.frames) == 7
    assert setup.transport.reading


def test_a_turn_that_takes_everything_needs_no_other():
    setup = Setup(Limits(turn_frames=3))

    setup.transport.receive(frame(b"x") * 3)

    assert len(setup.session.frames) == 3
    assert setup.turns.waiting == []
    assert setup.transport.reading


def test_a_turn_is_over_after_so_many_bytes():
    setup = Setup(Limits(turn_bytes=1_000))

    setup.transport.receive(frame(b"x" * 600) * 3)

    assert len(setup.session.frames) == 2
    setup.turns.run_all()
    assert len(setup.session.frames) == 3


def test_a_frame_larger_than_a_turn_is_taken_whole():
    setup = Setup(Limits(turn_bytes=10))

    setup.transport.receive(frame(b"x" * 600))

    assert setup.session.frames == [b"x" * 600]


def test_connection_is_read_once_per_loop_iteration_above_its_share():
    """A transport reads up to 32 times in an iteration while more bytes arrive."""
    setup = Setup(Limits(turn_bytes=1_000))

    for _ in range(3):
        setup.transport.receive(frame(b"x" * 1_200))

    assert len(setup.session.frames) == 1
    assert not setup.transport.reading
    setup.turns.run()
    assert len(setup.session.frames) == 2
    setup.turns.run_all()
    assert len(setup.session.frames) == 3
    assert setup.transport.reading


BOTH = pytest.mark.parametrize(
    "module",
    [frame_dispatcher, load_pure("trilogue.gateway.frame_dispatcher")],
    ids=["installed", "pure"],
)


class Budget:
    """The time of one loop, whose clock a test sets."""

    def __init__(self, module: ModuleType = frame_dispatcher) -> None:
        self.now_s = 100.0
        self.turns = Turns()
        self.budget = module.IterationBudget(lambda: self.now_s)
        self.budget.open(self.turns.call_soon)

    def spend(self, seconds: float) -> None:
        self.now_s += seconds


def test_connections_of_a_long_iteration_are_served_in_the_next_one():
    time = Budget()
    memory = ConnectionMemory(iterations=time.budget)
    first, second, third = (Setup(turns=time.turns, memory=memory) for _ in range(3))
    first.session.on_frame = lambda _: time.spend(1.5 * ITERATION_S)

    first.transport.receive(frame(b"long"))
    second.transport.receive(frame(b"late"))
    second.transport.receive(frame(b"later"))

    assert first.session.frames == [b"long"]
    assert not second.session.frames
    assert not second.transport.reading
    time.turns.run()
    third.transport.receive(frame(b"prompt"))
    assert third.session.frames == [b"prompt"]
    time.turns.run_all()
    assert second.session.frames == [b"late", b"later"]
    assert second.transport.reading


def test_requests_of_a_connection_that_take_long_are_of_many_iterations():
    time = Budget()
    memory = ConnectionMemory(iterations=time.budget)
    setup, other = (Setup(turns=time.turns, memory=memory) for _ in range(2))
    setup.session.on_frame = lambda _: time.spend(ITERATION_S)

    setup.transport.receive(frame(b"long") * 30)

    assert len(setup.session.frames) == 4
    other.transport.receive(frame(b"short"))
    time.turns.run()
    assert len(setup.session.frames) <= 12
    assert other.session.frames == [b"short"]
    time.turns.run_all()
    assert len(setup.session.frames) == 30
    assert setup.transport.reading


def test_small_frames_wait_for_one_large_frame_not_for_those_of_all_connections():
    time = Budget()
    memory = ConnectionMemory(iterations=time.budget)
    *large, small = (
        Setup(turns=time.turns, memory=memory, defer=time.budget.defer) for _ in range(7)
    )
    processed = []

    def process(content: bytes) -> None:
        processed.append(len(content))
        time.spend(5 * ITERATION_S)

    for each in large:
        each.session.on_frame = process
        each.transport.receive(frame(bytes(LARGE_BYTES + 1)))
    small.transport.receive(frame(b"small"))
    assert len(processed) == 1

    time.turns.run()
    assert small.session.frames == [b"small"]
    assert len(processed) == 2
    time.turns.run_all()
    assert len(processed) == len(large)
    assert all(each.transport.reading for each in large)


@BOTH
def test_deferred_calls_run_in_order_as_far_as_an_iteration_has_time(module):
    time, done = Budget(module), []

    def work(name: str) -> None:
        done.append(name)
        time.spend(0.6 * ITERATION_S)

    for name in "abcde":
        time.budget.defer(lambda name=name: work(name))
    time.budget.defer(lambda: time.budget.defer(lambda: work("f")))

    rounds = []
    while time.turns.run():
        rounds.append("".join(done))
        done.clear()
    assert "".join(rounds) == "abcdef"
    assert rounds[:3] == ["ab", "cd", "e"]


@BOTH
def test_a_failure_of_one_deferred_call_leaves_the_others_waiting(module):
    time, done = Budget(module), []
    time.budget.defer(lambda: 1 / 0)
    time.budget.defer(lambda: done.append(1))

    with pytest.raises(ZeroDivisionError):
        time.turns.run()

    time.turns.run_all()
    assert done == [1]


@BOTH
def test_an_iteration_that_is_short_schedules_nothing(module):
    time = Budget(module)
    time.spend(2 * SHORT_S)
    assert not time.budget.is_used_up()  # the watch begins
    time.turns.run_all()

    time.spend(0.5 * SHORT_S)

    assert not time.budget.is_used_up()
    assert not time.turns.waiting


def test_one_turn_ends_once_however_many_frames_it_had():
    setup = Setup()

    setup.transport.receive(frame(b"x") * 7)

    assert setup.session.turns == 1


def test_an_untaken_frame_is_offered_again_and_nothing_is_read_meanwhile():
    setup = Setup()
    setup.session.refuse = 1

    setup.transport.receive(frame(b"one") + frame(b"two"))
    assert setup.session.frames == []
    assert not setup.transport.reading
    setup.stream.go_on(STOP_BROKER)
    setup.turns.run_all()

    assert setup.session.frames == [b"one", b"two"]
    assert setup.transport.reading


def test_a_peer_that_does_not_read_is_not_read_either():
    setup = Setup(Limits(write_high_bytes=100))
    setup.transport.stuck = True

    setup.stream.send([b"x" * 101])

    assert not setup.transport.reading
    setup.transport.unstick()
    setup.turns.run_all()
    assert setup.session.writables == 1
    assert setup.transport.reading


def test_reading_goes_on_only_when_the_last_reason_to_stop_is_over():
    setup = Setup()
    setup.stream.stop(STOP_BROKER)
    setup.stream.stop(STOP_SESSION)

    setup.stream.go_on(STOP_BROKER)
    setup.turns.run_all()
    assert not setup.transport.reading

    setup.stream.go_on(STOP_SESSION)
    setup.turns.run_all()
    assert setup.transport.reading


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 101 << 20, -(2**31)])
def test_an_impossible_length_closes_the_connection(length, caplog):
    """A frame that is too large, or of negative size, closes the connection."""
    setup = Setup()

    setup.transport.receive(length.to_bytes(4, "big", signed=True) + b"body")

    assert setup.transport.aborted
    assert setup.session.gone == 1
    assert setup.gone == [setup.stream]
    assert [record.message for record in caplog.records] == ["connection.bad_bytes"]


def test_failing_handler_ends_its_connection_and_is_logged_once(caplog):
    setup = Setup()

    def fail(_frame):
        raise ZeroDivisionError

    setup.session.on_frame = fail
    setup.transport.receive(frame(b"one") + frame(b"two"))

    assert setup.transport.aborted
    assert setup.session.frames == [b"one"]
    assert "connection.failed" in caplog.messages


def test_a_session_may_order_the_connection_closed(caplog):
    setup = Setup()

    def close(_frame):
        raise Close("request.not_served", key=99)

    setup.session.on_frame = close
    setup.transport.receive(frame(b"one"))

    assert setup.transport.aborted
    assert caplog.messages == ["request.not_served"]
    assert caplog.records[0].key == 99


def test_nothing_is_written_to_a_closed_connection():
    setup = Setup()
    setup.transport.close()

    setup.stream.send([b"late"])

    assert setup.transport.written == b""


# ---- deadlines


def test_a_frame_that_stays_incomplete_is_cut_after_its_deadline():
    setup = Setup(Limits(incomplete_frame_s=30.0))
    setup.stream.sweep(0.0)
    setup.transport.receive(frame(b"x" * 100)[:50])

    for second in range(1, 31):
        setup.stream.sweep(float(second))
    assert not setup.transport.aborted
    setup.stream.sweep(32.0)

    assert setup.transport.aborted


def test_a_frame_that_waits_for_its_turn_is_not_cut():
    """The bytes are there: it is the server that is late."""
    time = Budget()
    memory = ConnectionMemory(iterations=time.budget)
    first, second = (Setup(turns=time.turns, memory=memory) for _ in range(2))
    first.session.on_frame = lambda _: time.spend(1.5 * ITERATION_S)
    first.transport.receive(frame(b"long"))
    second.stream.sweep(0.0)
    second.transport.receive(frame(b"late"))

    for second_s in range(1, 100):
        second.stream.sweep(float(second_s))
    time.turns.run_all()

    assert second.session.frames == [b"late"]
    assert not second.transport.aborted


def test_a_slow_loris_is_cut_though_it_always_sends_a_little(caplog):
    setup = Setup(Limits(incomplete_frame_s=30.0))
    body = frame(b"x" * 1_000)

    for second in range(40):
        if not setup.transport.closed:
            setup.transport.receive(body[second : second + 1])
            setup.stream.sweep(float(second))

    assert caplog.messages == ["connection.incomplete_frame"]


def test_a_large_frame_that_keeps_coming_is_given_more_time():
    setup = Setup(Limits(incomplete_frame_s=1.0, incomplete_frame_bytes_per_s=100))
    setup.stream.sweep(0.0)
    setup.transport.receive(frame(b"x" * 1_000)[:900])

    for second in range(9):
        setup.stream.sweep(float(second))

    assert not setup.transport.aborted


def test_whole_frames_one_after_the_other_are_never_late():
    setup = Setup(Limits(incomplete_frame_s=5.0))

    for second in range(100):
        setup.transport.receive(frame(b"x")[:4] if second % 2 == 0 else b"x")
        setup.stream.sweep(float(second))

    assert not setup.transport.aborted


def test_a_silent_peer_is_cut_after_the_idle_time(caplog):
    setup = Setup(Limits(idle_s=10.0))

    for second in range(12):
        setup.stream.sweep(float(second))

    assert caplog.messages == ["connection.idle"]


def test_a_peer_that_waits_for_our_answer_is_not_idle():
    setup = Setup(Limits(idle_s=10.0))
    setup.session.busy = True

    for second in range(100):
        setup.stream.sweep(float(second))

    assert not setup.transport.aborted


def test_a_connection_that_the_broker_paused_is_never_timed_out():
    """A connection that the broker paused does not time out."""
    setup = Setup(Limits(idle_s=10.0, incomplete_frame_s=5.0))
    setup.transport.receive(frame(b"x")[:3])
    setup.stream.stop(STOP_BROKER)

    for second in range(100):
        setup.stream.sweep(float(second))

    assert not setup.transport.aborted


def test_a_peer_that_reads_nothing_is_cut_and_one_that_reads_slowly_is_not():
    stuck, slow = Setup(Limits(idle_s=10.0, write_high_bytes=10)), Setup(Limits(idle_s=10.0))
    for setup in (stuck, slow):
        setup.session.busy = True
        setup.transport.stuck = True
        setup.stream.send([b"x" * 10_000_000])

    for second in range(20):
        slow.transport.unsent -= 1
        stuck.stream.sweep(float(second))
        slow.stream.sweep(float(second))

    assert stuck.transport.aborted
    assert not slow.transport.aborted
