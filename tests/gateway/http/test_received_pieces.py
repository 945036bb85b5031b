"""What was received is parsed in pieces, as far as time allows and the peer reads."""

from __future__ import annotations

from tests.gateway.fakes import Turns
from trilogue.gateway.frame_dispatcher import ITERATION_S, IterationBudget
from trilogue.gateway.http.received_pieces import PIECE_BYTES, ReceivedPieces
from trilogue.gateway.memory_budget import ConnectionMemory


class Transport:
    """Whether it is read."""

    reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False


class Loop:
    """Iterations of a clock that parsing moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.turns = Turns()
        self.memory = ConnectionMemory(iterations=IterationBudget(lambda: self.now_s))
        self.memory.iterations.open(self.turns.call_soon)


class Peer:
    """A connection over a transport that records, and what its parser was given."""

    def __init__(self, loop: Loop, piece_s: float = 0.0, stuck_after: int = 0) -> None:
        self.loop = loop
        self.piece_s = piece_s  # what parsing one takes
        self.stuck_after = stuck_after  # pieces
        self.is_ready = True
        self.parsed: list[bytes] = []
        self.transport = Transport()
        self.pieces = ReceivedPieces(
            self.transport,  # type: ignore[arg-type]
            loop.memory,
            self.parse,
            address="here",
            is_paused=lambda: False,
            is_unread=lambda: not self.is_ready,
            is_ready=lambda: self.is_ready,
        )

    def parse(self, piece: bytes) -> None:
        self.parsed.append(piece)
        self.loop.now_s += self.piece_s
        if len(self.parsed) == self.stuck_after:
            self.is_ready = False


CONTENT = b"".join(bytes([number]) * PIECE_BYTES for number in range(20))


def test_pieces_that_take_long_are_of_many_iterations():
    loop = Loop()
    peer = Peer(loop, piece_s=ITERATION_S)

    peer.pieces.add(CONTENT)
    assert len(peer.parsed) < 4
    assert not peer.transport.reading
    assert loop.memory.received.size_bytes > PIECE_BYTES
    loop.turns.run_all()

    assert b"".join(peer.parsed) == CONTENT
    assert peer.transport.reading
    assert loop.memory.received.size_bytes == 0


def test_a_peer_that_is_not_ready_is_not_read():
    loop = Loop()
    peer = Peer(loop, stuck_after=3)

    peer.pieces.add(CONTENT)
    loop.turns.run_all()
    assert len(peer.parsed) == 3
    assert not peer.transport.reading
    peer.is_ready = True
    peer.pieces.parse_on()
    loop.turns.run_all()

    assert b"".join(peer.parsed) == CONTENT
    assert peer.transport.reading


def test_a_small_request_waits_for_one_piece_and_not_for_those_of_all():
    loop = Loop()
    large = [Peer(loop, piece_s=10 * ITERATION_S) for _ in range(10)]
    small = Peer(loop)
    for each in large:
        each.pieces.add(CONTENT)

    small.pieces.add(b"small")
    while not small.parsed:
        assert loop.turns.run()

    assert sum(len(each.parsed) for each in large) <= 3
    loop.turns.run_all()
    assert all(b"".join(each.parsed) == CONTENT for each in large)
