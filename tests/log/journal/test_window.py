from __future__ import annotations

import pytest

from tests.log.rig import make_entry
from trilogue.entry.header import CHECKED_FROM
from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import PREFIX, FileHeader, entry_checksum, frame_at
from trilogue.log.journal.window import Window

SEED = FileHeader(1, 77, b"a cluster's id 1").seed


def filled(sizes: list[int], *, facts: bool, known: bool) -> Window:
    window = Window(1 << 20)
    for size in sizes:
        start = window.used + PREFIX.size
        PREFIX.pack_into(window.view, window.used, 7, 1, 0)
        window.view[start : start + size] = make_entry(size, fill=size)
        window.used = start + size
        window.entry_count += 1
        if known:
            checksum = entry_checksum(window.view, start)
            window.known.append((start + CHECKED_FROM, start + size, checksum))
    if facts:
        window.facts.append((1, b"moved"))
        window.limit -= 100
    window.close()
    return window


def sealed(window: Window) -> bytes:
    frame = window.seal(
        seed=SEED, flags=0, sequence=5, durable_through=4, node_id=1, node_epoch=2, append_time_ms=3
    )
    return bytes(frame)


@pytest.mark.parametrize("facts", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_frame_summed_up_early_is_the_same_frame(facts: bool, known: bool) -> None:
    sizes = [100, 40_000, 61, 70_000]
    early = filled(sizes, facts=facts, known=known)
    early.compute_checksum()

    frame = sealed(early)

    assert frame == sealed(filled(sizes, facts=facts, known=False))
    assert len(frame) % BLOCK == 0
    assert frame_at(memoryview(frame), 0, SEED) is not None
