"""Sessions: replies in the order of the requests, one write for what is ready, and bounds."""

from __future__ import annotations

from tests.gateway.fakes import FakeTransport, Turns, frame
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.reply_queue import (
    BYTES_A_WORK,
    ITERATION_WORK,
    PIECE_SHARE,
    BufferedReply,
    PipelinedConnection,
)
from trilogue.gateway.reply_slots import ReplySlot
from trilogue.gateway.stream import Limits, Stream


class Script(PipelinedConnection):
    """Each frame is one letter: n = answered now, p = promised, l = lazy."""

    def __init__(self) -> None:
        super().__init__()
        self.promised: list[ReplySlot] = []
        self.taken = 0

    def frame(self, frame):
        self.taken += 1
        match bytes(frame[:1]):
            case b"n":
                self.queue_reply(bytearray(frame))
            case b"p":
                place = BufferedReply()
                self.promised.append(place)
                self.queue(place)
            case b"l":
                place = Lazy(self)
                self.promised.append(place)
                self.queue(place)
        return True

    def end_iteration(self):
        self.flush()


class Lazy(ReplySlot):
    """Ready from the start, rendered only when its turn comes."""

    __slots__ = ("_session", "abandoned", "hurried", "rendered", "size", "work")

    def __init__(self, session) -> None:
        super().__init__()
        self._session = session
        self.work = 0
        self.ready = True
        self.rendered = 0
        self.size = 1
        self.abandoned = self.hurried = False

    def render(self):
        self.rendered += 1
        self._session.spent += self.work
        return [b"L" * self.size]

    def hurry(self):
        self.hurried = True

    def abandon(self):
        self.abandoned = True


DEFAULTS = Limits()


class Setup:
    def __init__(self, limits: Limits = DEFAULTS, memory: ConnectionMemory | None = None) -> None:
        self.turns = Turns()
        self.session = Script()
        self.gone: list[Stream] = []
        self.stream = Stream(
            self.session,
            limits,
            call_soon=self.turns.call_soon,
            on_gone=self.gone.append,
            memory=memory,
        )
        self.transport = FakeTransport(self.stream)
        self.stream.connection_made(self.transport)

    def requests(self, letters: str) -> None:
        self.transport.receive(b"".join(frame(letter.encode()) for letter in letters))

    @property
    def out(self) -> bytes:
        return bytes(self.transport.written)


def test_replies_leave_in_the_order_of_the_requests():
    setup = Setup()

    setup.requests("npnpn")
    assert setup.out == b"n"
    first, second = setup.session.promised
    setup.session.fill(second, [b"2"])
    assert setup.out == b"n"
    setup.session.fill(first, [b"1"])

    assert setup.out == b"n1n2n"


def test_replies_that_are_ready_in_one_turn_leave_with_one_write():
    setup = Setup()

    setup.requests("n" * 50)

    assert setup.out == b"n" * 50
    assert setup.transport.writes == 1


def test_replies_that_waited_for_one_promise_leave_with_one_write():
    setup = Setup()
    setup.requests("pnnnn")

    setup.session.fill(setup.session.promised[0], [b"p"])

    assert setup.out == b"pnnnn"
    assert setup.transport.writes == 1


def test_a_reply_is_rendered_only_when_its_turn_comes():
    setup = Setup()

    setup.requests("pl")
    assert setup.session.promised[1].rendered == 0
    setup.session.fill(setup.session.promised[0], [b"p"])

    assert setup.out == b"pL"


def test_replies_that_cost_much_leave_over_several_turns():
    """Pipelined requests of one connection take a fair share of a turn, not all of it."""
    setup = Setup()
    setup.requests("p" + "l" * 5)
    for place in setup.session.promised[1:]:
        place.work = ITERATION_WORK // 2

    setup.session.fill(setup.session.promised[0], [b"p"])
    assert setup.out == b"pLL"
    setup.turns.run()
    assert setup.out == b"pLLLL"
    setup.turns.run()
    assert setup.out == b"pLLLLL"


def test_large_replies_to_a_fast_reader_span_several_loop_iterations():
    setup = Setup(Limits(write_high_bytes=1 << 18))
    setup.requests("p" + "l" * 5)
    size = (3 * ITERATION_WORK // 4) << BYTES_A_WORK
    for place in setup.session.promised[1:]:
        place.size = size

    setup.session.fill(setup.session.promised[0], [b"p"])
    assert 1 + size < len(setup.out) <= 1 + 2 * size
    setup.turns.run_all()

    assert len(setup.out) == 1 + 5 * size


def test_unsent_bytes_are_counted_over_all_connections():
    memory = ConnectionMemory()
    setups = [Setup(Limits(write_high_bytes=100), memory) for _ in range(3)]
    for setup in setups:
        setup.transport.stuck = True
        setup.requests("p")
        setup.session.fill(setup.session.promised[0], [b"x" * 1_000])
    assert 3 * 1_000 <= memory.unsent.size_bytes <= 3 * 1_200

    setups[0].transport.unstick()
    setups[0].turns.run_all()
    setups[1].transport.close()

    assert 1_000 <= memory.unsent.size_bytes <= 1_200


def test_a_large_reply_leaves_over_several_turns_and_nothing_gets_into_it():
    setup = Setup(Limits(write_high_bytes=1 << 18))
    setup.requests("pp")
    size = (5 * ITERATION_WORK) << BYTES_A_WORK
    large = [bytes([number]) * (size // 4) for number in range(4)]
    setup.session.fill(setup.session.promised[0], large)
    at_once = len(setup.out)
    setup.session.fill(setup.session.promised[1], [b"p"])
    setup.requests("n")
    assert 0 < at_once == len(setup.out) < size // 3, "who asks again hurries nothing"
    turns = 0
    while setup.turns.run():
        turns += 1

    assert setup.out == b"".join(large) + b"pn"
    assert turns >= 2
    assert setup.session.in_flight == 0


def test_unsent_bytes_of_a_large_reply_are_counted_until_written():
    setup = Setup(Limits(write_high_bytes=1 << 16))
    unsent = setup.stream.memory.unsent
    setup.requests("p")
    setup.session.fill(setup.session.promised[0], [b"x" * (8 * ITERATION_WORK << BYTES_A_WORK)])
    assert unsent.size_bytes >= 6 * ITERATION_WORK << BYTES_A_WORK
    setup.turns.run_all()

    assert unsent.size_bytes == 0
    assert setup.session.in_flight == 0


def test_a_reply_of_one_buffer_is_counted_whole_until_its_last_part_is_a_copy():
    """A view of a part keeps all of the buffer: a peer could read almost all of it, and stop."""
    setup = Setup(Limits(write_high_bytes=1_000))
    written = []
    setup.transport.writelines = setup.transport.write = written.append
    setup.requests("p")
    setup.session.count_reply(10_000)
    setup.session.fill(setup.session.promised[0], [b"x" * 10_000])

    assert setup.stream.memory.unsent.size_bytes == 0
    assert sum(map(len, written)) == 10_000
    assert isinstance(written[-1], bytes)
    assert len(written[-1]) <= 1_000
    assert isinstance(written[0], memoryview)


def test_requests_that_wait_behind_others_are_counted():
    setup = Setup(Limits(waiting_reply_bytes=10_000))
    setup.requests("p")
    for size in (6_000, 6_000):
        place = Lazy(setup.session)
        place.waiting_bytes = size
        setup.session.queue(place)

    assert not setup.transport.reading
    setup.session.fill(setup.session.promised[0], [b"p"])
    setup.turns.run_all()
    assert setup.transport.reading


def test_a_peer_that_does_not_read_costs_one_response_and_no_more():
    """A slow reader costs at most two response buffers."""
    setup = Setup(Limits(write_high_bytes=1_000))
    setup.transport.stuck = True
    setup.requests("p" + "l" * 20)
    for place in setup.session.promised[1:]:
        place.size = 10_000

    setup.session.fill(setup.session.promised[0], [b"p"])

    assert sum(place.rendered for place in setup.session.promised[1:]) == 1
    assert setup.transport.unsent == PIECE_SHARE * 1_000, "the rest of it waits here"
    setup.transport.unstick()
    setup.turns.run_all()
    assert sum(place.rendered for place in setup.session.promised[1:]) == 20


def test_a_place_that_is_not_ready_after_all_keeps_its_turn():
    setup = Setup()

    class Later(Lazy):
        __slots__ = ()

        def render(self):
            super().render()
            return None if self.rendered == 1 else [b"L"]

    later = Later(setup.session)
    setup.session.queue(later)
    setup.requests("n")
    assert setup.out == b""
    setup.session.is_ready(later)

    assert setup.out == b"Ln"


def test_too_many_requests_in_flight_stop_the_reading_until_half_are_answered():
    setup = Setup(Limits(in_flight_requests=10))

    setup.requests("p" * 12)
    assert setup.session.taken == 10
    assert not setup.transport.reading
    for place in setup.session.promised[:5]:
        setup.session.fill(place, [b"p"])
    setup.turns.run_all()

    assert setup.session.taken == 12
    assert setup.transport.reading


def test_too_many_bytes_of_waiting_replies_stop_the_reading():
    setup = Setup(Limits(waiting_reply_bytes=5))

    setup.requests("p" + "n" * 20)
    assert setup.session.taken == 7
    setup.session.fill(setup.session.promised[0], [b"p"])
    setup.turns.run_all()

    assert setup.out == b"p" + b"n" * 20


def test_a_closed_connection_lets_go_of_what_it_waits_for():
    setup = Setup()
    setup.requests("pl")

    setup.transport.close()

    assert setup.session.promised[1].abandoned
    setup.session.fill(setup.session.promised[0], [b"nobody reads this"])
    assert setup.out == b""


def test_draining_connection_answers_requests_in_flight_and_closes():
    setup = Setup()
    setup.requests("pl")

    setup.session.drain()
    assert setup.session.promised[1].hurried
    assert not setup.transport.closed
    setup.session.fill(setup.session.promised[0], [b"p"])

    assert setup.out == b"pL"
    assert setup.transport.closed


def test_a_draining_connection_without_requests_closes_at_once():
    setup = Setup()

    setup.session.drain()

    assert setup.transport.closed


def test_a_failing_reply_ends_its_connection_and_nothing_else(caplog):
    setup = Setup()

    class Broken(Lazy):
        __slots__ = ()

        def render(self):
            raise ZeroDivisionError

    setup.requests("p")
    setup.session.queue(Broken(setup.session))
    setup.session.fill(setup.session.promised[0], [b"p"])

    assert setup.transport.aborted
    assert "connection.failed" in caplog.messages


def test_a_connection_that_drains_before_it_was_opened_closes_when_it_is():
    """Accepted a moment before the end: it must not keep the others from being drained."""
    session, turns = Script(), Turns()
    stream = Stream(session, DEFAULTS, call_soon=turns.call_soon, on_gone=lambda _: None)
    transport = FakeTransport(stream)

    session.drain()
    stream.connection_made(transport)

    assert transport.closed
