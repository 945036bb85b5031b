"""How fast a flush goes: gently while there is room, never slower than what comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from trilogue.log.journal.files import SealedFile
from trilogue.node.background import flush
from trilogue.node.background.flush import AHEAD, Cut, Flusher
from trilogue.node.storage import Storage

MIB = 1 << 20
RATE = 64 * MIB


def cut(size: int, seconds: float) -> Cut:
    file = SealedFile(
        path=Path("0.journal"),
        number=1,
        incarnation=1,
        first_sequence=1,
        last_sequence=2,
        size=size,
        entry_count=1,
        first_append_ms=1_000,
    )
    return Cut(file, [], 1_000 + int(seconds * 1_000))


def pace(cuts: list[Cut], *, tail_bytes: int = 0, rate: int = RATE) -> int | None:
    log = SimpleNamespace(tail_bytes=tail_bytes, tail_limit=256 * MIB, sealed=[], on_sealed=None)
    storage = cast("Storage", SimpleNamespace(log=log))
    flusher = Flusher(storage, None, None, now_ms=lambda: 0, bytes_per_second=rate)  # type: ignore[arg-type]
    return flusher._pace(cuts)


def test_a_slow_trickle_is_flushed_at_the_set_rate():
    assert pace([cut(1 * MIB, 60)]) == RATE


def test_a_flood_is_flushed_faster_than_it_comes():
    assert pace([cut(64 * MIB, 0.25), cut(64 * MIB, 0.5)]) == AHEAD * 256 * MIB


def test_a_half_full_tail_is_flushed_as_fast_as_can_be():
    assert pace([cut(64 * MIB, 1)], tail_bytes=128 * MIB) is None


@pytest.mark.parametrize(("held", "hurries"), [(127 * MIB, 0), (128 * MIB, 1)])
def test_a_flush_under_way_is_hurried_when_a_file_is_sealed_and_the_tail_is_half_full(
    held: int, hurries: int
):
    log = SimpleNamespace(tail_bytes=held, tail_limit=256 * MIB, sealed=[], on_sealed=None)
    broker = SimpleNamespace(snapshot=list)
    storage = cast("Storage", SimpleNamespace(log=log, broker=broker))
    reported: list[None] = []
    helper = SimpleNamespace(pid=1, hurry=lambda: reported.append(None))
    Flusher(storage, helper, None, now_ms=lambda: 0, bytes_per_second=RATE)  # type: ignore[arg-type]

    log.on_sealed(cut(64 * MIB, 1).file)

    assert len(reported) == hurries


def test_no_rate_is_no_pace():
    assert pace([cut(64 * MIB, 1)], rate=0) is None


def test_a_file_sealed_in_the_millisecond_it_began_has_a_rate():
    assert cut(MIB, 0).fill_rate == MIB * 1_000


class Filling:
    """A log whose tail is seen to hold one figure after the other."""

    tail_limit = 256 * MIB
    on_sealed = None

    def __init__(self, *held: int) -> None:
        self.sealed: list[SealedFile] = []
        self.seen = 0
        self._held: Iterator[int] = iter(held)

    @property
    def tail_bytes(self) -> int:
        self.seen += 1
        return next(self._held)


def looks_before(log: Filling, sealed: Cut, pid: int | None = None) -> int:
    """How often it looks at the tail before it lets the flush begin."""
    storage = cast("Storage", SimpleNamespace(log=log, broker=None))
    helper = SimpleNamespace(pid=pid)
    flusher = Flusher(storage, helper, None, now_ms=lambda: 0, bytes_per_second=RATE)  # type: ignore[arg-type]
    flusher._cuts.append(sealed)
    asyncio.run(flusher._let_a_burst_pass())
    return log.seen


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "BURST_LOOK_S", 0)


BURST = cut(64 * MIB, 0.1)


@pytest.mark.usefixtures("at_once")
def test_no_process_is_started_for_a_flush_while_a_burst_comes_in():
    # looked at before and after each wait
    assert looks_before(Filling(*(MIB * each for each in (70, 80, 80, 90, 90, 90))), BURST) == 6


@pytest.mark.usefixtures("at_once")
def test_a_flush_of_a_burst_begins_when_the_tail_is_half_full():
    assert looks_before(Filling(70 * MIB, 130 * MIB, 130 * MIB), BURST) == 3


@pytest.mark.usefixtures("at_once")
def test_a_flush_of_a_burst_begins_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flush, "BURST_S", 0)
    assert looks_before(Filling(70 * MIB), BURST) == 1


def test_a_flush_begins_at_once_where_its_process_runs_or_nothing_is_in_a_hurry():
    assert looks_before(Filling(), BURST, pid=1) == 0
    assert looks_before(Filling(), cut(64 * MIB, 10)) == 0
    assert looks_before(Filling(), cut(MIB, 0.01)) == 0
