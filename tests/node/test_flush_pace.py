"""How fast a flush goes: gently while there is room, never slower than what comes in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from trilogue.log.journal_files import SealedFile
from trilogue.node.flush import AHEAD, Cut, Flusher
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


def test_no_rate_is_no_pace():
    assert pace([cut(64 * MIB, 1)], rate=0) is None


def test_a_file_sealed_in_the_millisecond_it_began_has_a_rate():
    assert cut(MIB, 0).fill_rate == MIB * 1_000
