"""Receipts of producers: a group of them for each commit, with one write."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pure import load_pure
from trilogue.gateway import transport_writer

PURE = load_pure("trilogue.gateway.transport_writer")


class Setup:
    """A session, its transport and its journal."""

    def __init__(self, module, in_flight_max: int = 100) -> None:
        self.in_step = False
        self.gathered: list[bytes] = []
        self.sent: list[bytes] = []
        self.behind: list[bytes] = []
        self.stopped = 0
        self.waiting: list[Any] = []
        self.counted: list[int] = []
        self.groups = module.ReceiptGroups(
            self,
            self.waiting.append,
            lambda key: SimpleNamespace(stop=self.counted.append) if key == "sends" else None,
            in_flight_max,
        )
        self.writer = module.TransportWriter()
        self.writer.transport = SimpleNamespace(is_closing=lambda: False, write=self.sent.append)
        self.groups.open(self.writer)

    def replace_receipts(self, receipts: list[bytes], problem: BaseException) -> list[bytes]:
        return [str(problem).encode() + each for each in receipts]

    def send_receipts(self, receipts: list[bytes]) -> None:
        self.behind += receipts

    def stop_frames(self) -> None:
        self.stopped += 1
        self.groups.is_full = True

    def resume_frames(self) -> None:
        self.stopped -= 1

    def commit(self, *receipts: bytes) -> None:
        self.groups.receipts.extend(receipts)
        self.groups.commit()


class Connected:
    """A writer to a socket, and the bytes that were left to its transport."""

    def __init__(self, module, waiting: int = 0) -> None:
        self.left: list[bytes] = []
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.writer = module.TransportWriter()
        self.writer.socket_number = self.ours.fileno()
        self.writer.transport = SimpleNamespace(
            is_closing=lambda: False,
            get_write_buffer_size=lambda: waiting,
            write=lambda data: self.left.append(bytes(data)),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_problem: object) -> None:
        self.ours.close()
        self.theirs.close()


both = pytest.mark.parametrize("module", [transport_writer, PURE], ids=["installed", "pure"])


@both
def test_receipts_of_a_group_leave_with_its_commit_and_one_write(module):
    setup = Setup(module)
    receipts = setup.groups.receipts
    setup.commit(b"one")
    setup.commit()
    setup.commit(b"two", b"three")
    assert (len(setup.waiting), setup.groups.number, setup.groups.in_flight) == (2, 3, 3)
    assert setup.groups.receipts is receipts == []

    for commit in setup.waiting:
        commit(None)

    assert setup.sent == [b"one", b"twothree"]
    assert setup.counted == [1, 2]
    assert (setup.groups.done, setup.groups.in_flight, setup.behind) == (2, 0, [])


@both
@pytest.mark.parametrize("reason", ["paused", "in a step", "gathered"])
def test_receipts_do_not_pass_frames_that_wait(module, reason: str):
    setup = Setup(module)
    setup.commit(b"one", b"two")
    setup.writer.is_paused = reason == "paused"
    setup.in_step = reason == "in a step"
    setup.gathered = [b"frame"] if reason == "gathered" else []

    setup.waiting.pop()(None)

    assert (setup.sent, setup.behind) == ([], [b"one", b"two"])


@both
def test_receipts_of_a_failed_commit_are_replaced(module):
    setup = Setup(module)
    setup.commit(b"one", b"two")

    setup.waiting.pop()(OSError("not "))

    assert setup.sent == [b"not onenot two"]


@both
def test_no_more_frames_are_taken_while_too_many_receipts_wait(module):
    setup = Setup(module, in_flight_max=2)
    setup.commit(b"one")
    assert setup.stopped == 0
    setup.commit(b"two")
    assert setup.stopped == 1

    setup.waiting[0](None)

    assert setup.stopped == 0


@both
def test_a_closed_connection_has_no_receipts(module):
    setup = Setup(module)
    setup.commit(b"one")
    setup.groups.receipts.append(b"two")
    setup.groups.close()
    setup.groups.commit()

    for commit in setup.waiting:
        commit(None)

    assert (len(setup.waiting), setup.sent, setup.groups.receipts) == (1, [], [])


@both
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_reply_goes_to_the_socket_where_nothing_waits_before_it(module, kind: type):
    with Connected(module) as connected:
        connected.writer.send_one(kind(b"reply"))

        assert (connected.theirs.recv(100), connected.left) == (b"reply", [])


@both
def test_a_reply_does_not_pass_what_the_transport_still_sends(module):
    with Connected(module, waiting=1) as connected:
        connected.writer.send_one(b"reply")

        assert connected.left == [b"reply"]


@both
def test_the_transport_sends_what_a_full_socket_does_not_take(module):
    reply = bytes(range(256)) * (64 << 10)
    with Connected(module) as connected:
        connected.writer.send_one(reply)

        (rest,) = connected.left
        sent = len(reply) - len(rest)
        assert 0 < sent < len(reply)
        assert rest == reply[sent:]
        connected.writer.send_one(b"next")
        assert connected.left == [rest, b"next"]


@both
def test_the_transport_handles_a_connection_that_is_gone(module):
    with Connected(module) as connected:
        connected.theirs.close()
        connected.writer.send_one(b"reply")

        assert connected.left == [b"reply"]
