"""Receipts of producers: a group of them for each commit, with one write."""

from __future__ import annotations

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
